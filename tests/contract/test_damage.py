"""Bytes that rot: a changed byte of the file is an error of ours, or changes nothing; never another text or a traceback."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, connect, errors
from strands_durable._journal.messages import read
from strands_durable._journal.outcome import result_of
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.journal import Journal
from strands_durable._sqlite.lease import look
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import Answer, ScriptedModel, call
from tests.dispatched import dispatch, result, stop, worker
from tests.script import answers
from tests.waiting import until

FLIPS = int(os.environ.get("FLIPS", "100"))
PICTURE = {"image": {"format": "png", "source": {"bytes": random.Random(1).randbytes(12_000)}}}


@tool(context=True)
def work(number: int, tool_context: ToolContext) -> str:
    """Return some text, and keep some in the state."""
    tool_context.agent.state.set(f"key {number}", "kept " * number)
    return f"result {number}: " + "words and more words, " * 150


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def agent_of(execution_id: str, script: list[Any]) -> Agent:
    return Agent(
        model=ScriptedModel(script),
        tools=[work, approve],
        plugins=[Durability("runs.db", execution_id=execution_id)],
        callback_handler=None,
    )


@pytest.fixture
def dense(fresh_process: None) -> bytes:
    """A store at rest with some of everything: ended, waiting, answered and failed calls, state, large bytes."""
    for number in range(2):
        script = [call("work", number=each) for each in range(1, 6)]
        agent = agent_of(f"run-{number}", [*script, f"This was run {number}.", "Once more."])
        agent([{"text": f"Work, run {number}"}, *([PICTURE] if number == 0 else [])])
        if number:
            agent("And again")
    waiting: Any = agent_of("waits", [call("approve", what="this"), "Thanks."])("Ask")
    assert waiting.stop_reason == "interrupt"
    answered = agent_of("answered", [call("approve", what="that"), "Thanks."])
    answered(answers(answered("Ask"), "of course"))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="out of order"):
        agent_of("fails", [call("work", number=1), Answer(errors=[ValueError("the model is out of order")])])("Go")
    stores.close()
    return Path("runs.db").read_bytes()


def listed() -> Any:
    for found in Catalog("runs.db").executions():
        if found.unreadable is not None:
            raise errors.UnreadableError(found.unreadable)
    return [
        (found.execution_id, found.kind, found.status, found.run, found.agent)
        for found in Catalog("runs.db").executions()
    ]


def read_back() -> Any:
    """Return all texts that a store gives back, to people and to a run that resumes."""
    found: dict[str, Any] = {"list": listed()}
    for execution_id, *_ in found["list"]:
        shown = Catalog("runs.db").execution(execution_id)
        if shown.execution.unreadable is not None:
            raise errors.UnreadableError(shown.execution.unreadable)
        found[f"show {execution_id}"] = shown.calls
    store = Store(Path("runs.db").resolve(), busy_seconds=0.1)
    try:
        for execution_id, *_ in found["list"]:
            journal = Journal(look(store, execution_id))
            found[execution_id] = [
                (journal.status(), record, *_contents(journal, record)) for record in journal.calls()
            ]
    finally:
        store.close()
    return found


def _contents(journal: Journal, record: Any) -> tuple[Any, ...]:
    progress, parts = journal.head(record.call_id)
    steps = journal.latest(record.call_id, "")
    return (
        progress,
        parts,
        read(journal, record.lineage, progress.ranges),
        result_of(journal, record),
        steps,
        journal.answers(record.call_id),
        journal.usages(record.call_id),
        journal.config(record.config_id),
        journal.last_failure(record.call_id) if record.status.value == "FAILED" else None,
    )


def with_file(content: bytes) -> Any:
    """Return what is read back from a file with this content, or the error of ours."""
    for name in ("runs.db-wal", "runs.db-shm"):
        Path(name).unlink(missing_ok=True)
    Path("runs.db").write_bytes(content)
    try:
        return read_back()
    except errors.DurableError as error:
        return error


def flips(content: bytes, number: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield places and by what a byte there is changed: where there is something, and a few where there is nothing."""
    chance = random.Random(seed)
    filled = [place for place, byte in enumerate(content) if byte]
    for count in range(number):
        place = chance.choice(filled) if count % 10 else chance.randrange(len(content))
        yield place, 1 << chance.randrange(8) if count % 2 else chance.randrange(1, 256)


def changed(content: bytes, place: int, by: int) -> bytes:
    """Return a file with one byte changed."""
    found = bytearray(content)
    found[place] ^= by
    return bytes(found)


@pytest.mark.timeout(300 + FLIPS)
def test_a_changed_byte_is_an_error_or_changes_nothing(dense: bytes) -> None:
    whole = with_file(dense)
    assert not isinstance(whole, errors.DurableError)
    assert len(whole["list"]) == 5
    refused = 0
    for place, by in flips(dense, FLIPS, seed=14):
        found = with_file(changed(dense, place, by))
        refused += isinstance(found, errors.DurableError)
        if not isinstance(found, errors.DurableError):
            assert found == whole, f"byte {place} changed by {by}, unnoticed"
    assert refused > FLIPS / 2, "most of what is there is text"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE dispatches SET spec = replace(spec, 'scripted', 'scribbled') WHERE execution = 1",
        "UPDATE calls SET input = 'x' || input WHERE execution = 1",
        "UPDATE executions SET status = 'RUNNING' WHERE id = 1",
    ],
)
def test_a_dispatched_run_that_is_damaged_does_not_stop_the_others_and_can_be_removed(damage: str) -> None:
    dispatch(["Hello."], "damaged")
    handle = dispatch(["Hello."], "sound")
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        connection.execute(damage)
    running = worker(lease_seconds=5.0)
    assert str(result(handle)) == "Hello.\n"
    stop(running)
    asyncio.run(connect("sqlite:///runs.db?worker=off").remove("damaged"))
    assert [found.execution_id for found in Catalog("runs.db").executions()] == ["sound"]


def test_a_dispatched_run_that_is_damaged_inside_is_put_off_with_a_note() -> None:
    handle = dispatch([{"tool": "approve", "what": "this"}, "Thanks."], "damaged")
    first = worker()
    (question,) = result(handle).interrupts
    asyncio.run(handle.respond({question.id: "yes"}))
    stop(first)
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        connection.execute("UPDATE messages SET data = replace(data, 'input', 'outpu')")
    second = worker()
    until(lambda: _note() is not None)
    assert "does not match its checksum" in str(_note())
    stop(second)


def _note() -> Any:
    with closing(sqlite3.connect("runs.db")) as connection:
        return connection.execute("SELECT note FROM dispatches").fetchone()[0]


def test_no_damage_of_an_index_of_executions_goes_unnoticed(dense: bytes) -> None:
    whole = with_file(dense)
    with closing(sqlite3.connect("runs.db")) as connection:
        names = ("executions_by_status", "sqlite_autoindex_executions_1")
        query = "SELECT rootpage FROM sqlite_master WHERE name IN (?, ?)"
        pages = [page for (page,) in connection.execute(query, names)]
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    assert len(pages) == 2
    for page in pages:
        start = (page - 1) * size
        for place in (start + offset for offset in range(size) if dense[start + offset]):
            found = with_file(changed(dense, place, 4))
            assert isinstance(found, errors.DurableError) or found == whole, f"byte {place - start} of page {page}"
