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


def _step(kind: str, **cells: Any) -> Edit:
    """Return what changes cells of the first step of a kind."""

    def edit(rows: Rows) -> None:
        next(row for row in rows["steps"] if row["kind"] == kind).update(cells)

    return edit


DEEP = "[" * 900 + "]" * 900
UNREADABLE: dict[str, Edit] = {
    "a number that leaves none to count on": _step("tool", number=2**63 - 1),
    "an attempt that leaves none to count on": _set("calls", attempt=2**63 - 1),
    "a place in the log that leaves none": _set("messages", -1, seq=2**63 - 1),
    "a time that is infinite": _set("executions", created_at=float("inf")),
    "a time that is no number": _set("executions", created_at=float("nan")),
    "a time after the last year": _set("calls", started_at=1e300),
    "a time before the first": _set("steps", started_at=-1e300),
    "a time of 400 digits": _set("executions", updated_at=10**400),
    "an unknown status of a step": _step("tool", status="zzz"),
    "an unknown phase": _head(phase="zzz"),
    "an unknown phase to resume in": _head(resume="waiting"),
    "an ordinal that is a text": _head(ordinal="x"),
    "no cycles": _head(cycles=[]),
    "ranges that are no list": _head(ranges=5),
    "ranges that are too long": _head(ranges=[[0, 2**70]]),
    "a field of a head that is unknown": _head(colour="red"),
    "an agent that is a number": _part("agent", "5"),
    "an origin that is none": _part("origin", {"x": 1}),
    "a note of an import": _part("imported", {"x": 1}),
    "a message that is a number": _set("messages", data={"message": 5}),
    "a message without a form": _set("messages", data={}),
    "a message of a list of steps": _set("messages", 1, data={"step": [1]}),
    "a message of a tool step": _set("messages", 1, data={"step": 2}),
    "a message of a list of inputs": _set("messages", data={"input": [1], "id": None}),
    "blocks that are a number": _set("messages", data={"blocks": 5, "id": None}),
    "blocks that are true": _set("messages", data={"blocks": [True], "id": None}),
    "a result of a tool without a result": _step("tool", result={"x": 1}),
    "a result of a model that is missing": _step("model", result=None),
    "a result of a model that is a list": _step("model", result="[]"),
    "an error that is a number": _add("failures", {"rowid": 1, "call": 1, "attempt": 1, "error": "5", "at": 1.0}),
    "a place in the loop that is a number": _step("model", loop="5"),
    "a usage of texts": _step("model", usage={"inputTokens": "x"}),
    "a configuration that is a list": _set("configs", data=[]),
    "a configuration without a model": _set("configs", data={}),
    "a state under no key": _add("state", {"call": 1, "key": "not JSON", "value": "5"}),
    "a beginning that is a number": _set("calls", base="5"),
    "a result that is a number": _set("calls", result="5"),
    "an input that is nested too deeply": _set("calls", input=DEEP),
    "an input of an unknown type": _set("calls", input={"$": "zzz", "v": 5}),
    "an input that is no date": _set("calls", input={"$": "datetime", "v": 5}),
    "an input that is no number": _set("calls", input="NaN"),
    "half a character": _set("steps", name="\ud800"),
    "a call that is done, by its head": _head(phase="done"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_c45_what_could_not_be_resumed_is_refused(what: str, recorded: dict[str, Any], folder: Path) -> None:
    refused(edited(recorded, UNREADABLE[what]))


@pytest.mark.parametrize(
    "damage", [{"format": 3}, {"format": True}, {"execution_id": "another"}, {"rows": {"executions": [{1: 2}]}}]
)
def test_c45_a_damaged_frame_is_refused_by_name(damage: dict[str, Any], recorded: dict[str, Any], folder: Path) -> None:
    with pytest.raises((errors.InvalidExportError, errors.FormatVersionError)):
        import_({**recorded, **damage})
    assert rows_in("other.db") == 0


def test_c45_what_is_no_export_at_all_is_refused_by_name(folder: Path) -> None:
    circle: dict[str, Any] = {"strands_durable_export": 1, "format": 6, "execution_id": "trip", "contents": True}
    circle["rows"] = {"steps": [{"result": circle}]}
    for found in (5, "text", None, [1], circle):
        with pytest.raises(errors.InvalidExportError):
            import_(found)  # type: ignore[arg-type]


def test_c45_what_is_imported_as_it_was_resumes(recorded: dict[str, Any], folder: Path) -> None:
    import_(recorded)
    assert str(agent("other.db")("Go")).strip() == "The end."
