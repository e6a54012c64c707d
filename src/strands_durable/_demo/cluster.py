"""`strands-durable demo --backend temporal`: one of two workers is killed inside a booking, and the other one resumes it.

The server is real and belongs to the demo: it is stopped when the demo ends. The stage dispatches the trip, kills the worker
that runs it, and answers the agent's question. Everything it shows comes from Temporal, as for `strands-durable show`.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from .._dispatch.connect import connect
from .._dispatch.ports import DurableBackend, ExecutionHandle
from .._records.executions import ExecutionStatus
from .._records.views import ExecutionDetail
from ..errors import UnsupportedFeatureError
from .processes import log_of, started
from .screen import Recorded, Screen, rows
from .trip import (
    EXECUTION_ID,
    FOLDER,
    MODEL_CALLS,
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    POLL_SECONDS,
    PROMPT,
    DemoError,
    have_hotel_answer,
    is_inside_hotel,
    show_ledger,
    verify,
)

if TYPE_CHECKING:
    from ..testing.temporal import TemporalServer

Workers = dict[int, "subprocess.Popen[bytes]"]

_HEARTBEAT_SECONDS = 2
_OVER = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)
_STILL = (ExecutionStatus.SUSPENDED, *_OVER)


def play(folder: Path, screen: Screen) -> None:
    """Run the demo; raise unless everything happened exactly once."""
    server = _server()
    screen.say("A travel agent books a weekend in Paris. Its model is scripted; its tools write to a ledger.")
    screen.say("Starting a Temporal server and two workers. Importing Strands takes a moment.")
    with server, ExitStack() as ending:
        url = f"{server.url}?heartbeat_seconds={_HEARTBEAT_SECONDS}"
        workers = {worker.pid: worker for worker in (ending.enter_context(_worker(url, folder)) for _ in range(2))}
        asyncio.run(_Stage(folder, screen, connect(url), workers).play())


def _server() -> TemporalServer:
    try:
        from ..testing.temporal import TemporalServer
    except ImportError as error:
        instead = "Install it: pip install 'strands-durable[temporal]'"
        raise UnsupportedFeatureError("A demo on Temporal", "temporalio is not installed", instead) from error
    return TemporalServer()


def _worker(url: str, folder: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return started([sys.executable, "-m", "strands_durable._demo", str(folder), url], folder)


class _Stage:
    """Follows the trip from its dispatch to its end."""

    def __init__(self, folder: Path, screen: Screen, backend: DurableBackend, workers: Workers) -> None:
        self._folder, self._screen, self._backend, self._workers = folder, screen, backend, workers

    async def play(self) -> None:
        say = self._screen.say
        handle = await self._dispatched()
        say(
            f"Workers {' and '.join(map(str, self._workers))} are running; each step is recorded in a Temporal workflow."
        )
        say()
        recorded = await self._killed(handle)
        recorded = await self._taken_over(handle, recorded)
        detail = await self._answered(handle, recorded)
        say(f"The agent answers: {str(await handle.result()).strip()}")
        say()
        show_ledger(self._folder, self._screen)
        verify(self._folder, detail, recorded)
        say(f"Every side effect and each of the {MODEL_CALLS} model calls happened exactly once.")
        say()
        say("The demo's server is stopped. To try this on a server of your own:")
        say("  temporal server start-dev")
        say("  strands-durable worker agents.py --backend temporal://localhost:7233")

    async def _dispatched(self) -> ExecutionHandle:
        os.environ[FOLDER] = str(self._folder)
        from .agents import travel_agent

        return await travel_agent.on(self._backend).dispatch_async(PROMPT, execution_id=EXECUTION_ID)

    async def _killed(self, handle: ExecutionHandle) -> Recorded:
        """Follow the trip until a worker is inside the hotel booking, then kill that worker."""
        say = self._screen.say
        with self._screen.following():
            detail = await self._followed(handle, {}, is_inside_hotel)
            time.sleep(PAUSE_SECONDS)
            pid = _pid_of(detail)
            self._workers[pid].kill()
            self._workers.pop(pid).wait()
        recorded = _done(detail)
        say()
        say(f"Worker {pid} was killed with SIGKILL inside book_hotel, before the hotel was booked.")
        say(f"The history holds {len(recorded)} finished steps. When the killed worker has missed its heartbeat for")
        say(f"{_HEARTBEAT_SECONDS} seconds, worker {next(iter(self._workers))} resumes the trip.")
        say()
        return recorded

    async def _taken_over(self, handle: ExecutionHandle, recorded: Recorded) -> Recorded:
        """Follow the other worker until the agent asks a question."""
        have_hotel_answer(self._folder)
        with self._screen.following():
            detail = await self._followed(handle, recorded, _is_still)
        self._screen.say()
        self._screen.say(
            f"It took {len(recorded)} steps from the history and now waits for an answer, which occupies no worker."
        )
        return _done(detail)

    async def _answered(self, handle: ExecutionHandle, recorded: Recorded) -> ExecutionDetail:
        """Answer yes, and follow the trip to its end."""
        questions = await handle.interrupts()
        for question in questions:
            self._screen.say(f"The agent asks: {question.reason} The answer: yes.")
        self._screen.say()
        await handle.respond({question.id: "yes" for question in questions})
        with self._screen.following():
            detail = await self._followed(handle, recorded, _is_over, only_new=True)
        self._screen.say()
        return detail

    async def _followed(
        self,
        handle: ExecutionHandle,
        recorded: Recorded,
        is_enough: Callable[[ExecutionDetail], bool],
        *,
        only_new: bool = False,
    ) -> ExecutionDetail:
        """Show the trip as Temporal has it until ``is_enough``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            detail = await handle.detail()
            shown = rows(detail, recorded)
            self._screen.update(shown[len(recorded) + 1 :] if only_new else shown)
            if is_enough(detail):
                return detail
            if all(worker.poll() is not None for worker in self._workers.values()):
                raise DemoError(f"all workers exited unexpectedly.\n{log_of(self._folder)}")
            await asyncio.sleep(2 * POLL_SECONDS)
        raise DemoError(f"the trip did not get further within {PATIENCE_SECONDS:.0f} s.\n{log_of(self._folder)}")


def _pid_of(detail: ExecutionDetail) -> int:
    match = re.match(r"process (\d+) on ", detail.execution.owner or "")
    if match is None:
        raise DemoError("no worker is running the trip.")
    return int(match[1])


def _done(detail: ExecutionDetail) -> Recorded:
    return {(step.key, step.attempt): step.ended_at for step in detail.steps if step.state == "done"}


def _is_still(detail: ExecutionDetail) -> bool:
    return detail.execution.status in _STILL


def _is_over(detail: ExecutionDetail) -> bool:
    return detail.execution.status in _OVER
