"""Where the traceback of a tool is shown, and where it is not: commands, the worker's log, older records, emptied ones."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import Durability, Retention, connect
from strands_durable._cli.log_format import JsonLines
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.agents import NOWHERE, contract_agent
from tests.commands import cli

STORE = ("--store", "runs.db")
URL = "sqlite:///runs.db"
HEADING = "Traceback (most recent call last):"


@tool
def book(city: str) -> str:
    """Book a hotel."""
    raise LookupError(f"\x1b[31mno hotel\r in {city}")


def ran() -> None:
    plugin = Durability("runs.db", execution_id="trip")
    script = [call("book", city="Rome"), "Sorry."]
    Agent(model=ScriptedModel(script), tools=[book], plugins=[plugin], callback_handler=None)("Go")


def shown(*args: str) -> Any:
    result = cli("show", "trip", *args, *STORE)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in args else result.stdout


def test_the_whole_of_an_execution_and_of_a_step_have_the_traceback() -> None:
    ran()
    for text in (shown("--full"), shown("1.0")):
        assert f"  trace   {HEADING}" in text
        assert "raise LookupError(" in text
        assert "\x1b[31m" not in text
    assert HEADING not in shown()


def test_json_has_it_with_each_step() -> None:
    ran()
    steps = shown("--json")["calls"][0]["steps"]
    assert [step["traceback"] is None for step in steps] == [True, False, True]
    assert steps[1]["traceback"].startswith(HEADING)
    assert shown("1.0", "--json")[0]["traceback"] == steps[1]["traceback"]


def test_a_failure_of_a_call_has_it_in_full_and_in_json() -> None:
    script = [{"fails_until": "never"}]
    backend = connect(URL)
    handle = backend.sync.dispatch(contract_agent.spec_with(folder=".", script=script), "Go", execution_id="trip")
    with pytest.raises(Exception, match="out of order"):
        handle.result(30)
    asyncio.run(backend.close())
    assert shown("--json")["calls"][0]["failures"][0]["traceback"].startswith(HEADING)
    assert shown("--full").count(HEADING) >= 2
    assert HEADING not in shown()


def test_a_record_of_an_earlier_version_has_none_and_is_shown_exported_and_imported() -> None:
    ran()
    found = connect(URL + "?worker=off").sync.get("trip").export()
    del found["rows"]["steps"][1]["error"]["traceback"]
    other = connect("sqlite:///other.db?worker=off").sync
    moved = other.import_execution(found)
    step = moved.detail().steps[1]
    assert (step.error, step.traceback) == ("LookupError: \x1b[31mno hotel\r in Rome", None)
    assert "traceback" not in moved.export()["rows"]["steps"][1]["error"]
    result = cli("verify", "--store", "other.db")
    assert result.exit_code == 0, result.output


def test_it_goes_when_retention_removes_the_contents() -> None:
    ran()
    assert b"most recent call last" in Path("runs.db").read_bytes() + Path("runs.db-wal").read_bytes()
    backend = connect(URL + "?worker=off").sync
    backend.prune(Retention(contents=0))
    assert [step.traceback for step in backend.get("trip").detail().steps] == [None, None, None]


def test_the_log_of_a_worker_has_it_once_and_masked(caplog: pytest.LogCaptureFixture) -> None:
    script = [{"tool": "book", "city": NOWHERE}, "No hotel."]
    backend = connect(URL)
    with caplog.at_level(logging.INFO, "strands_durable"):
        spec = contract_agent.spec_with(folder=".", script=script)
        backend.sync.dispatch(spec, "Go", execution_id="trip").result(30)
    asyncio.run(backend.close())
    (record,) = [record for record in caplog.records if "raised" in record.getMessage()]
    text = logging.Formatter("%(levelname)s %(message)s").format(record)
    assert text.startswith("WARNING execution_id=<trip>, step=<")
    assert f"tool book raised\n{HEADING}" in text
    assert text.endswith(f"LookupError: no hotel in {NOWHERE}, api_key=***")
    assert json.loads(JsonLines().format(record))["exception"].startswith(HEADING)


def test_the_log_of_a_script_does_not_have_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "strands_durable"):
        ran()
    assert not [record for record in caplog.records if "raised" in record.getMessage()]
