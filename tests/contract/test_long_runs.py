"""Long runs: one call far beyond the 320 turns at which Strands alone dies of recursion.

Here 500 turns with the whole history and 1,000 with a sliding window, 25 and 50 segments; `make soak` has 2,000 and 10,000.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager, SlidingWindowConversationManager

from strands_durable import Durability
from strands_durable.testing import CrashPoints, ScriptedModel, call
from tests.processes import run


@tool
def count(n: int) -> int:
    """Return the next number."""
    return n + 1


def script_of(turns: int) -> Any:
    """Where it stands is read from the last tool result: a window forgets how many there were."""

    def script(turn: int, messages: list[Any]) -> Any:
        last = messages[-1]["content"][0]
        reached = int(last["toolResult"]["content"][0]["text"]) if "toolResult" in last else 0
        return call("count", f"t{reached}", n=reached) if reached < turns else f"Counted to {reached}."

    return script


def long_run(folder: str, turns: int, window: int | None, deadly: str | None) -> Any:
    os.chdir(folder)
    manager = NullConversationManager() if window is None else SlidingWindowConversationManager(window, per_turn=True)
    agent = Agent(
        model=ScriptedModel(script_of(turns)),
        tools=[count],
        plugins=[Durability("runs.db", execution_id="long")],
        conversation_manager=manager,
        callback_handler=None,
    )
    if deadly is None:
        result = agent("Count")
    else:
        with CrashPoints().crashing(deadly):
            result = agent("Count")
    usage = result.metrics.accumulated_usage["totalTokens"]
    return str(result).strip(), result.metrics.cycle_count, usage, len(agent.messages)


WHOLE, IN_A_WINDOW = (2_000, 10_000) if "FULL_LENGTH" in os.environ else (500, 1_000)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("turns", "window", "kept"),
    [
        pytest.param(WHOLE, None, 2 * WHOLE + 2, id=f"{WHOLE} turns whole"),
        pytest.param(IN_A_WINDOW, 20, 20, id=f"{IN_A_WINDOW} turns in a window"),
    ],
)
def test_one_call_of_many_turns_survives_a_kill_near_its_end(turns: int, window: int | None, kept: int) -> None:
    deadly = f"tool.done:before@{turns - 3}"
    assert run(long_run, os.getcwd(), turns, window, deadly, timeout=1000).exitcode == -9
    text, cycles, usage, messages = run(long_run, os.getcwd(), turns, window, None, timeout=120).checked()
    assert text == f"Counted to {turns}."
    assert cycles == turns + 1
    assert usage == (turns + 1) * 15
    assert messages <= kept + 2
