"""C20 on dispatched agents: a tool that calls a durable agent starts one run of it, whatever happens to the tool."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

from tests.dispatched import backend, dispatch, kill, result, stop, worker
from tests.script import ledger
from tests.waiting import until


def executions() -> list[tuple[str, str]]:
    connection = sqlite3.connect("runs.db")
    try:
        sql = "SELECT d.agent, e.status FROM executions e JOIN dispatches d ON d.execution = e.id ORDER BY e.id"
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def noted(name: str) -> list[int]:
    return [entry["attempt"] for entry in ledger.read() if entry.get("name") == name]


def test_c20_a_tool_that_calls_a_durable_agent_starts_an_execution_of_its_own() -> None:
    handle = dispatch([{"tool": "delegate", "task": "Oslo"}, "Done."], "outer")
    current = worker()
    assert str(result(handle)) == "Done.\n"
    stop(current)
    assert executions() == [("scripted", "COMPLETED"), ("helper", "COMPLETED")]
    inner = [found.execution_id for found in asyncio.run(backend().list(agent="helper"))]
    assert inner[0].startswith("helper-")


def test_c20_two_calls_of_one_tool_are_two_executions_and_the_same_call_again_is_one_more() -> None:
    handle = dispatch([{"tool": "delegate_twice", "task": "Oslo"}, "Done."], "outer")
    current = worker()
    assert str(result(handle)) == "Done.\n"
    stop(current)
    results = asyncio.run(_results(handle))
    assert results == ["Oslo 1! Oslo 2! Oslo 1!"]
    assert [agent for agent, _ in executions()] == ["scripted", "helper", "helper", "helper"]


async def _results(handle: object) -> list[str]:
    return [
        event["result"]["content"][0]["text"]
        async for event in handle.stream()  # type: ignore[attr-defined]
        if event["recorded"] and event["kind"] == "tool"
    ]


def test_c20_a_tool_that_died_finds_the_run_that_it_started() -> None:
    handle = dispatch([{"tool": "delegate_and_die", "task": "Oslo"}, "Done."], "outer")
    first = worker()
    first.join()
    second = worker()
    assert str(result(handle, 20)) == "Done.\n"
    stop(second)
    assert noted("delegate_and_die") == [1, 2]
    assert noted("book_and_die") == [1, 2]
    assert executions() == [("scripted", "COMPLETED"), ("helper", "COMPLETED")]


def test_c20_runs_that_wait_for_others_take_up_no_room() -> None:
    handles = [
        dispatch([{"tool": "delegate", "task": f"Oslo {number}"}, "Done."], f"outer-{number}") for number in range(3)
    ]
    current = worker(concurrency=1)
    assert {str(result(handle, 20)) for handle in handles} == {"Done.\n"}
    stop(current)


def test_c20_what_is_tried_alone_may_start_others() -> None:
    script = [{"tool": "wait_for", "path": "go"}, "Waited."]
    handle = dispatch([{"tool": "delegate_and_wait", "script": script}, "Done."], "outer")
    first = worker()
    until(Path("begun").exists)
    kill(first)
    Path("fixed").touch()
    Path("go").touch()
    second = worker()
    assert str(result(handle, 20)) == "Done.\n"
    stop(second)
    assert [agent for agent, _ in executions()] == ["scripted", "helper"]


def test_c20_many_tools_that_wait_for_others_leave_them_threads_to_run_in() -> None:
    count = (os.cpu_count() or 1) + 8
    handles = [
        dispatch([{"tool": "delegate", "task": str(number)}, "Done."], f"outer-{number}") for number in range(count)
    ]
    current = worker(concurrency=2 * count)
    assert {str(result(handle, 20)) for handle in handles} == {"Done.\n"}
    stop(current)
