"""`strands-durable demo --backend lambda`, as a user runs it, and where it cannot run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.commands import COMMAND
from tests.unit.test_cli_temporal import program
from tests.unit.test_demo_temporal import BOOKINGS
from tests.waiting import until


def test_a_process_is_killed_the_next_one_resumes_and_every_side_effect_happens_once(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    begin = time.monotonic()
    ended = subprocess.run(
        [*COMMAND, "demo", "--backend", "lambda"], capture_output=True, text=True, env=environment, timeout=100
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert time.monotonic() - begin < 95  # 10 s on a machine of its own
    [killed] = re.findall(r"Process (\d+) was killed with SIGKILL inside book_hotel", ended.stdout)
    assert "2.1 book_hotel       running" in ended.stdout
    assert "2.1 book_hotel       in doubt" in ended.stdout
    assert "The function is suspended" in ended.stdout
    assert "The agent asks: Send 'Your weekend in Paris' to you@example.com? The answer: yes." in ended.stdout
    assert "Every side effect and each of the 4 model calls happened exactly once." in ended.stdout
    (folder,) = tmp_path.glob("strands-durable-demo-*")
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    by = {entry["effect"]: str(entry["process"]) for entry in ledger}
    assert sorted(entry["effect"] for entry in ledger) == sorted([*BOOKINGS, *["model call"] * 4])
    assert by["book_flight"] == killed
    assert len({by["book_flight"], by["book_hotel"], by["send_mail"]}) == 3, "each invocation is a process"
    until(lambda: not any(psutil.pid_exists(int(pid)) for pid in by.values()))


@pytest.mark.parametrize("missing", ["aws_durable_execution_sdk_python_testing", "boto3"])
def test_without_the_extra_or_the_local_runner_it_says_how_to_install_them(missing: str) -> None:
    ended = subprocess.run(
        [*program(f"sys.modules[{missing!r}] = None"), "demo --backend lambda"], capture_output=True, text=True
    )
    needed = "pip install 'strands-durable[lambda]' aws-durable-execution-sdk-python-testing\n"
    assert f"AWS's SDK or its local runner is not installed. Install both: {needed}" in ended.stderr
