"""Small things that mislead: empty ids, null as an answer, timeouts that are no crashes, damaged files, secrets in URLs."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import Durability, ToolPolicy, durable_agent, errors
from strands_durable._cli import worker
from strands_durable._enginekit.payloads import PayloadStore
from strands_durable.testing import ScriptedModel, call
from tests.commands import AGENTS, Terminal, cli
from tests.script import in_new_process

SECRET = "temporal://localhost:1?payloads=s3://key:hush@bucket/x"


def questions(execution_id: str = "trip", *store: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("show", execution_id, "--json", *store).stdout)["calls"][0][
        "questions"
    ]
    return found


def test_an_empty_id_is_refused_and_not_taken_for_none() -> None:
    for given in ("", " ", "a b", "../x"):
        result = cli("run", f"{AGENTS}:planner", "Go", "--id", given)
        assert result.exit_code == 2
        assert "is not a valid execution_id" in result.stderr
    assert not Path(".strands").exists(), "nothing was started"

    @durable_agent(name="careful-empty")
    def empty() -> Agent:
        return Agent(model=ScriptedModel(["Hi."]), callback_handler=None)

    with pytest.raises(errors.InvalidIdError):
        empty("Go", invocation_state={"execution_id": ""})


def test_null_is_refused_as_an_answer() -> None:
    cli("run", f"{AGENTS}:asker", "Go", "--id", "trip")
    (question,) = questions()
    for given in ("null", f"{question['interrupt_id']}=null"):
        result = cli("respond", "trip", "--answer", given)
        assert result.exit_code == 2
        assert 'null is not an answer: Strands would ask again. Answer false, "" or a text.' in result.stderr
    assert questions() == [question]
    assert cli("respond", "trip", "--answer", "false").exit_code == 0


def test_null_that_is_typed_is_asked_again() -> None:
    cli("run", f"{AGENTS}:asker", "Go", "--id", "trip")
    terminal = Terminal("respond", "trip")
    terminal.read_until("Answer: ")
    terminal.type("null\n")
    terminal.read_until("null is not an answer")
    terminal.type("yes\n")
    assert terminal.end() == 0


@tool
def slow() -> str:
    """Take longer than it may."""
    time.sleep(0.3)
    return "done"


def build(policy: ToolPolicy) -> Agent:
    return Agent(
        model=ScriptedModel([call("slow"), "Given up."]),
        tools=[slow],
        plugins=[Durability("runs.db", execution_id="trip", tool_policies={"slow": policy})],
        callback_handler=None,
    )


def test_a_tool_that_took_too_long_is_not_called_a_crash() -> None:
    agent = build(ToolPolicy(timeout=0.05, in_doubt="fail"))
    agent("Go")
    said = json.dumps(agent.messages)
    assert "did not answer within 0.05 s" in said
    assert "crash" not in said


def test_a_question_about_a_timeout_says_so_and_shows_which_answers_it_takes() -> None:
    store = ("--store", "runs.db")
    result: Any = build(ToolPolicy(timeout=0.05, in_doubt="ask"))("Go")
    assert "It had started, and did not answer within 0.05 s." in result.interrupts[0].reason["question"]
    taken = '"retry", "fail" or {"result": ...}'
    assert f"answers: {taken}" in cli("show", "trip", *store).stdout
    assert f"answers: {taken}" in cli("respond", "trip", *store).stderr
    assert f"answers: {taken}" in cli("ls", "--waiting", *store).stdout
    assert questions("trip", *store)[0]["answers"] == taken
    wrong = cli("respond", "trip", "--answer", '"maybe"', *store)
    assert wrong.exit_code == 1
    assert f"'maybe' is not a valid answer: use {taken}" in wrong.stderr
    assert f"Answer interrupt_id {result.interrupts[0].id} again." in wrong.stderr


def test_a_damaged_file_is_not_called_safe() -> None:
    in_new_process([call("book", city="Rome"), "Booked."], ["Book"]).checked()
    with sqlite3.connect("runs.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(Path("runs.db").read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    Path("runs.db").write_bytes(data)
    result = cli("ls", "--store", "runs.db")
    assert result.exit_code == 1
    assert "damaged" in result.stderr
    assert "What was recorded may be lost" in result.stderr
    assert "safe" not in result.stderr


# Secrets in URLs


def test_a_password_in_a_url_is_in_no_command_line_and_in_no_message() -> None:
    work = worker.Work(files=("agents.py",), url=SECRET, concurrency=1, drain_seconds=1, log_level=20, is_trial=False)
    assert not [word for word in work.trial_command if "hush" in word or "temporal://" in word]
    refused = cli("ls", "--backend", SECRET)
    assert refused.exit_code == 1
    assert "hush" not in refused.output
    assert "hush" not in cli("show", "x", "--backend", SECRET).output
    assert "hush" not in cli("ls", "--backend", "sqlite:///x.db?password=hush").output


def test_the_place_for_payloads_can_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from strands_durable.backends.temporal._url import TemporalConfig

    monkeypatch.setenv("STRANDS_DURABLE_PAYLOADS", "s3://key:hush@bucket/x")
    assert TemporalConfig.of("temporal://host").payloads == "s3://key:hush@bucket/x"
    assert TemporalConfig.of("temporal://host?payloads=file:///shared").payloads == "file:///shared"
    assert "hush" not in str(TemporalConfig.of("temporal://host"))
    assert "hush" not in PayloadStore("s3://key:hush@bucket/x?secret=hush")._place
