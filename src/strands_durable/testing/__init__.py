"""Test tools for durable agents, including your own: a scripted model, crash points, and a check that a run replays.

def build(durability):
    model = ScriptedModel([call("book_hotel", city="Paris"), "Booked."])
    return Agent(model=model, tools=[book_hotel], plugins=[durability])

assert_replays(build, "Book a hotel")
"""

from ._crash import CrashPoints, SimulatedCrash, forget_process, reach
from ._model import Answer, ScriptedModel, ScriptError, call
from ._replays import assert_replays

__all__ = [
    "Answer",
    "CrashPoints",
    "ScriptError",
    "ScriptedModel",
    "SimulatedCrash",
    "assert_replays",
    "call",
    "forget_process",
    "reach",
]
