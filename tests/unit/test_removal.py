"""Forgetting executions: all of one, nothing of another, and not a word left in the file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, DurableBackend, connect, durable_agent
from strands_durable._blobs import _PLACES
from strands_durable._removal import _OF_CALLS, _OF_EXECUTION
from strands_durable._stores import stores
from strands_durable.errors import ExecutionBusyError, ExecutionNotFoundError, LeaseLostError
from strands_durable.testing import ScriptedModel, call, forget_process
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


def test_an_id_can_be_used_anew() -> None:
    record("trip", "one")
    remove("trip")
    record("trip", "another")
    (found,) = asyncio.run(backend().list())
    assert (found.execution_id, found.steps) == ("trip", 4)


def test_every_table_with_rows_of_an_execution_is_emptied() -> None:
    record("trip", "one")
    shared = {"configs", "blobs", "secrets", "sqlite_sequence"}
    assert {table for table, _ in (*_OF_CALLS, *_OF_EXECUTION)} == set(counts()) - shared
    assert {table for table, _ in _PLACES} <= set(counts()) - shared


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
    os.kill(owner.pid, signal.SIGSTOP)

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


def test_whoever_waits_for_a_removed_execution_hears_of_it() -> None:
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


def test_removing_from_a_store_that_is_not_there_makes_none() -> None:
    with pytest.raises(ExecutionNotFoundError):
        remove("trip")
    assert os.listdir() == []
