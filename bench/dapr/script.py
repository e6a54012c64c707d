"""What the agents of both sides do on Dapr, and the log by which the measuring process follows them. Imports only Python.

A scripted model asks for one page after the other with 200 characters of text, and the tool returns 200 more. How many pages is
said in the prompt. Each step writes a line when it begins. The tool call that the environment names kills its process, once.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from bench.aws_lambda.script import LAST, TEXT_CHARS, cycles_in, prompt_for, text

__all__ = ["KILL", "LAST", "LOG", "TEXT_CHARS", "Note", "begin", "cycles_in", "notes", "prompt_for", "text"]

LOG, KILL = "BENCH_DAPR_LOG", "BENCH_DAPR_KILL"
"""Environment variables of a worker: the file for its steps, and the tool call in which it dies."""

Note = dict[str, Any]


def begin(kind: str, number: int) -> None:
    """Note that a step begins; die in it the first time, if this process is to."""
    _note(kind, number)
    is_killed = (
        any(note["what"] == "killed" for note in notes(Path(os.environ[LOG]))) if _is_last(kind, number) else True
    )
    if not is_killed:
        _note("killed", number)
        os.kill(os.getpid(), signal.SIGKILL)


def _is_last(kind: str, number: int) -> bool:
    return kind == "tool" and os.environ.get(KILL) == str(number)


def _note(what: str, number: int) -> None:
    entry = {"what": what, "number": number, "at": time.time(), "cpu_s": time.process_time(), "pid": os.getpid()}
    with open(os.environ[LOG], "a") as log:
        log.write(json.dumps(entry) + "\n")


def notes(log: Path) -> list[Note]:
    """Return what has begun so far."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written
