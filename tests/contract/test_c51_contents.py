"""C50 and C51 where they are hard: objects that live on, damaged rows, many calls, and passes that are stopped."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_durable import Durability, Retention, connect, errors
from strands_durable._dispatch import retention as workers
from strands_durable._records.retention import RetentionRules
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.open_files import stores
from strands_durable._sqlite.upkeep import contents, removal
from strands_durable._sqlite.upkeep import retention as passes
from strands_durable._sqlite.upkeep.pieces import Progress
from strands_durable._sqlite.verification import verified
from strands_durable.testing import Answer, ScriptedModel, call, forget_process
from tests.contract.test_c50_retention import (
    SECRET,
    URL,
    agent_of,
    backend,
    completed,
    greeter,
    is_sound,
    prune,
    read_bytes,
    remember,
    statuses,
)
from tests.script import answers
from tests.waiting import until

CONTENTS = Retention(contents=0)


def rows(query: str) -> list[Any]:
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        return connection.execute(query).fetchall()


def recorded() -> list[Any]:
    """Return what must stay the same when a call is refused."""
    calls = rows("SELECT id, position, run, status, ended_at FROM calls ORDER BY id")
    return calls + rows("SELECT execution_id, status, run, updated_at, owner FROM executions ORDER BY id")


# Calls after the contents were removed


@pytest.mark.parametrize("ends", ["COMPLETED", "FAILED"])
def test_c51_an_agent_that_continues_is_refused_and_nothing_is_written(ends: str) -> None:
    chat = agent_of(
        "chat", "One.", *([Answer(errors=[ValueError("no")])] if ends == "FAILED" else []), "Two.", "Three."
    )
    chat("one")
    if ends == "FAILED":
        with pytest.raises(ValueError, match="no"):
            chat("two")
    assert prune(CONTENTS).emptied == 1
    before = recorded()
    for given in ("two", "three"):
        with pytest.raises(errors.ContentsRemovedError, match="'chat'"):
            chat(given)
        assert recorded() == before
    assert statuses() == {"chat": ends}
    assert is_sound()
    assert prune().removed == 1


@pytest.mark.parametrize("on_completed", ["restart", "return"])
def test_c51_one_that_is_to_restart_is_refused_and_nothing_is_written(on_completed: Any) -> None:
    def run() -> None:
        durability = Durability("runs.db", execution_id="once", on_completed=on_completed)
        Agent(model=ScriptedModel(["Hi."]), plugins=[durability], callback_handler=None)("Hi")

    run()
    forget_process()
    prune(CONTENTS)
    before = recorded()
    with pytest.raises(errors.ContentsRemovedError, match="'once'"):
        run()
    forget_process()
    assert recorded() == before
    assert is_sound()


# Damaged rows


def damage(change: str) -> None:
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        assert connection.execute(change).rowcount > 0
    forget_process()


OF_ONE = "(SELECT id FROM calls WHERE execution = (SELECT id FROM executions WHERE execution_id = 'one'))"
NO_TEXT = "CAST(CAST({0} AS BLOB) || x'ff' AS TEXT)"
DAMAGES = {
    "head": f"UPDATE heads SET data = data || ' ' WHERE call IN {OF_ONE} AND part = 'progress'",
    "head-no-text": f"UPDATE heads SET data = {NO_TEXT.format('data')} WHERE call IN {OF_ONE}",
    "call": f"UPDATE calls SET input = input || ' ' WHERE id IN {OF_ONE}",
    "call-no-text": f"UPDATE calls SET input = {NO_TEXT.format('input')} WHERE id IN {OF_ONE}",
    "step": f"UPDATE steps SET name = 'other' WHERE call IN {OF_ONE}",
    "step-no-text": f"UPDATE steps SET result = {NO_TEXT.format('result')} WHERE call IN {OF_ONE}",
    "message-no-text": f"UPDATE messages SET data = {NO_TEXT.format('data')} WHERE lineage IN {OF_ONE}",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_c51_a_damaged_row_loses_its_contents_and_those_of_the_others_go_too(name: str) -> None:
    for execution_id in ("one", "two", "three"):
        completed(execution_id)
    damage(DAMAGES[name])
    assert prune(CONTENTS).emptied == 3
    assert rows("SELECT count(*) FROM emptied WHERE is_done = 1") == [(3,)]
    assert rows("SELECT count(*) FROM blobs") == rows("SELECT count(*) FROM uses") == [(0,)]
    assert SECRET.encode() not in read_bytes()
    assert {problem.execution_id for problem in verified(Path("runs.db").resolve()).problems} <= {"one"}
    assert prune().removed == 3
    assert is_sound()


@pytest.mark.parametrize("name", DAMAGES)
def test_c50_a_damaged_execution_is_removed_with_the_others(name: str) -> None:
    for execution_id in ("one", "two"):
        completed(execution_id)
    damage(DAMAGES[name])
    assert prune().removed == 2
    assert SECRET.encode() not in read_bytes()
    assert is_sound()


def test_c51_contents_that_cannot_be_removed_are_counted_and_the_others_go(caplog: pytest.LogCaptureFixture) -> None:
    for execution_id in ("one", "two", "three"):
        completed(execution_id)
    store = stores.open(Path("runs.db").resolve())[0]
    with store.transaction("test") as connection:
        for row_id in (1, 2):
            contents.begin(connection, row_id)
    damage("UPDATE emptied SET at = 1 WHERE execution = 1")
    found = prune(CONTENTS)
    assert (found.emptied, found.failed) == (1, 1)
    assert rows("SELECT execution, is_done FROM emptied ORDER BY 1") == [(1, 0), (2, 1), (3, 1)]
    assert "execution=<1>" in caplog.text
    assert prune(CONTENTS).failed == 1  # and again


def test_c50_rows_that_cannot_be_removed_are_counted_and_rm_says_so() -> None:
    for execution_id in ("one", "two", "three"):
        completed(execution_id)
    damage(f"UPDATE heads SET part = CAST(x'ff' AS TEXT) WHERE part = 'agent' AND call IN {OF_ONE}")
    with pytest.raises(errors.BackendUnavailableError, match="damaged"):
        backend().sync.remove("one")
    backend().sync.remove("two")
    found = prune()
    assert (found.removed, found.failed) == (1, 1)
    assert statuses() == {}
    assert rows("SELECT execution FROM removals") == [(1,)]


def test_c51_a_damaged_dispatch_loses_what_it_was_given() -> None:
    async def dispatched() -> None:
        found, stop = connect(URL), asyncio.Event()
        worker = asyncio.create_task(found.work(stop=stop))
        for execution_id in ("one", "two"):
            await (await greeter.on(found).dispatch_async(SECRET, execution_id=execution_id)).result(20)
        stop.set()
        await worker

    asyncio.run(dispatched())
    damage("UPDATE dispatches SET spec = spec || ' ' WHERE execution = 1")
    found = prune(CONTENTS)
    assert (found.emptied, found.failed) == (2, 0)
    assert SECRET.encode() not in read_bytes()
    assert {problem.table for problem in verified(Path("runs.db").resolve()).problems} == {"dispatches"}
    assert statuses()["two"] == "COMPLETED"
    assert prune().removed == 2
    assert is_sound()


# A store in which a removal is in progress


@pytest.mark.parametrize("what", ["executions", "contents"])
def test_c49_a_removal_that_is_in_progress_is_no_damage(what: str) -> None:
    sub = Agent(
        name="sub",
        description="x",
        model=ScriptedModel([call("remember", what="x"), "x"]),
        tools=[remember],
        callback_handler=None,
    )
    agent = agent_of("one", call("sub", input="go"), call("remember", what=SECRET), "One.", "Two.")
    agent.tool_registry.process_tools([sub])
    result: Any = agent("one")
    while result.stop_reason == "interrupt":
        result = agent(answers(result, "yes"))  # type: ignore[arg-type]
    agent("two")
    forget_process()
    store, progress = stores.open(Path("runs.db").resolve())[0], Progress()
    with store.transaction("test") as connection:
        removal.mark_removed(connection, 1, "one") if what == "executions" else contents.begin(connection, 1)
    delete_piece = removal.delete_piece if what == "executions" else contents.delete_piece
    is_over, pieces = False, 0
    while not is_over:
        with store.transaction("test") as connection:
            is_over = delete_piece(connection, 1, progress)
        pieces += 1
        assert is_sound(), pieces
    assert pieces > 20


# Many calls


def with_calls(number: int) -> Store:
    """Return a store with one execution of that many calls, each with a head and three messages."""
    store = stores.open(Path("runs.db").resolve())[0]
    at = {"started_at": 1.0, "taken_up_at": 1.0, "ended_at": 1.0}
    with store.transaction("test") as connection:
        row_id = connection.insert(
            "executions", execution_id="many", kind="inline", status="COMPLETED", run=0, created_at=1.0, updated_at=1.0,
            fence=1, beat=0, owner=None, lease_until=0.0, lease_seconds=0.0,
        )  # fmt: skip
        for call_id in range(1, number + 1):
            connection.insert(
                "calls", id=call_id, execution=row_id, run=call_id % 2, parent=0, place="", position=call_id, kind="agent",
                member="a", scope="a", lineage=call_id, status="COMPLETED", attempt=1, input=SECRET, input_hash="x", base="[]",
                config=0, **at,
            )  # fmt: skip
            connection.insert("heads", call=call_id, part="progress", data='{"phase":"done"}', version=0)
            for seq in range(3):
                connection.insert("messages", lineage=call_id, seq=seq, data=f'{{"x":"{SECRET}"}}')
        contents.begin(connection, row_id)
    return store


def test_c51_each_piece_of_many_calls_is_small_and_continues_where_the_last_one_ended() -> None:
    store, progress = with_calls(1_500), Progress()
    seen: list[int] = []
    is_over = False
    while not is_over:
        with store.transaction("test") as connection:
            statements: list[str] = []
            connection.set_trace_callback(statements.append)
            is_over = contents.delete_piece(connection, 500_000, progress)
            connection.set_trace_callback(None)
        seen.append(len(statements))
    assert len(seen) > 10
    assert max(seen) < 8_000, seen
    assert sum(seen[-4:-1]) < 1.2 * sum(seen[:3]), seen
    assert rows("SELECT count(*) FROM calls WHERE input IS NOT NULL") == rows("SELECT count(*) FROM messages") == [(0,)]
    assert rows("SELECT count(*) FROM heads") == [(1_500,)]


def test_c51_many_calls_without_contents_are_more_than_one_piece() -> None:
    store, progress = with_calls(1_500), Progress()
    with store.transaction("test") as connection:
        connection.delete("messages", "1")
    pieces = 0
    is_over = False
    while not is_over:
        with store.transaction("test") as connection:
            is_over = contents.delete_piece(connection, 500_000, progress)
        pieces += 1
    assert pieces > 5


# A pass that is stopped


@pytest.mark.parametrize("retention", [CONTENTS, Retention(completed=0)], ids=["contents", "executions"])
def test_c50_a_pass_that_is_stopped_ends_after_its_next_piece_and_the_next_one_is_due(
    retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        completed(f"run-{number}")
    monkeypatch.setattr(passes, "_BATCH", 1)
    monkeypatch.setattr(passes, "_PIECE_BYTES", 1_000)
    store, rules = stores.open(Path("runs.db").resolve())[0], RetentionRules(default=retention)
    asked: list[bool] = []

    def is_stopped() -> bool:
        asked.append(True)
        return len(asked) > 6

    found = passes.Pruner(store, rules, is_stopped=is_stopped).run(3_600)
    assert found is not None
    assert 0 < found.removed + found.emptied < 4
    assert len(asked) < 15
    assert rows("SELECT claimed_by, at FROM passes") == [(None, 0.0)]
    assert is_sound()
    rest = passes.Pruner(store, rules).run(3_600)
    assert rest is not None
    assert found.removed + found.emptied + rest.removed + rest.emptied == 4
    assert SECRET.encode() not in read_bytes()


def test_c50_a_worker_that_stops_does_not_wait_for_the_end_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    completed()
    began = threading.Event()

    def endless(store: object, label: str, piece: object, most: int, is_stopped: Callable[[], bool]) -> dict[int, Any]:
        began.set()
        until(is_stopped, 20)
        return {}

    monkeypatch.setattr(passes, "delete_in_pieces", endless)

    async def work() -> None:
        found, stop = connect(URL), asyncio.Event()
        found.retain(Retention(completed=0))
        worker = asyncio.create_task(found.work(stop=stop))
        await asyncio.to_thread(began.wait, 20)
        stop.set()
        await worker

    at = time.monotonic()
    asyncio.run(work())
    assert time.monotonic() - at < 10
    workers.retentions.set(Path("runs.db").resolve(), RetentionRules())
