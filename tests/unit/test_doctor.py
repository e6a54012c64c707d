"""The command doctor: each thing that it looks at, broken for real."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect
from strands_durable._dispatch import examination
from strands_durable.testing.temporal import TemporalServer
from tests.temporal.running import url_of

AGENTS = """
from strands import Agent
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel

@durable_agent
def planner() -> Agent:
    return Agent(model=ScriptedModel(["Done."]), system_prompt="{prompt}")
"""
STORES = Path(__file__).parents[1] / "stores"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "strands_durable", *words], capture_output=True, text=True)


def findings(*words: str, code: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return what the doctor says, by check."""
    ended = command("doctor", "--json", *words)
    assert ended.returncode == code, ended.stderr + ended.stdout
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(ended.stdout)["findings"]:
        found.setdefault(each["check"], []).append(each)
    return found


@pytest.fixture
def queued() -> None:
    """An execution that waits for a worker."""
    Path("agents.py").write_text(AGENTS.format(prompt="Plan."))
    command("run", "agents.py", "Go", "--id", "trip", "--backend", "runs.db", "--detach").check_returncode()


def test_a_store_in_order_and_files_that_can_run_what_waits(queued: None) -> None:
    found = findings("agents.py", "--backend", "runs.db")
    levels = {check: {each["level"] for each in several} for check, several in found.items()}
    assert levels.pop("file system") <= {"ok", "unknown"}
    assert levels == {
        check: {"ok"}
        for check in (
            "installed", "agents", "format", "permissions", "writable", "disk", "reachable", "workers", "questions",
            "clock", "wal", "versions",
        )
    }  # fmt: skip
    assert "strands-agents" in " ".join(each["text"] for each in found["installed"])


def test_it_changes_nothing_and_runs_nothing(queued: None) -> None:
    before = command("show", "trip", "--backend", "runs.db", "--json").stdout
    findings("agents.py", "--backend", "runs.db")
    assert command("show", "trip", "--backend", "runs.db", "--json").stdout == before


def test_a_file_that_others_can_read_is_a_problem_with_its_remedy(queued: None) -> None:
    os.chmod("runs.db", 0o644)
    (found,) = findings("--backend", "runs.db", code=1)["permissions"]
    assert found["level"] == "problem"
    assert found["remedy"].startswith("Run: chmod 600 ")
    subprocess.run(found["remedy"].removeprefix("Run: "), shell=True, check=True)
    assert findings("--backend", "runs.db")["permissions"][0]["level"] == "ok"


def test_an_old_format_is_a_warning_and_is_not_upgraded_by_looking() -> None:
    shutil.copy(STORES / "format_4.sqlite", "runs.db")
    os.chmod("runs.db", 0o600)
    before = Path("runs.db").read_bytes()
    (found,) = findings("--backend", "runs.db")["format"]
    assert (found["level"], found["text"].partition(";")[0]) == ("warning", "format 4")
    assert Path("runs.db").read_bytes() == before


@pytest.mark.parametrize("content", ["not a store", ""])
def test_a_file_that_is_no_store_is_a_problem(content: str) -> None:
    Path("runs.db").write_text(content)
    found = findings("--backend", "runs.db", code=1)
    assert [each["level"] for each in (found.get("format", []) + found.get("reachable", []))][-1] == "problem"


def test_files_with_another_version_of_the_agent_are_a_warning_that_shows_the_difference(queued: None) -> None:
    Path("agents.py").write_text(AGENTS.format(prompt="Something else."))
    (found,) = findings("agents.py", "--backend", "runs.db")["versions"]
    assert found["level"] == "warning"
    assert "'trip'" in found["text"]
    assert "--accept-drift" in found["remedy"]


def test_executions_that_cannot_run_for_the_same_reason_are_one_finding_with_a_count(queued: None) -> None:
    for number in range(6):
        command("run", "agents.py", "Go", "--id", f"trip-{number}", "--backend", "runs.db", "--detach")
    Path("agents.py").write_text(AGENTS.format(prompt="Something else."))
    (found,) = findings("agents.py", "--backend", "runs.db")["versions"]
    assert found["text"].startswith("7 executions wait, and these files cannot run them: ")
    assert "'trip'" in found["text"]
    assert found["text"].endswith("and 4 more")
    assert "strands-durable resume ID --accept-drift" in found["remedy"]


