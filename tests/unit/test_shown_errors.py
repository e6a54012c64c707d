"""Commands and errors of tools: which runs had some, and what to do next; and how long people took to answer."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionHandle, Retention, connect
from strands_durable._cli.tables import duration_text
from strands_durable._records.executions import ExecutionStatus
from strands_durable.testing.agents import NOWHERE, contract_agent
from tests.commands import cli

STORE = ("--store", "runs.db")
RAISES = {"tool": "book", "city": NOWHERE}
BOOKS = {"tool": "book", "city": "Rome"}


def ran(execution_id: str, *script: Any) -> ExecutionHandle:
    """Run an agent of the contract until it ends or asks."""
    backend = connect("sqlite:///runs.db")
    spec = contract_agent.spec_with(folder=".", script=list(script))
    handle = backend.sync.dispatch(spec, "Go", execution_id=execution_id)
    try:
        handle.result(30)
    except Exception:
        assert handle.status() is ExecutionStatus.FAILED
    asyncio.run(backend.close())
    return handle  # type: ignore[return-value]


def listed(*args: str) -> list[Any]:
    result = cli("ls", *args, *STORE, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_list_finds_what_completed_with_a_failed_tool_call() -> None:
    ran("fine", BOOKS, "Done.")
    ran("sorry", RAISES, "Sorry.")
    ran("failed", RAISES, {"fails_until": "fixed"})
    assert [each["execution_id"] for each in listed("--with-errors")] == ["sorry"]
    assert [each["execution_id"] for each in listed("--with-errors", "--status", "failed")] == ["failed"]
    assert {each["execution_id"]: each["tool_errors"] for each in listed()} == {"fine": 0, "sorry": 1, "failed": 1}
    assert cli("ls", "--with-errors", "--agent", "nobody", *STORE).stdout == "No matching executions.\n"
    assert "cannot be combined" in cli("ls", "--with-errors", "--waiting", *STORE).stderr


def test_a_list_with_errors_is_refused_for_no_command_that_changes_executions() -> None:
    ran("fine", BOOKS, "Done.")
    ran("sorry", RAISES, "Sorry.")
    result = cli("rm", "--with-errors", "--dry-run", "--json", *STORE)
    assert [each["execution_id"] for each in json.loads(result.stdout)] == ["sorry"]


def test_a_model_that_failed_after_a_tool_did_names_the_fork_that_runs_the_tool_again() -> None:
    ran("trip", BOOKS, RAISES, {"fails_until": "fixed"})
    (said,) = re.findall(r"^next .*$", cli("show", "trip", *STORE).stdout, re.MULTILINE)
    assert "strands-durable resume trip --backend runs.db" in said
    assert "2.0 book" in said
    assert said.endswith("strands-durable fork trip --at 3 --backend runs.db")
    Path("fixed").touch()
    fork = connect("sqlite:///runs.db?worker=off").sync.get("trip").fork(at=3, execution_id="fork")
    assert [step.label for step in fork.detail().steps] == ["model 1", "1.0 book", "model 2"]


@pytest.mark.parametrize("script", [[BOOKS, {"fails_until": "never"}], [RAISES, BOOKS, {"fails_until": "never"}]])
def test_a_model_that_failed_for_another_reason_names_no_fork(script: list[Any]) -> None:
    ran("trip", *script)
    text = cli("show", "trip", *STORE).stdout
    assert "strands-durable resume trip" in text
    assert "fork" not in text


@pytest.mark.parametrize(
    ("took", "waited", "text"),
    [(None, 0.0, ""), (2.0, 0.0, "2.0 s"), (120.0, 259_200.0, "2.0 min (waited 3.0 d)"), (0.5, 0.04, "0.5 s")],
)
def test_a_time_says_how_long_people_took_besides(took: float | None, waited: float, text: str) -> None:
    assert duration_text(took, waited) == text


def test_lists_and_details_show_both_times() -> None:
    handle = ran("trip", {"tool": "approve", "what": "x"}, "Done.")
    (found,) = listed()
    assert found["status"] == "SUSPENDED"
    assert 0 <= found["duration_seconds"] < 30
    assert found["waited_seconds"] >= 0
    assert handle.status() is ExecutionStatus.SUSPENDED


def test_both_times_stay_when_the_contents_are_removed() -> None:
    ran("trip", {"tool": "approve", "what": "x"}, "Done.")
    backend = connect("sqlite:///runs.db")
    handle = backend.sync.get("trip")
    (question,) = handle.interrupts()
    handle.respond({question.id: "a secret answer"})
    handle.result(30)
    asyncio.run(backend.close())
    (before,) = listed()
    assert before["waited_seconds"] > 0
    connect("sqlite:///runs.db?worker=off").sync.prune(Retention(contents=0))
    (after,) = listed()
    assert after["contents_removed_at"] is not None
    assert [after[name] for name in ("duration_seconds", "waited_seconds")] == [
        before[name] for name in ("duration_seconds", "waited_seconds")
    ]
    assert connect("sqlite:///runs.db?worker=off").sync.get("trip").detail().calls[0].answers == ()
    assert cli("verify", *STORE).exit_code == 0
