"""Logs as JSON: one object a line, with the facts of a log call as fields, and masked as the text is."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strands_durable._cli.log_format import JsonLines
from strands_durable._records.logs import safe_logger

AGENTS = """
from strands import Agent, tool
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel, call

@tool
def book() -> str:
    "Book."
    return "booked"

@durable_agent
def planner() -> Agent:
    return Agent(model=ScriptedModel([call("book"), "Done."]), tools=[book])
"""


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Any:
    """Return a logger, and a function that returns what it has logged, as objects."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    logger, handler = safe_logger("tests.json_logs"), Kept()
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    yield logger, lambda: [json.loads(line) for line in found]
    logger.removeHandler(handler)


def test_facts_are_fields_and_numbers_stay_numbers(lines: Any) -> None:
    logger, read = lines
    logger.warning(
        "execution_id=<%s>, step=<%s>, attempt=<%d>, seconds=<%g> | step %s", "trip", "a#0/1", 2, 0.5, "replayed"
    )
    (found,) = read()
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "WARNING", "logger": "tests.json_logs", "message": "step replayed",
        "execution_id": "trip", "step": "a#0/1", "attempt": 2, "seconds": 0.5,
    }  # fmt: skip


def test_a_name_that_is_an_argument_is_a_field_too(lines: Any) -> None:
    logger, read = lines
    logger.warning("execution_id=<%s>, %s=<%s> | %s in doubt is run again", "trip", "tool", "book", "tool")
    assert (read()[0]["tool"], read()[0]["message"]) == ("book", "tool in doubt is run again")


@pytest.mark.parametrize("template", ["plain text %s", "half=<%s | %s", "a=<%s>, b | text", "no arguments | here %s"])
def test_any_other_record_is_its_message(lines: Any, template: str) -> None:
    logger, read = lines
    logger.warning(template, *["x"] * template.count("%s"))
    assert read()[0]["message"] == template.replace("%s", "x")


def test_secrets_and_line_breaks_are_masked_and_a_traceback_is_one_line(lines: Any) -> None:
    logger, read = lines
    try:
        raise ValueError("https://user:hunter2@example.com/")
    except ValueError as error:
        logger.exception("execution_id=<%s>, error=<%s> | failed", "a\nforged", error)
    (found,) = read()
    assert "hunter2" not in json.dumps(found)
    assert "\n" not in found["execution_id"]
    assert found["exception"].startswith("Traceback")


def test_a_field_does_not_replace_what_every_line_has(lines: Any) -> None:
    logger, read = lines
    logger.warning("time=<%s>, level=<%s> | text", "never", "high")
    assert (read()[0]["level"], read()[0]["level_"], read()[0]["time_"]) == ("WARNING", "high", "never")


@pytest.mark.parametrize(
    ("options", "variables"), [(["--log-format", "json"], {}), ([], {"STRANDS_DURABLE_LOG_FORMAT": "json"})]
)
def test_run_logs_json_if_an_option_or_the_environment_says_so(options: list[str], variables: dict[str, str]) -> None:
    Path("agents.py").write_text(AGENTS)
    command = [
        sys.executable,
        "-m",
        "strands_durable",
        "run",
        "agents.py:planner",
        "Go",
        "--id",
        "trip",
        "--backend",
        "runs.db",
    ]
    env = {**os.environ, **variables}
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=True, env=env)
    assert ended.stdout == "Done.\n"
    found = [json.loads(line) for line in ended.stderr.splitlines()]
    assert {"claimed", "execution completed"} <= {
        each["message"] for each in found if each.get("execution_id") == "trip"
    }
