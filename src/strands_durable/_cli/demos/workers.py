"""The stage of a demo with two workers: one of them is killed inside a booking, and the other one resumes it.

The stage dispatches the trip, kills the worker that runs it, and answers the agent's question. Everything it shows comes from
the engine, as for `strands-durable show`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ..._dispatch.handles import ExecutionHandle
from ..._dispatch.ports import DurableBackend
from ..._records.views import ExecutionDetail
from .processes import log_of, started
from .screen import Recorded, Screen
from .stage import Stage, done, is_still
from .trip import PAUSE_SECONDS, DemoError, have_hotel_answer, is_inside_hotel

Workers = dict[int, "subprocess.Popen[bytes]"]


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a demo says about its engine."""

    recorded_in: str
    record: str
    missed: str
    """When another worker resumes, as two lines may say it, up to a comma."""
    own: tuple[str, ...]
    """How to try it on a server of one's own."""


def worker(url: str, folder: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start a worker."""
    return started([sys.executable, "-m", "strands_durable._cli.demos", str(folder), url], folder)


class TwoWorkers(Stage):
    """Two workers, one of which is killed."""

    def __init__(self, folder: Path, screen: Screen, backend: DurableBackend, workers: Workers, words: Words) -> None:
        super().__init__(folder, screen, backend)
        self._workers, self._words = workers, words

    async def play(self) -> None:
        """Run the demo; raise unless everything happened exactly once."""
        say = self._screen.say
        handle = await self.dispatched()
        pids = " and ".join(map(str, self._workers))
        say(f"Workers {pids} are running; each step is recorded in {self._words.recorded_in}.")
        say()
        recorded = await self._killed(handle)
        recorded = await self._taken_over(handle, recorded)
        detail = await self.answered(handle, recorded)
        await self.ended(handle, detail, recorded)
        for line in self._words.own:
            say(line)

    def check(self) -> None:
        """Raise if no worker is left."""
        if all(worker.poll() is not None for worker in self._workers.values()):
            raise DemoError(f"all workers exited unexpectedly.\n{log_of(self._folder)}")

    async def _killed(self, handle: ExecutionHandle) -> Recorded:
        """Follow the trip until a worker is inside the hotel booking, then kill that worker."""
        say = self._screen.say
        with self._screen.following():
            detail = await self.followed(handle, {}, is_inside_hotel)
            time.sleep(PAUSE_SECONDS)
            pid = _pid_of(detail)
            self._workers[pid].kill()
            self._workers.pop(pid).wait()
        recorded = done(detail)
        say()
        say(f"Worker {pid} was killed with SIGKILL inside book_hotel, before the hotel was booked.")
        other = next(iter(self._workers))
        say(
            f"{self._words.record} holds {len(recorded)} finished steps. {self._words.missed}, worker {other} resumes the trip."
        )
        say()
        return recorded

    async def _taken_over(self, handle: ExecutionHandle, recorded: Recorded) -> Recorded:
        """Follow the other worker until the agent asks a question."""
        have_hotel_answer(self._folder)
        with self._screen.following():
            detail = await self.followed(handle, recorded, is_still)
        self._screen.say()
        record = self._words.record[0].lower() + self._words.record[1:]
        self._screen.say(
            f"It took {len(recorded)} steps from {record} and now waits for an answer, which occupies no worker."
        )
        return done(detail)


def _pid_of(detail: ExecutionDetail) -> int:
    match = re.match(r"process (\d+) on ", detail.execution.owner or "")
    if match is None:
        raise DemoError("no worker is running the trip.")
    return int(match[1])
