"""C45: an exported execution, recorded again: all of it or nothing."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import Durability, current_step, errors
from strands_durable._enginekit import export_files
from strands_durable.testing import CrashPoints, ScriptedModel, call, forget_process
from tests.commands import cli
from tests.contract.test_c43_exports import connect, export, run_a_rich_agent
from tests.processes import run

keys: list[str] = []
"""The idempotency keys of the tools that ran."""


def mark(name: str) -> str:
    step = current_step()
    assert step is not None
    keys.append(f"{name} {step.idempotency_key}")
    return f"{name} is done"


@tool
def first() -> str:
    """Do something."""
    return mark("first")


@tool
def second() -> str:
    """Do something else, if it is allowed to."""
    if Path("die").exists():
        Path("die").unlink()
        raise KeyboardInterrupt
    return mark("second")


def agent(store: str) -> Agent:
    return Agent(
        model=ScriptedModel([call("first"), call("second"), "The end."]),
        tools=[first, second],
        plugins=[Durability(store, execution_id="trip")],
        callback_handler=None,
    )


def import_(found: dict[str, Any], store: str = "other.db", **options: Any) -> Any:
    return connect(f"sqlite:///{store}?worker=off").sync.import_execution(found, **options)


def rows_in(store: str) -> int:
    """Return how many rows of executions a store has, in all tables."""
    if not Path(store).exists():
        return 0
    with sqlite3.connect(store) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        known = [name for name in names if name != "secrets" and not name.startswith("sqlite_")]
        return sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in known)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    keys.clear()
    return tmp_path


def test_c45_an_import_is_exported_as_it_was(folder: Path) -> None:
    run_a_rich_agent("before")
    run_a_rich_agent()
    import_(export("before"), execution_id="first")
    found = import_(export()).export()
    assert unnumbered(found["rows"]) == unnumbered(export()["rows"])
    alone = import_(found, store="third.db").export()
    assert import_(alone, store="fourth.db").export()["rows"] == alone["rows"]


def unnumbered(rows: dict[str, list[Any]]) -> Any:
    """Return rows without the numbers that a store gives them."""
    gone = {"id", "call", "execution", "lineage", "parent", "config", "state_of", "rowid"}
    forms = ("step", "input", "blocks")
    return {
        table: [
            {
                name: {key: item for key, item in cell.items() if key not in forms} if name == "data" else cell
                for name, cell in row.items()
                if name not in gone
            }
            for row in found
        ]
        for table, found in rows.items()
    }


def test_c45_an_unfinished_run_resumes_elsewhere_and_repeats_nothing(folder: Path) -> None:
    Path("die").touch()
    with pytest.raises(KeyboardInterrupt):
        agent("runs.db")("Go")
    assert [key.split()[0] for key in keys] == ["first"]
    forget_process()
    found = export()
    assert import_(found).status().value == "RUNNING"
    assert str(agent("other.db")("Go")).strip() == "The end."
    assert [key.split()[0] for key in keys] == ["first", "second"]
    assert import_(found, store="third.db", execution_id="trip").export()["rows"]["steps"] == found["rows"]["steps"]


def test_c45_an_import_under_its_own_id_keeps_its_idempotency_keys(folder: Path) -> None:
    Path("die").touch()
    with pytest.raises(KeyboardInterrupt):
        agent("runs.db")("Go")
    forget_process()
    found = export()
    agent("runs.db")("Go")
    forget_process()
    import_(found)
    agent("other.db")("Go")
    seconds = [key for key in keys if key.startswith("second")]
    assert len(seconds) == 2
    assert len(set(seconds)) == 1


def test_c45_an_id_that_exists_is_refused_and_nothing_is_written(folder: Path) -> None:
    run_a_rich_agent()
    before = export()["rows"]
    with pytest.raises(errors.ExecutionExistsError, match="'trip'"):
        import_(export(), store="runs.db")
    assert export()["rows"] == before
    with pytest.raises(errors.InvalidIdError):
        import_(export(), execution_id="no id")


def test_c45_a_kill_inside_an_import_leaves_nothing_or_all(folder: Path) -> None:
    run_a_rich_agent()
    found = json.dumps(export())
    for point in ("restore:before@1", "restore:after@1"):
        store = f"{point.partition(':')[2]}.db"
        assert run(_killed, os.getcwd(), found, store, point).exitcode == -signal.SIGKILL
        handles = [record.execution_id for record in connect(f"sqlite:///{store}?worker=off").sync.list()]
        assert handles == ([] if "before" in point else ["trip"])
        assert (rows_in(store) == 0) == ("before" in point)
        if "before" in point:
            import_(json.loads(found), store=store)
        copied = connect(f"sqlite:///{store}?worker=off").sync.get("trip").export()
        assert copied["rows"] == json.loads(found)["rows"]


def _killed(folder: str, found: str, store: str, point: str) -> None:
    os.chdir(folder)
    with CrashPoints().crashing(point):
        import_(json.loads(found), store=store)


def _edited(edit: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
    def edited(found: dict[str, Any]) -> Any:
        changed = copy.deepcopy(found)
        edit(changed["rows"])
        return changed

    return edited


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no export": lambda found: {"rows": {}},
    "no object": lambda found: [],
    "no rows": lambda found: {**found, "rows": None},
    "no contents": lambda found: {**found, "contents": False},
    "a later version": lambda found: {**found, "strands_durable_export": 2},
    "rows of a later format": lambda found: {**found, "format": 999},
    "no execution": _edited(lambda rows: rows["executions"].clear()),
    "two executions": _edited(lambda rows: rows["executions"].append({**rows["executions"][0], "id": 2})),
    "an id with a line break": _edited(lambda rows: rows["executions"][0].update(execution_id="a\nb")),
    "an unknown table": _edited(lambda rows: rows.update(sqlite_master=[{"name": "x"}])),
    "a secret": _edited(lambda rows: rows.update(secrets=[{"name": "hash_key", "value": "00"}])),
    "an unknown column": _edited(lambda rows: rows["steps"][0].update(colour="red")),
    "a text for a number": _edited(lambda rows: rows["steps"][0].update(attempt="one")),
    "a number for a text": _edited(lambda rows: rows["steps"][0].update(key=7)),
    "a column that is missing": _edited(lambda rows: rows["calls"][0].pop("status")),
    "an unknown status": _edited(lambda rows: rows["calls"][0].update(status="SLEEPING")),
    "a number that is too large": _edited(lambda rows: rows["steps"][0].update(attempt=2**70)),
    "two rows with one key": _edited(lambda rows: rows["steps"].append(rows["steps"][0])),
    "a step of another call": _edited(lambda rows: rows["steps"][0].update(call=99)),
    "a call of another execution": _edited(lambda rows: rows["calls"][0].update(execution=99)),
    "a message of another step": _edited(lambda rows: rows["messages"][1].update(data={"step": 99})),
    "a message that is no message": _edited(lambda rows: rows["messages"][1].update(data=[1])),
    "a form that is not JSON": _edited(lambda rows: rows["messages"][1].update(data="{")),
    "bytes that are missing": _edited(lambda rows: rows["blobs"].clear()),
    "bytes that are others": _edited(lambda rows: rows["blobs"][0].update(data={"b": "aGk="})),
    "rows that are no rows": _edited(lambda rows: rows.update(steps=[1])),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("recorded"))
        run_a_rich_agent()
        return export()


@pytest.mark.parametrize("damage", DAMAGES)
def test_c45_a_damaged_export_is_refused_by_name_and_nothing_is_written(
    damage: str, recorded: dict[str, Any], folder: Path
) -> None:
    found = DAMAGES[damage](recorded)
    with pytest.raises((errors.InvalidExportError, errors.FormatVersionError)):
        import_(found)
    assert rows_in("other.db") == 0
    Path("run.json").write_text(json.dumps(found))
    refused = cli("import", "run.json", "--store", "other.db")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: ")
    assert len(refused.stderr.splitlines()) == 1


STRANGE = [None, 0, -1, 10**6, 1.5, "", "x", "[]", "{}", "null", [], {}, {"b": "AAAA"}, [[0, 9]], True]


@pytest.mark.parametrize("seed", range(3))
def test_c45_an_export_with_strange_cells_is_refused_by_name_or_can_be_shown(
    seed: int, recorded: dict[str, Any], folder: Path
) -> None:
    chance, imported = random.Random(seed), 0
    for number in range(60):
        found = copy.deepcopy(recorded)
        rows = found["rows"][chance.choice([*found["rows"]])]
        row = chance.choice(rows)
        row[chance.choice([*row])] = chance.choice(STRANGE)
        try:
            handle = import_(found, execution_id=f"trip-{number}")
        except (errors.InvalidExportError, errors.InvalidIdError):
            continue
        imported += 1
        assert handle.detail().execution.execution_id == f"trip-{number}"
        handle.export(contents=False)
    assert 0 < imported < 60
    assert len(connect("sqlite:///other.db?worker=off").sync.list()) == imported


def test_c45_a_file_that_is_no_json_or_too_large_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("run.json").write_text("{")
    assert "not JSON" in cli("import", "run.json", "--store", "other.db").stderr
    assert "No such file" in cli("import", "missing.json", "--store", "other.db").stderr
    Path("deep.json").write_text("[" * 100_000)
    assert "not JSON" in cli("import", "deep.json", "--store", "other.db").stderr
    monkeypatch.setattr(export_files, "MAX_BYTES", 10)
    Path("large.json").write_text(" " * 11)
    assert "more than" in cli("import", "large.json", "--store", "other.db").stderr
    assert not Path("other.db").exists()


def test_c45_the_command_imports_a_file_and_says_what_comes_next(folder: Path) -> None:
    Path("die").touch()
    with pytest.raises(KeyboardInterrupt):
        agent("runs.db")("Go")
    forget_process()
    cli("export", "trip", "--store", "runs.db", "--to", "run.json")
    done = cli("import", "run.json", "--id", "trip-2", "--store", "other.db")
    assert done.exit_code == 0
    assert "Imported trip-2: RUNNING" in done.stdout
    assert "run its script again" in done.stdout
    piped = cli("import", "-", "--store", "other.db", "--json", given=Path("run.json").read_text())
    assert json.loads(piped.stdout)["execution"]["execution_id"] == "trip"


def test_c45_that_an_execution_was_imported_is_shown(folder: Path) -> None:
    run_a_rich_agent()
    import_(export(), execution_id="trip-2")
    (listed,) = json.loads(cli("ls", "--store", "other.db", "--json").stdout)
    assert listed["imported"]["execution_id"] == "trip"
    assert listed["imported"]["exported_at"][:2] == "20"
    shown = cli("show", "trip-2", "--store", "other.db").stdout
    assert "exported from trip at" in " ".join(shown.split())
    assert "ORIGIN" in cli("ls", "--store", "other.db", env={"COLUMNS": "200"}).stdout
    (here,) = json.loads(cli("ls", "--store", "runs.db", "--json").stdout)
    assert here["imported"] is None


def test_c45_an_inline_run_is_refused_by_an_engine_with_a_log(folder: Path) -> None:
    run_a_rich_agent()
    with pytest.raises(errors.UnsupportedFeatureError, match="inline"):
        connect("memory://imports").sync.import_execution(export())
