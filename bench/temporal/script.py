"""What the agents of both sides do on Temporal, and the log by which the measuring process follows them.

A scripted model asks for one page after the other, the tool returns 2 KB, the system prompt has 2 KB. How many pages is said
in the prompt: one worker serves every size. Each step writes a line when it begins, and dies there if it was told to.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.workload import page_text

SYSTEM_PROMPT = page_text(-1)
LOG, KILL, PACE = "BENCH_TEMPORAL_LOG", "BENCH_TEMPORAL_KILL", "BENCH_TEMPORAL_PACE"
"""Environment variables of a worker: the file for its steps, the step in which it dies (``tool 5``), and how many seconds its
model takes to answer."""


@dataclass(frozen=True)
class Step:
    """A step that began, and when."""

    kind: str
    number: int
    at: float

    @property
    def name(self) -> str:
        """Name it within its run."""
        return f"{self.kind} {self.number}"


def prompt_for(cycles: int) -> str:
    """Return the prompt for a run of so many cycles."""
    return f"Read {cycles} pages."


def script(turn: int, messages: list[Any]) -> Any:
    """Answer as the model does: another page, or the end."""
    from strands_durable.testing import call

    begin("model", turn)
    cycles = int(re.findall(r"\d+", messages[0]["content"][0]["text"])[0])
    return call("read_page", page=turn) if turn < cycles else "All pages are read."


def model() -> Any:
    """Return the model of both sides: it takes its time without standing in the way of anything else, as models do."""
    from strands_durable.testing import ScriptedModel

    class Paced(ScriptedModel):
        async def stream(self, *args: Any, **given: Any) -> Any:
            await asyncio.sleep(float(os.environ.get(PACE, "0")))
            async for event in super().stream(*args, **given):
                yield event

    return Paced(script)


def read(page: int) -> str:
    """Do what the tool does."""
    begin("tool", page)
    return page_text(page)


def begin(kind: str, number: int) -> None:
    """Note that a step begins; die in it if this process is to die there."""
    with open(os.environ[LOG], "a") as log:
        log.write(f"{kind} {number} {time.time()}\n")
    if os.environ.get(KILL) == f"{kind} {number}":
        os.kill(os.getpid(), signal.SIGKILL)


def steps_in(log: Path) -> list[Step]:
    """Return the steps that have begun so far."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    fields = [line.split() for line in lines if line.endswith("\n")]  # the last one may be half written
    return [Step(kind, int(number), float(at)) for kind, number, at in fields]


def environment(log: Path, kill_in: str | None = None, pace: float = 0.0) -> Mapping[str, str]:
    """Return the environment of a worker: nothing of the bench is on the command line of a user's worker."""
    root = str(Path(__file__).resolve().parents[2])
    kept = {name: value for name, value in os.environ.items() if name != KILL}
    return {**kept, "PYTHONPATH": root, LOG: str(log), PACE: str(pace), **({KILL: kill_in} if kill_in else {})}
