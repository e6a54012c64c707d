"""C55 where it is hard: a changed cell is damage to one execution, which holds up neither workers nor retention."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_durable import Retention, durable_agent
from strands_durable._dispatch.registry import agents
from strands_durable._dispatch.worker import Worker
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.verification import verified
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing import ScriptedModel, forget_process
from tests.contract.test_c53_encryption import URL, change, inline, old
from tests.waiting import until_async


@durable_agent(name="c55-good")
def good() -> Agent:
    return Agent(model=ScriptedModel(["Done."]), callback_handler=None)


def flipped(cell: str) -> str:
    """Change one character of what is encrypted."""
    at = cell.index('"v":"') + 30
    return cell[:at] + ("A" if cell[at] != "A" else "B") + cell[at + 1 :]


def rows(query: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        return connection.execute(query, values).fetchall()


def changed(table: str, column: str, where: str) -> None:
    """Change a cell, with a checksum that fits."""
    forget_process()
    ((cell,),) = rows(f"SELECT {column} FROM {table} WHERE {where}")
    change(table, column, where, flipped(cell))


async def dispatched(*names: str, by: Any = good) -> None:
    for name in names:
        await by.on(SqliteBackend(URL, cipher=old())).dispatch_async("Hi", execution_id=name)


async def worked(*names: str, later: str | None = None) -> None:
    """Run a worker until these executions have completed, and then one that is dispatched ``later``."""

    async def are_completed() -> bool:
        found = rows("SELECT execution_id FROM executions WHERE status = 'COMPLETED'")
        return {*names} <= {name for (name,) in found}

    stop = asyncio.Event()
    run = asyncio.ensure_future(Worker(Path("runs.db").resolve(), cipher=old()).run(stop))
    try:
        await until_async(are_completed, 10)
        if later is not None:
            await dispatched(later)
            names = (*names, later)
            await until_async(are_completed, 10)
    finally:
        stop.set()
        await run


@pytest.mark.parametrize(("table", "column"), [("dispatches", "spec"), ("dispatches", "given"), ("calls", "input")])
def test_c55_a_changed_cell_of_one_execution_does_not_hold_up_the_others(table: str, column: str) -> None:
    asyncio.run(dispatched("changed", "second"))
    changed(table, column, "execution = 1")
    asyncio.run(worked("second", later="third"))
    catalog = Catalog("runs.db", old())
    found = {each.execution_id: each for each in catalog.executions()}
    reasons = {name: each.unreadable for name, each in found.items()}
    assert reasons == {"changed": "a row of it is damaged", "second": None, "third": None}, "its checksum does match"
    assert found["changed"].status.value == "PENDING"
    assert catalog.execution("changed").execution.unreadable, "it can be shown, too"


def test_c55_a_damaged_spec_does_not_hold_up_the_others_beside_one_that_this_worker_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @durable_agent(name="c55-elsewhere")
    def elsewhere() -> Agent:
        return good.build({})  # type: ignore[no-any-return]

    asyncio.run(dispatched("elsewhere", by=elsewhere))
    asyncio.run(dispatched("damaged", "third"))
    monkeypatch.delitem(agents, "c55-elsewhere")
    forget_process()
    ((cell,),) = rows("SELECT spec FROM dispatches WHERE execution = 2")
    rows("UPDATE dispatches SET spec = ? WHERE execution = 2", flipped(cell))
    asyncio.run(worked("third", later="fourth"))
    statuses = {each.execution_id: each.status.value for each in Catalog("runs.db", old()).executions()}
    assert statuses == {"elsewhere": "PENDING", "damaged": "PENDING", "third": "COMPLETED", "fourth": "COMPLETED"}


@pytest.mark.parametrize(
    ("table", "column", "where"),
    [("heads", "data", "part = 'progress' AND call = 1"), ("dispatches", "spec", "execution = 1")],
)
def test_c51_an_execution_with_a_changed_cell_loses_its_contents_and_so_do_the_others(
    table: str, column: str, where: str
) -> None:
    asyncio.run(dispatched("changed", "second", "third"))
    asyncio.run(worked("changed", "second", "third"))
    changed(table, column, where)
    backend = SqliteBackend(URL, cipher=old())
    found = asyncio.run(backend.prune(Retention(contents="0s")))
    assert (found.emptied, found.failed) == (3, 0)
    assert rows("SELECT count(*) FROM emptied WHERE is_done = 1") == [(3,)]
    assert asyncio.run(backend.prune(Retention(completed="0s"))).removed == 3


FORMS: dict[str, Callable[[str], str]] = {
    "more behind it": lambda cell: cell[:-1] + ',"x":"y"}',
    "another size": lambda cell: re.sub(r'"n":\d+', '"n":9', cell),
    "no reference": lambda cell: cell[: cell.index(',"blobs"')] + "}",
    "a zero before the number": lambda cell: cell.replace('"k":1', '"k":01'),
    "a number without end": lambda cell: cell.replace('"k":1', f'"k":{"1" * 5000}'),
    "a line behind it": lambda cell: cell + "\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_c55_a_cell_is_noticed_that_was_changed_outside_of_what_is_encrypted(name: str) -> None:
    inline(old())
    forget_process()
    ((cell,),) = rows("SELECT input FROM calls WHERE id = 1")
    change("calls", "input", "id = 1", FORMS[name](cell))
    problems = verified(Path("runs.db").resolve(), cipher=old()).problems
    assert ("cipher", "calls", "inline") in [(each.check, each.table, each.execution_id) for each in problems]
    assert "calls.input of row 1" in str(Catalog("runs.db", old()).execution("inline").execution.unreadable)
