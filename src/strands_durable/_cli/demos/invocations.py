"""`strands-durable demo --backend lambda`: a process of a durable function is killed inside a booking, and the next resumes it.

AWS's local runner invokes the function, each time in a new process. The stage dispatches the trip, kills the process that runs
it, and answers the agent's question. Everything it shows comes from the runner, as for `strands-durable show`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ..._dispatch.connect import connect
from ..._dispatch.handles import ExecutionHandle
from ...errors import UnsupportedFeatureError
from .processes import log_in, log_of
from .screen import Recorded, Screen
from .stage import Stage, done, is_still
from .trip import FOLDER, PATIENCE_SECONDS, PAUSE_SECONDS, POLL_SECONDS, DemoError, have_hotel_answer, is_inside_hotel

if TYPE_CHECKING:
    from ...testing.aws_lambda import LocalLambda

_FUNCTION = "trips"
_RETRY_SECONDS = 1.0
_NEEDS = "'strands-durable[lambda]' aws-durable-execution-sdk-python-testing"


def play(folder: Path, screen: Screen) -> None:
    """Run the demo; raise unless everything happened exactly once."""
    os.environ[FOLDER] = str(folder)  # before the function's process starts
    aws = _runner(folder)
    screen.say("A travel agent books a weekend in Paris. Its model is scripted; its tools write to a ledger.")
    screen.say("Starting AWS's local runner and a durable function. Importing Strands takes a moment.")
    with aws:
        asyncio.run(_Function(folder, screen, aws).play())


def _runner(folder: Path) -> LocalLambda:
    try:
        from ...testing.aws_lambda import LocalLambda
    except ImportError as error:
        instead = f"Install both: pip install {_NEEDS}"
        raise UnsupportedFeatureError(
            "A demo on AWS Lambda", "AWS's SDK or its local runner is not installed", instead
        ) from error
    handler = f"{__package__}.function:handler"
    return LocalLambda({_FUNCTION: handler}, retry_seconds=_RETRY_SECONDS, log=log_in(folder))


class _Function(Stage):
    """A function with a process for each invocation, one of which is killed."""

    def __init__(self, folder: Path, screen: Screen, aws: LocalLambda) -> None:
        super().__init__(folder, screen, connect(aws.url(_FUNCTION)))
        self._server = psutil.Process(aws.function_pid(_FUNCTION))

    async def play(self) -> None:
        say = self._screen.say
        handle = await self.dispatched()
        say("Each invocation of the function is a process; each step is recorded as a durable operation.")
        say()
        recorded = await self._killed(handle)
        recorded = await self._invoked_again(handle, recorded)
        detail = await self.answered(handle, recorded)
        await self.ended(handle, detail, recorded)
        say("The demo's runner is stopped. To deploy an agent of your own as a durable function on AWS:")
        say("  handler = lambda_handler(travel_agent)")

    def check(self) -> None:
        """Raise if there is no function any more."""
        if not self._server.is_running():
            raise DemoError(f"the function's process exited unexpectedly.\n{log_of(self._folder)}")

    async def _killed(self, handle: ExecutionHandle) -> Recorded:
        """Follow the trip until an invocation is inside the hotel booking, then kill its process."""
        say = self._screen.say
        with self._screen.following():
            detail = await self.followed(handle, {}, is_inside_hotel)
            time.sleep(PAUSE_SECONDS)
            pid = self._invocation()
            os.kill(pid, signal.SIGKILL)
        recorded = done(detail)
        say()
        say(f"Process {pid} was killed with SIGKILL inside book_hotel, before the hotel was booked.")
        say(f"The execution has {len(recorded)} finished steps on record. The runner notices that the process died,")
        say("and invokes the function again, in a new process.")
        say()
        return recorded

    async def _invoked_again(self, handle: ExecutionHandle, recorded: Recorded) -> Recorded:
        """Follow the next invocation until the agent asks a question and the function has returned."""
        have_hotel_answer(self._folder)
        with self._screen.following():
            detail = await self.followed(handle, recorded, is_still)
        await self._until_nothing_runs()
        say = self._screen.say
        say()
        say(f"It took {len(recorded)} steps from the record and asks a question. The function is suspended: until it")
        say("is answered, no process runs.")
        return done(detail)

    async def _until_nothing_runs(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._running():
            if time.monotonic() > deadline:
                raise DemoError(f"the function runs although the agent waits.\n{log_of(self._folder)}")
            await asyncio.sleep(POLL_SECONDS)

    def _invocation(self) -> int:
        running = self._running()
        if len(running) != 1:
            raise DemoError(f"one invocation should run, not {len(running)}.\n{log_of(self._folder)}")
        return running[0]

    def _running(self) -> list[int]:
        """Return the processes of invocations that run now."""
        found = []
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            found = [child.pid for child in self._server.children() if child.status() != psutil.STATUS_ZOMBIE]
        return found
