"""C26: an execution that cannot be read is put aside, shown and removable; it does not hold up the others."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from strands_durable import connect, errors, register_type
from strands_durable._cli import main
from strands_durable._dispatch.unreadable import aside
from strands_durable._dispatch.worker import Worker
from strands_durable._records import registered_types
from strands_durable.testing import forget_process
from tests.dispatched import OFF, backend, dispatch, result, scripted, status
from tests.waiting import until_async


class Hue(str, Enum):
    RED = "red"


DAMAGES = {
    "unknown type": """UPDATE dispatches SET given = '{"invocation_state":{"$":"tensor","v":1},"limits":null}' WHERE {0}""",
    "no set": """UPDATE dispatches SET given = '{"invocation_state":{"a":{"$":"set","v":[{}]}},"limits":null}' WHERE {0}""",
    "truncated spec": "UPDATE dispatches SET spec = substr(spec, 1, 40) WHERE {0}",
    "other spec": "UPDATE dispatches SET spec = '[1]' WHERE {0}",
    "no utf-8 inside": "UPDATE dispatches SET spec = CAST('{\"name\":\"' || x'ff' || substr(spec, 10) AS TEXT) WHERE {0}",
    "no utf-8": "UPDATE dispatches SET spec = CAST(CAST(spec AS BLOB) || x'ff' AS TEXT) WHERE {0}",
    "truncated input": "UPDATE calls SET input = substr(input, 1, 2) WHERE {0}",
}


def sql(statement: str) -> list[Any]:
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        return connection.execute(statement).fetchall()


def damage(execution_id: str, how: str) -> None:
    row = f"(SELECT id FROM executions WHERE execution_id = '{execution_id}')"
    sql(DAMAGES[how].replace("{0}", f"execution = {row}").replace("{1}", f"id = {row}"))


def cli(*words: str) -> Any:
    return CliRunner().invoke(main, [*words, "--backend", "runs.db"], env={"COLUMNS": "200"})


async def working(condition: Any) -> None:
    """Run a worker in this process until something holds."""
    stop = asyncio.Event()
    run = asyncio.ensure_future(Worker(Path("runs.db").resolve(), concurrency=2).run(stop))
    try:
        await until_async(condition)
    finally:
        stop.set()
        await run


def work_until_completed(*execution_ids: str) -> None:
    async def are_completed() -> bool:
        rows = sql("SELECT execution_id FROM executions WHERE status = 'COMPLETED'")
        return set(execution_ids) <= {found for (found,) in rows}

    asyncio.run(working(are_completed))


@pytest.fixture(params=DAMAGES)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_c26_a_row_that_cannot_be_read_is_put_aside_and_the_others_are_run(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c", "d", "e"):
        dispatch(["Done."], name)
    for name in ("a", "b", "d"):
        damage(name, how)
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        work_until_completed("c", "e")
        work_until_completed("c", "e")
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    named = [
        re.match(r"(?:execution_id|executions=<\d>, execution_ids)=<([a-e, ]+)>, reason=<", each) for each in warnings
    ]
    names = [name for match in named if match is not None for name in match[1].split(", ")]
    assert sorted(names) == ["a", "b", "d"], "each is named once, with its reason"
    assert all("put aside" in line for line in warnings), "there is nothing else to say"
    reasons = [line.partition("reason=<")[2] for line in warnings]
    assert len(reasons) == len(set(reasons)), "one line for each reason"


def test_c26_it_is_listed_shown_and_removed(how: str) -> None:
    dispatch(["Done."], "good")
    dispatch(["Done."], "bad")
    damage("bad", how)
    listed = {found["execution_id"]: found for found in json.loads(cli("ls", "--json").stdout)}
    assert listed["good"]["unreadable"] is None
    assert listed["bad"]["unreadable"]
    table = cli("ls").stdout
    assert "unreadable" in table
    assert f"bad cannot be read: {listed['bad']['unreadable']}" in table
    shown = cli("show", "bad").stdout
    assert "it cannot be read: " in shown
    assert "rm bad" in shown
    assert json.loads(cli("show", "bad", "--json").stdout)["execution"]["unreadable"]
    records = asyncio.run(connect(OFF).list())
    assert {record.execution_id: record.unreadable is None for record in records} == {"good": True, "bad": False}
    removed = cli("rm", "bad", "--yes") if "--yes" in cli("rm", "--help").stdout else cli("rm", "bad")
    assert removed.exit_code == 0, removed.output
    assert [record.execution_id for record in asyncio.run(connect(OFF).list())] == ["good"]
    work_until_completed("good")


def test_c26_dispatching_it_again_says_what_is_wrong() -> None:
    dispatch(["Done."], "bad")
    damage("bad", "truncated spec")
    with pytest.raises(errors.UnreadableError, match="Execution 'bad' cannot be read: a row of it is damaged"):
        dispatch(["Done."], "bad")


def test_c26_a_result_that_cannot_be_read_is_an_error_of_that_execution() -> None:
    handles = [dispatch(["Done."], name) for name in ("good", "bad")]
    work_until_completed("good", "bad")
    sql("UPDATE calls SET result = substr(result, 1, 9) WHERE execution = 2")
    assert str(result(handles[0])) == "Done.\n"
    with pytest.raises(errors.UnreadableError, match="Execution 'bad' cannot be read"):
        result(handles[1])
    assert status("bad") == "COMPLETED"
    assert "it cannot be read: " in cli("show", "bad").stdout


def test_c26_one_that_is_damaged_while_it_runs_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    dispatch([{"tool": "book", "city": "Rome"}, "Done."], "bad")
    dispatch(["Done."], "good")
    sql("INSERT INTO heads (call, part, data) SELECT id, 'progress', '{' FROM calls WHERE execution = 1")
    sql("UPDATE calls SET status = 'RUNNING', lineage = id WHERE execution = 1")
    sql("UPDATE executions SET status = 'RUNNING' WHERE id = 1")
    with caplog.at_level(logging.ERROR, logger="strands_durable"):
        work_until_completed("good")
    assert sql("SELECT status FROM executions WHERE execution_id = 'bad'") == [("RUNNING",)]
    assert "execution_id=<bad>" in caplog.text


@contextmanager
def registered(*classes: type) -> Iterator[None]:
    for cls in classes:
        register_type(cls)
    try:
        yield
    finally:
        for cls in classes:
            del registered_types._by_name[registered_types.by_class.pop(cls).name]


def dispatch_with(execution_id: str, **invocation_state: Any) -> Any:
    spec = scripted.spec_with(script=["Done."])
    return asyncio.run(backend().dispatch(spec, "Go", execution_id=execution_id, invocation_state=invocation_state))


def test_c26_a_worker_that_has_not_registered_a_type_leaves_the_execution_to_one_that_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with registered(Hue):
        handle = dispatch_with("coloured", colour=Hue.RED)
        dispatch(["Done."], "plain")
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        work_until_completed("plain")
        work_until_completed("plain")
    lines = [line for line in caplog.messages if "execution_id=<coloured>" in line]
    assert len(lines) == 1
    assert "'Hue'" in lines[0]
    assert "strands_durable.register_type" in lines[0]
    assert status("coloured") == "PENDING"
    (record,) = [found for found in asyncio.run(connect(OFF).list()) if found.execution_id == "coloured"]
    assert record.unreadable is None, "it is not damaged"
    assert "the type 'Hue' is not registered there" in str(record.note)
    assert "coloured waits: process" in cli("ls").stdout
    with registered(Hue):
        work_until_completed("coloured")
        assert str(result(handle)) == "Done.\n"


def test_c26_a_value_that_did_not_come_back_is_refused_where_it_is_dispatched() -> None:
    class FrozenDict(dict[str, int]):
        def __hash__(self) -> int:  # type: ignore[override]
            return 1

    with pytest.raises(errors.NotSerializableError, match=r"The invocation_state cannot be recorded: .*FrozenDict"):
        dispatch_with("frozen", seen={FrozenDict(a=1)})
    assert asyncio.run(connect(OFF).list()) == []


def test_c26_many_that_cannot_be_read_do_not_hold_up_what_is_behind_them() -> None:
    for number in range(60):
        dispatch(["Done."], f"bad-{number}")
    sql("UPDATE dispatches SET spec = '{'")
    dispatch(["Done."], "good")
    work_until_completed("good")
    assert len(aside.ids(backend().store)) == 60


def test_c26_a_new_file_in_the_place_of_one_with_a_damaged_row_is_another_store() -> None:
    dispatch(["Done."], "run")
    damage("run", "truncated spec")
    dispatch(["Done."], "good")
    work_until_completed("good")
    forget_process()
    for file in Path().glob("runs.db*"):
        file.unlink()
    dispatch(["Done."], "run")
    work_until_completed("run")
    assert status("run") == "COMPLETED"


OWNERS = ["'nobody'", """'{"pid":1}'""", "CAST(x'ff00' AS TEXT)"]


@pytest.mark.parametrize("owner", OWNERS[:2])
def test_c26_an_owner_that_cannot_be_read_is_replaced_when_its_heartbeat_stops(owner: str) -> None:
    for name in ("a", "b"):
        dispatch(["Done."], name)
    sql(f"UPDATE executions SET owner = {owner}, lease_seconds = 0.2 WHERE execution_id = 'a'")
    work_until_completed("a", "b")
    assert [status(name) for name in ("a", "b")] == ["COMPLETED"] * 2


@pytest.mark.parametrize("owner", OWNERS)
def test_c26_what_has_an_owner_that_cannot_be_read_is_listed_and_removed(owner: str) -> None:
    for name in ("a", "b"):
        dispatch(["Done."], name)
    sql(f"UPDATE executions SET owner = {owner} WHERE execution_id = 'a'")
    assert {found["execution_id"] for found in json.loads(cli("ls", "--json").stdout)} == {"a", "b"}
    assert cli("rm", "a", "--yes").exit_code == 0
    assert {found["execution_id"] for found in json.loads(cli("ls", "--json").stdout)} == {"b"}
