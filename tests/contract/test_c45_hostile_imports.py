"""C45: an export that was edited by hand or by an attacker changes no other execution, and leaves nothing that cannot run."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_durable import Durability, errors
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import ScriptedModel, call, forget_process
from tests.commands import cli
from tests.contract.test_c43_exports import connect, export
from tests.contract.test_c45_imports import first, import_, rows_in, second

Rows = dict[str, list[Any]]
Edit = Callable[[Rows], Any]


def agent(store: str, execution_id: str = "trip") -> Agent:
    return Agent(
        model=ScriptedModel([call("first"), call("second"), "The end."]),
        tools=[first, second],
        system_prompt="Be kind.",
        plugins=[Durability(store, execution_id=execution_id)],
        callback_handler=None,
    )


def interrupted(store: str, execution_id: str = "trip") -> None:
    """Run an agent until it dies in its second tool."""
    Path("die").touch()
    with pytest.raises(KeyboardInterrupt):
        agent(store, execution_id)("Go")
    forget_process()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_c45_what_an_import_says_of_its_agent_is_not_taken_for_that_of_another(folder: Path) -> None:
    agent("runs.db")("Go")
    forget_process()
    found = export()
    found["rows"]["configs"][0]["data"]["system_prompt"] = "Be evil."
    import_(found, execution_id="evil")
    interrupted("other.db", "victim")
    assert str(agent("other.db", "victim")("Go")).strip() == "The end."
    copied = connect("sqlite:///other.db?worker=off").sync.get("victim").export()
    assert [row["data"]["system_prompt"] for row in copied["rows"]["configs"]] == [[{"text": "Be kind."}]]
    assert cli("verify", "--store", "other.db").exit_code == 0


def test_c45_a_config_under_the_digest_of_another_is_found_by_verify(folder: Path) -> None:
    agent("runs.db")("Go")
    forget_process()
    store, _ = stores.open(Path(os.path.realpath("runs.db")))
    with store.transaction("test") as connection:
        connection.update("configs", {"data": '{"model": "evil"}'}, "1")
    checked = cli("verify", "--store", "runs.db")
    assert checked.exit_code == 1
    assert "not what its digest was made of" in checked.stdout


def _set(table: str, place: int = 0, **cells: Any) -> Edit:
    """Return what changes cells of a row."""
    return lambda rows: rows[table][place].update(cells)


def _head(**cells: Any) -> Edit:
    """Return what changes fields of where a call stands."""

    def edit(rows: Rows) -> None:
        (row,) = [row for row in rows["heads"] if row["part"] == "progress"]
        row["data"].update(cells)

    return edit


def _part(part: str, data: Any) -> Edit:
    """Return what replaces a part of a head, or adds one."""

    def edit(rows: Rows) -> None:
        rows["heads"] = [row for row in rows["heads"] if row["part"] != part]
        rows["heads"].append({"call": rows["calls"][0]["id"], "part": part, "data": data})

    return edit


def _add(table: str, row: dict[str, Any]) -> Edit:
    return lambda rows: rows.setdefault(table, []).append(row)


def _again(table: str, **cells: Any) -> Edit:
    """Return what adds a row like the first one."""
    return lambda rows: rows[table].append({**rows[table][0], **cells})


OF_A_STORE: dict[str, Edit] = {
    "a count of rows": _set("calls", kept=99),
    "a hash of an input": _set("calls", input_hash="00"),
    "an owner": _set("executions", owner="me"),
    "a fence": _set("executions", fence=7),
    "a time of a lease": _set("executions", lease_seconds=1e9),
    "a number of a row": _set("executions", rowid=2**63 - 1),
    "a number of a step's row": _set("steps", rowid=7),
    "a hold": _add("holds", {"execution": 1, "at": 1.0, "by": "me"}),
    "removed contents": _add("emptied", {"execution": 1, "at": 1.0, "is_done": 1}),
    "a pass of retention": _add("passes", {"name": "x", "until": 1.0, "at": 1.0, "removed": 1, "emptied": 0}),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the export of a run that has come to its second tool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("recorded"))
        interrupted("runs.db")
        return export()


def edited(found: dict[str, Any], edit: Edit) -> dict[str, Any]:
    changed = copy.deepcopy(found)
    edit(changed["rows"])
    return changed


def refused(found: dict[str, Any]) -> str:
    """Return why an export is refused, by the function and by the command; nothing of it was written."""
    with pytest.raises(errors.InvalidExportError) as raised:
        import_(found)
    assert rows_in("other.db") == 0
    Path("run.json").write_text(json.dumps(found))
    shown = cli("import", "run.json", "--store", "other.db")
    assert (shown.exit_code, len(shown.stderr.splitlines())) == (1, 1)
    return str(raised.value)


@pytest.mark.parametrize("what", OF_A_STORE)
def test_c45_what_belongs_to_a_store_is_refused_by_name(what: str, recorded: dict[str, Any], folder: Path) -> None:
    assert re.search("(which|that) an export does not have", refused(edited(recorded, OF_A_STORE[what])))


def _with_run(run: int) -> Edit:
    """Return what moves the execution and its calls to a run."""

    def edit(rows: Rows) -> None:
        rows["executions"][0]["run"] = run
        rows["calls"][0]["run"] = run

    return edit


OUT_OF_ORDER: dict[str, Edit] = {
    "a run that has no calls": _set("executions", run=2_000_000),
    "a run before the last": _set("executions", run=-1),
    "a run of a call": _set("calls", run=7),
    "runs that are missing": _with_run(2),
    "a step twice": _again("steps", id=999),
    "a call twice": _again("calls", id=999),
    "a number twice": _set("steps", 1, number=1),
    "a number below one": _set("steps", 1, number=-5),
    "the number zero": _set("steps", 1, number=0),
    "a call inside itself": lambda rows: rows["calls"][0].update(parent=rows["calls"][0]["id"]),
    "a state of its own": lambda rows: rows["calls"][0].update(state_of=rows["calls"][0]["id"]),
    "another status than its call": _set("executions", status="SUSPENDED"),
    "cancelled with an open call": _set("executions", status="CANCELLED"),
    "the head of another status": _set("calls", status="COMPLETED"),
}


@pytest.mark.parametrize("what", OUT_OF_ORDER)
def test_c45_rows_that_do_not_fit_each_other_are_refused(what: str, recorded: dict[str, Any], folder: Path) -> None:
    refused(edited(recorded, OUT_OF_ORDER[what]))
