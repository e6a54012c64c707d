"""What looks like a secret is masked in the JSON of every command as in its text, and in tracebacks of both forms of logs."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, connect
from strands_durable._cli.json_view import execution_json
from strands_durable._cli.log_format import JsonLines, TextLines
from strands_durable._records.origins import Origin
from strands_durable.testing import ScriptedModel, call
from tests.commands import cli

URL = "postgresql://app:hunter2@db/orders"
FAILING = f"""
from typing import Any
from strands import Agent
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel

class Failing(ScriptedModel):
    async def stream(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("cannot reach {URL}")
        yield

@durable_agent
def planner() -> Agent:
    return Agent(model=Failing([]), callback_handler=None)
"""


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt(what, reason={'where': URL})}"


def ask_twice() -> None:
    Agent(
        model=ScriptedModel([[call("approve", what="one"), call("approve", what="two")], "Done."]),
        tools=[approve],
        plugins=[Durability("runs.db", execution_id="trip")],
        callback_handler=None,
    )("Go")


def test_the_questions_that_are_left_are_masked() -> None:
    ask_twice()
    asked = json.loads(cli("show", "trip", "--json", "--backend", "runs.db").stdout)["calls"][0]["questions"]
    answer = f"{asked[0]['interrupt_id']}=true"
    said = cli("respond", "trip", "--answer", answer, "--json", "--backend", "runs.db")
    assert said.exit_code == 0, said.output
    left = json.loads(said.stdout)["questions"]
    assert [each["reason"] for each in left] == [{"where": "postgresql://app:***@db/orders"}]


def test_why_an_execution_waits_or_cannot_be_read_is_masked() -> None:
    ask_twice()
    (record,) = asyncio.run(connect("runs.db").list())
    origin = Origin(execution_id="a", run=0, step=1, changed=(), by="b", forked_at=0.0, drift=(URL,))
    found = execution_json(
        replace(record, note=f"not built: {URL}", unreadable=URL, origin=origin, tags={"token": "7"})
    )
    assert "hunter2" not in json.dumps(found)
    assert found["note"] == "not built: postgresql://app:***@db/orders"
    assert found["tags"] == {"token": "7"}


def test_the_error_of_a_run_is_masked() -> None:
    Path("failing.py").write_text(FAILING)
    said = cli("run", "failing.py:planner", "Go", "--json", "--backend", "runs.db")
    assert said.exit_code == 4, said.output
    assert "hunter2" not in said.output
    assert "postgresql://app:***@db/orders" in json.loads(said.stdout)["error"]


@pytest.mark.parametrize("lines", [JsonLines(), TextLines()])
def test_the_traceback_of_any_logger_is_masked(lines: logging.Formatter) -> None:
    try:
        raise ValueError(f"cannot reach {URL}\x1b[31m")
    except ValueError:
        record = logging.LogRecord("strands.tools", logging.ERROR, "", 0, "tool failed", (), sys.exc_info())
    text = lines.format(record)
    assert "hunter2" not in text
    assert "\x1b" not in text
    assert "postgresql://app:***@db/orders" in text
    assert "Traceback" in text
    assert "test_json_secrets.py" in text
