"""Check that an agent replays: after a crash at any journal boundary, it ends as if nothing had happened."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strands import Agent

from .._plugin.durability import Durability
from ._crash import CrashPoints, SimulatedCrash, forget_process

Build = Callable[[Durability], Agent]


def assert_replays(build: Build, *prompts: Any, **options: Any) -> int:
    """Run the prompts once, then with a crash at each journal boundary, and compare; return the number of boundaries.

    ``build`` returns a new agent with the given `Durability`, as a new process would. Options are passed to `Durability`.
    Crashes are simulated in this process; for real ones, run your script in a child process and kill it.
    """
    with tempfile.TemporaryDirectory() as folder:
        points = CrashPoints()
        with points.recording():
            expected = _run(build, prompts, Path(folder) / "whole.db", options)
        boundaries = [point for point in points.reached if ":before@" in point or ":after@" in point]
        for number, boundary in enumerate(boundaries):
            path = Path(folder) / f"{number}.db"
            try:
                with CrashPoints().crashing(boundary, "raise"):
                    _run(build, prompts, path, options)
            except SimulatedCrash:
                pass
            resumed = _run(build, prompts, path, options)
            if resumed != expected:
                raise AssertionError(
                    f"The run ended differently after a crash at {boundary}.\nExpected: {expected}\nFound: {resumed}"
                )
            again = _run(build, prompts, path, options)
            if again != expected:
                raise AssertionError(
                    f"Running it again after it completed (crash at {boundary}) gave another result.\nFound: {again}"
                )
    return len(boundaries)


def _run(build: Build, prompts: tuple[Any, ...], path: Path, options: dict[str, Any]) -> list[Any]:
    forget_process()
    agent = build(Durability(path, execution_id="assert-replays", **options))
    try:
        return [_seen(agent, agent(prompt)) for prompt in prompts]
    finally:
        forget_process()


def _seen(agent: Agent, result: Any) -> dict[str, Any]:
    """Return what must be equal: everything except random ids and clocks."""
    messages = copy.deepcopy(agent.messages)
    for message in messages:
        message.pop("tracking_id", None)
        message.get("metadata", {}).pop("metrics", None)
    return {
        "stop_reason": result.stop_reason,
        "text": str(result),
        "messages": messages,
        "state": agent.state.get(),
        "usage": dict(result.metrics.accumulated_usage),
        "cycles": result.metrics.cycle_count,
    }
