"""What the agents of both sides do, and the log by which the measuring process follows them. Imports nothing but Python.

A scripted model asks for one page after the other with 200 characters of text, and the tool returns 200 more. How many pages
is said in the prompt. Each step writes a line when it begins. A process dies where its environment says so: once inside a
tool, and then each time it has reached the head, until that has been timed often enough.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

TEXT_CHARS = 200
LAST = "All pages are read."
LOG, KILL, HEADS = "BENCH_LAMBDA_LOG", "BENCH_LAMBDA_KILL", "BENCH_LAMBDA_HEADS"
"""Environment variables of a function: the file for its steps, the tool call in which it dies, and how often the way to the
head is timed after that."""

Note = dict[str, Any]
_began = (0.0, 0.0)


def text(kind: str, number: int) -> str:
    """Return 200 characters that compress badly and differ from step to step."""
    return hashlib.shake_256(f"{kind} {number}".encode()).hexdigest(TEXT_CHARS // 2)


def prompt_for(cycles: int) -> str:
    """Return the prompt for a run of so many cycles."""
    return f"Read {cycles} pages."


def cycles_in(prompt: str) -> int:
    """Return how many cycles a prompt asks for."""
    return int(re.findall(r"\d+", prompt)[0])


def invoked(event_bytes: int) -> None:
    """Note that an invocation begins; the time to its head counts from here."""
    global _began
    _note("invoked", 0, event_bytes=event_bytes)
    _began = time.perf_counter(), time.process_time()


def at_head() -> None:
    """Note that the first body is called that is not on record; die there, if this process is to."""
    _timed("head", 0)
    found = notes(Path(os.environ[LOG]))
    heads = [note["what"] for note in found][_killed_at(found) :].count("head") if _is_killed(found) else 0
    if 0 < heads < int(os.environ.get(HEADS, "0")):
        os.kill(os.getpid(), signal.SIGKILL)


def begin(kind: str, number: int) -> None:
    """Note that a step begins; die in it the first time, if this process is to."""
    _timed(kind, number)
    if kind == "tool" and os.environ.get(KILL) == str(number) and not _is_killed(notes(Path(os.environ[LOG]))):
        _note("killed", number)
        os.kill(os.getpid(), signal.SIGKILL)


def _timed(what: str, number: int) -> None:
    wall, cpu = time.perf_counter() - _began[0], time.process_time() - _began[1]
    _note(what, number, wall_ms=1000 * wall, cpu_ms=1000 * cpu)


def _note(what: str, number: int, **more: float) -> None:
    with open(os.environ[LOG], "a") as log:
        log.write(json.dumps({"what": what, "number": number, "at": time.time(), **more}) + "\n")


def notes(log: Path) -> list[Note]:
    """Return what has begun so far."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written


def _is_killed(found: list[Note]) -> bool:
    return any(note["what"] == "killed" for note in found)


def _killed_at(found: list[Note]) -> int:
    return next(at for at, note in enumerate(found) if note["what"] == "killed")
