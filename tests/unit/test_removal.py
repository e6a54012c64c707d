"""Forgetting executions: all of one, nothing of another, and not a word left in the file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, DurableBackend, connect, durable_agent
from strands_durable._sqlite.blobs import PLACES
from strands_durable._sqlite.open_files import stores
from strands_durable._sqlite.upkeep.removal import _OF_CALLS, _OF_EXECUTION
from strands_durable.errors import ExecutionBusyError, ExecutionNotFoundError, LeaseLostError
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, call, forget_process
from tests import threads
from tests.processes import freeze, run
from tests.script import answers, start_process
from tests.waiting import until

PICTURE = {"image": {"format": "png", "source": {"bytes": os.urandom(5_000)}}}
SHARED = {"image": {"format": "png", "source": {"bytes": os.urandom(5_000)}}}


@tool(context=True)
def remember(secret: str, tool_context: ToolContext) -> str:
    """Remember a secret, if a person agrees."""
    tool_context.agent.state.set("secret", secret)
    return f"{secret}: {tool_context.interrupt('approval', reason=secret)}"


def record(execution_id: str, secret: str, *pictures: Any) -> None:
    agent = Agent(
        model=ScriptedModel([call("remember", secret=secret), f"I know {secret}."]),
        tools=[remember],
        plugins=[Durability("runs.db", execution_id=execution_id)],
        callback_handler=None,
    )
    result: Any = agent([{"text": f"It is {secret}"}, *pictures])
    if result.stop_reason == "interrupt":
        agent(answers(result, secret))  # type: ignore[arg-type]
    forget_process()


def backend() -> DurableBackend:
    return connect("sqlite:///runs.db?worker=off")


def remove(execution_id: str) -> None:
    asyncio.run(backend().remove(execution_id))


def counts() -> dict[str, int]:
    """Return how many rows each table has."""
    with sqlite3.connect("runs.db") as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    connection.close()
    return found


def test_nothing_of_a_removed_execution_is_left_and_everything_of_another() -> None:
    record("keep", "public", SHARED)
    before = counts()
    record("gone", "hush-hush", PICTURE, SHARED)
    assert counts()["blobs"] == 2
    remove("gone")
    assert counts() == before
    stores.close()
    content = b"".join(path.read_bytes() for path in Path().glob("runs.db*"))
    assert b"hush-hush" not in content
    assert PICTURE["image"]["source"]["bytes"][:100] not in content  # type: ignore[index]
    assert b"public" in content
    record("keep", "public", SHARED)
    assert counts() == before
    with pytest.raises(ExecutionNotFoundError):
        remove("gone")


def test_an_id_can_be_used_again() -> None:
    record("trip", "one")
    remove("trip")
    record("trip", "another")
    (found,) = asyncio.run(backend().list())
    assert (found.execution_id, found.steps) == ("trip", 4)


def test_every_table_with_rows_of_an_execution_is_emptied() -> None:
    record("trip", "one")
    shared = {"configs", "blobs", "secrets", "sqlite_sequence", "uses", "removals", "watches", "passes", "data_keys"}
    assert {table for table, _ in (*_OF_CALLS, *_OF_EXECUTION)} == set(counts()) - shared
    assert {table for table, _ in PLACES} <= set(counts()) - shared


def test_a_dispatched_execution_is_removed_with_its_request() -> None:
    @durable_agent(name="removable")
    def build() -> Agent:
        return Agent(model=ScriptedModel(["Hello."]), callback_handler=None)

    asyncio.run(build.on("sqlite:///runs.db?worker=off").dispatch_async("hush-hush", execution_id="trip"))
    assert counts()["dispatches"] == 1
    remove("trip")
    assert counts()["dispatches"] == counts()["executions"] == 0


def test_an_execution_that_is_at_work_is_refused() -> None:
    owner = start_process([call("wait_for", path="go"), "Done."], ["Wait"])
    until(Path("waiting").exists)
    with pytest.raises(ExecutionBusyError, match=f"process {owner.pid} on .* 'strands-durable cancel trip'"):
        remove("trip")
    Path("go").touch()
    owner.join().checked()
    remove("trip")


def test_an_owner_that_slept_through_the_removal_writes_into_nothing() -> None:
    owner = start_process([call("wait_for", path="go"), "Done."], ["Wait"], {"lease_seconds": 0.5})
    until(Path("waiting").exists)
    freeze(owner.pid)

    def is_removed() -> bool:
        try:
            remove("trip")
        except ExecutionBusyError:
            return False
        return True

    until(is_removed)
    durability = Durability("runs.db", execution_id="other")
    Agent(model=ScriptedModel(["Hello."]), plugins=[durability], callback_handler=None)("Hi")
    before = counts()
    Path("go").touch()
    os.kill(owner.pid, signal.SIGCONT)
    (outcome,) = owner.join().checked()
    assert outcome["error"] == LeaseLostError.__name__
    assert counts() == before


def test_a_caller_that_waits_for_a_removed_execution_gets_an_error() -> None:
    @durable_agent(name="awaited")
    def build() -> Agent:
        return Agent(model=ScriptedModel(["Hello."]), callback_handler=None)

    async def both() -> None:
        handle = await build.on("sqlite:///runs.db?worker=off").dispatch_async("Hi", execution_id="trip")
        waiting = asyncio.ensure_future(handle.result(timeout=30))
        following = asyncio.ensure_future(handle.stream().__anext__())  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await backend().remove("trip")
        for each in (waiting, following):
            with pytest.raises(ExecutionNotFoundError):
                await each

    asyncio.run(both())


def plans(act: Any) -> list[str]:
    """Return how SQLite finds the rows for each statement that ``act`` has the store run."""
    store = stores.open(Path("runs.db").resolve())[0]
    said: list[str] = []
    store._connection.set_trace_callback(said.append)
    try:
        act()
    finally:
        store._connection.set_trace_callback(None)
    found = []
    for sql in said:
        if sql.split()[0] in ("SELECT", "DELETE", "UPDATE", "INSERT"):
            rows = store._connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            found += [f"{row[3]}: {sql[:100]}" for row in rows]
    return found


def test_a_removal_searches_no_table_for_what_it_deletes() -> None:
    record("keep", "public", SHARED)
    record("gone", "hush-hush", PICTURE, SHARED)
    found = plans(lambda: remove("gone"))
    assert any("DELETE FROM failures" in line or "FROM failures WHERE call" in line for line in found)
    assert [line for line in found if line.startswith("SCAN") and "removals" not in line] == []
    assert counts()["blobs"] == 1


def test_a_redaction_searches_no_table_for_who_else_refers_to_its_image() -> None:
    redacted = Answer(text="No.", stop_reason="guardrail_intervened", redact_user="Redacted.")
    agent = Agent(
        model=ScriptedModel([redacted]), plugins=[Durability("runs.db", execution_id="trip")], callback_handler=None
    )
    record("keep", "public", SHARED)
    found = plans(lambda: agent([{"text": "Look"}, PICTURE, SHARED]))
    small = ("json_each", "sqlite_sequence")
    assert [line for line in found if line.startswith("SCAN") and not any(name in line for name in small)] == []
    assert counts()["blobs"] == 1
    content = b"".join(path.read_bytes() for path in Path().glob("runs.db*"))
    assert PICTURE["image"]["source"]["bytes"][:100] not in content  # type: ignore[index]


def test_others_write_while_a_large_execution_is_removed() -> None:
    record("large", "secret")
    store = stores.open(Path("runs.db").resolve())[0]
    with store.transaction("test", lasting=False) as connection:
        (call_id,) = connection.execute("SELECT max(id) FROM calls").fetchone()
        rows = [(call_id, f"{number:06}/x~0", "y" * 40_000) for number in range(1500)]
        connection.executemany(
            "INSERT INTO steps (call, key, attempt, kind, name, title, status, started_at, result)"
            " VALUES (?, ?, 1, 'tool', 'big', '', 'done', 0, ?)",
            rows,
        )
    left: set[int] = set()
    ended = threading.Event()

    def write() -> None:
        with sqlite3.connect("runs.db", isolation_level=None, timeout=30) as connection:
            while not ended.wait(0.005):
                connection.execute("BEGIN IMMEDIATE")
                left.update(connection.execute("SELECT count(*) FROM steps").fetchone())
                connection.execute("ROLLBACK")
        connection.close()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        remove("large")
    finally:
        ended.set()
    threads.join(writer)
    assert len(left) > 3, "others write between the pieces"
    assert counts()["steps"] == counts()["removals"] == 0


def _killed_while_it_removes(folder: str, point: str) -> None:
    os.chdir(folder)
    with CrashPoints().crashing(point):
        remove("gone")


@pytest.mark.parametrize("point", ["remove:after@1", "remove.piece:before@1", "remove.piece:after@1"])
def test_a_removal_that_is_killed_leaves_nothing_that_resumes_and_is_finished_by_the_next(point: str) -> None:
    record("keep", "public", SHARED)
    before = counts()
    record("gone", "hush-hush", PICTURE, SHARED)
    assert run(_killed_while_it_removes, os.getcwd(), point).exitcode == -signal.SIGKILL
    assert [found.execution_id for found in asyncio.run(backend().list())] == ["keep"]
    with pytest.raises(ExecutionNotFoundError):
        asyncio.run(backend().get("gone"))
    record("gone", "another")
    assert {found.execution_id: found.steps for found in asyncio.run(backend().list())} == {"gone": 4, "keep": 4}
    remove("gone")
    assert counts() == before
    stores.close()
    assert b"hush-hush" not in b"".join(path.read_bytes() for path in Path().glob("runs.db*"))


def test_removing_again_finishes_what_was_killed() -> None:
    record("gone", "hush-hush", PICTURE)
    assert run(_killed_while_it_removes, os.getcwd(), "remove:after@1").exitcode == -signal.SIGKILL
    remove("gone")
    assert counts()["removals"] == counts()["steps"] == counts()["blobs"] == 0
    with pytest.raises(ExecutionNotFoundError):
        remove("gone")


def test_removing_from_a_store_that_is_not_there_makes_none() -> None:
    with pytest.raises(ExecutionNotFoundError):
        remove("trip")
    assert os.listdir() == []