def test_executions_that_cannot_be_read_for_the_same_reason_are_one_finding(queued: None) -> None:
    for number in range(5):
        command("run", "agents.py", "Go", "--id", f"bad-{number}", "--backend", "runs.db", "--detach")
    with closing(sqlite3.connect("runs.db")) as connection:
        connection.execute("UPDATE calls SET input = '{' WHERE execution > 1")
        connection.commit()
    (found,) = findings("--backend", "runs.db", code=1)["readable"]
    assert found["text"].startswith("5 executions cannot be read: ")
    assert "and 2 more" in found["text"]
    assert "strands-durable rm ID" in found["remedy"]


def test_files_without_the_agent_are_a_warning(queued: None) -> None:
    Path("others.py").write_text(AGENTS.format(prompt="x").replace("planner", "other"))
    (found,) = findings("others.py", "--backend", "runs.db")["versions"]
    assert "no agent 'planner'" in found["remedy"]


def test_files_that_cannot_be_imported_or_built_are_reported_with_the_line() -> None:
    Path("agents.py").write_text("import nothing_of_that_name\n")
    (found,) = findings("agents.py", "--backend", "runs.db", code=1)["agents"]
    assert (found["level"], "nothing_of_that_name" in found["text"]) == ("problem", True)
    Path("agents.py").write_text(AGENTS.replace("return Agent", "raise RuntimeError('no key')\n    return Agent"))
    (found,) = findings("agents.py", "--backend", "runs.db", code=1)["agents"]
    assert (found["level"], "no key" in found["text"]) == ("warning", True)


def test_what_has_waited_for_long_is_a_warning_with_the_command(queued: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_WAIT_SECONDS", 0.0)
    found = {each.check: each for each in asyncio.run(connect("runs.db").working("off").examine())}["workers"]
    assert (found.level, "'trip'" in found.text) == ("warning", True)
    assert "strands-durable worker FILE" in found.remedy


def test_times_in_the_future_are_a_warning(queued: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_AHEAD_SECONDS", -1e9)
    found = {each.check: each for each in asyncio.run(connect("runs.db").working("off").examine())}["clock"]
    assert (found.level, "NTP" in found.remedy) == ("warning", True)


def test_a_full_disk_and_a_network_file_system_are_problems(queued: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from strands_durable.backends import _sqlite_checks as checks

    monkeypatch.setattr(checks, "_FEW_BYTES", 1 << 60)
    monkeypatch.setattr(checks, "_LOW_BYTES", 1 << 60)
    monkeypatch.setattr(checks, "_NETWORK", ("",))
    levels = {each.check: each.level for each in checks.checks_of_file(Path("runs.db").absolute())}
    assert levels["disk"] == "problem"
    assert levels["file system"] in ("problem", "unknown")


def test_a_server_that_does_not_answer_is_a_problem_and_what_it_keeps_cannot_be_checked() -> None:
    found = findings("--backend", "temporal://127.0.0.1:1", code=1)
    assert found["reachable"][0]["level"] == "problem"
    assert found["store"][0]["level"] == "unknown"
    assert any("temporalio" in each["text"] for each in found["installed"])


def test_a_queue_on_temporal_without_a_worker_is_a_warning(temporal: TemporalServer) -> None:
    found = findings("--backend", url_of(temporal))
    assert found["reachable"][0]["level"] == "ok"
    assert found["workers"][0]["level"] == "warning"


def test_an_unknown_backend_is_a_problem_and_a_password_is_not_shown() -> None:
    ended = command("doctor", "--json", "--backend", "nosuch://user:hunter2@host")
    assert ended.returncode == 1
    assert "hunter2" not in ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["level"] == "problem"


def test_a_version_that_is_not_supported_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"strands-agents": "1.61.9", "rich": "13.7.0"}
    doctor = import_module("strands_durable._cli.doctor")  # the package has the command under this name
    monkeypatch.setattr(doctor.metadata, "version", lambda name: versions.get(name, "99.0"))
    found = {each.text.partition(" ")[0]: each for each in doctor.installed("runs.db")}
    assert (found["strands-agents"].level, found["rich"].level, found["click"].level) == ("problem", "ok", "ok")
    assert "pip install" in found["strands-agents"].remedy


def test_people_get_lines_with_the_remedy_below(queued: None) -> None:
    os.chmod("runs.db", 0o644)
    ended = command("doctor", "--backend", "runs.db")
    lines = ended.stdout.splitlines()
    (problem,) = [number for number, line in enumerate(lines) if line.startswith("PROBLEM")]
    assert "chmod 600" in lines[problem + 1]
    assert ended.returncode == 1
