"""C61 on an engine that stores batches: what slow hooks after a call left is stored while other tools of the answer run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from strands import Agent
from strands.hooks import AfterToolCallEvent

from strands_durable import ExecutionHandle, durable_agent
from strands_durable._calls.decisions import AFTER_TOOLS
from strands_durable.testing import ScriptedModel, call
from tests.contract.test_memory_engine import BOTH, Bench, done, gates, has_done, quick, slow
from tests.waiting import until

HOOK_SECONDS = 0.2
"""Long enough for the result to be stored before the hook has decided."""
wishes: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    for kept in (done, wishes):
        kept.clear()
    gates["slow"] = threading.Event()


async def judge(event: AfterToolCallEvent) -> None:
    """Think about a result, and change its mind the second time."""
    if event.tool_use["name"] == "quick":
        await asyncio.sleep(HOOK_SECONDS)
        wishes.append("retry" if len(wishes) == 1 else "keep")
        event.retry = wishes[-1] == "retry"


@durable_agent
def judged(script: list[Any]) -> Agent:
    """Call tools, each judged afterwards."""
    turns = [[call(name, **given) for name, given in turn] if isinstance(turn, list) else turn for turn in script]
    return Agent(model=ScriptedModel(turns), tools=[quick, slow], hooks=[judge], callback_handler=None)


def is_decided(bench: Bench) -> Callable[[], bool]:
    """Return whether the engine has stored what the hooks left."""

    def look() -> bool:
        replica = asyncio.run(bench.memory.read("run")).replica
        return bool(replica.read("SELECT 1 FROM heads WHERE part = ?", AFTER_TOOLS))

    return look


def test_c61_what_slow_hooks_left_is_stored_while_a_sibling_runs() -> None:
    bench = Bench()
    handle: ExecutionHandle = bench.dispatch(judged, script=BOTH)
    with bench.worker():
        until(has_done("slow Oslo"))
        until(is_decided(bench), seconds=10)
        bench.memory.lose_workers()
        with bench.worker():
            until(has_done("slow Oslo", 2))
            gates["slow"].set()
            assert bench.result(handle) == "Done."
    assert wishes == ["keep", "retry"], "it was asked again, and not followed"
    assert done.count("quick Rome") == 1
