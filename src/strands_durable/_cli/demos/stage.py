"""The stage of a demo whose trip is dispatched: follows it as the engine records it, and answers the agent's question."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from ..._dispatch.handles import ExecutionHandle
from ..._dispatch.ports import DurableBackend
from ..._records.executions import ExecutionStatus
from ..._records.views import ExecutionDetail
from .processes import log_of
from .screen import Recorded, Screen, rows
from .trip import (
    EXECUTION_ID,
    FOLDER,
    MODEL_CALLS,
    PATIENCE_SECONDS,
    POLL_SECONDS,
    PROMPT,
    DemoError,
    show_ledger,
    verify,
)

_OVER = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)
_STILL = (ExecutionStatus.SUSPENDED, *_OVER)


class Stage:
    """Follows the trip from its dispatch to its end. What it shows comes from the engine, as for `strands-durable show`."""

    def __init__(self, folder: Path, screen: Screen, backend: DurableBackend) -> None:
        self._folder, self._screen, self._backend = folder, screen, backend

    def check(self) -> None:
        """Raise if no process is left that could run the trip."""

    async def dispatched(self) -> ExecutionHandle:
        """Dispatch the trip."""
        os.environ[FOLDER] = str(self._folder)
        from .agents import travel_agent

        return await travel_agent.on(self._backend).dispatch_async(PROMPT, execution_id=EXECUTION_ID)

    async def answered(self, handle: ExecutionHandle, recorded: Recorded) -> ExecutionDetail:
        """Answer yes, and follow the trip to its end."""
        questions = await handle.interrupts()
        for question in questions:
            self._screen.say(f"The agent asks: {question.reason} The answer: yes.")
        self._screen.say()
        await handle.respond({question.id: "yes" for question in questions})
        with self._screen.following():
            detail = await self.followed(handle, recorded, is_over, only_new=True)
        self._screen.say()
        return detail

    async def followed(
        self,
        handle: ExecutionHandle,
        recorded: Recorded,
        is_enough: Callable[[ExecutionDetail], bool],
        *,
        only_new: bool = False,
    ) -> ExecutionDetail:
        """Show the trip as the engine has it until ``is_enough``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            detail = await handle.detail()
            shown = rows(detail, recorded)
            self._screen.update(shown[len(recorded) + 1 :] if only_new else shown)
            if is_enough(detail):
                return detail
            self.check()
            await asyncio.sleep(2 * POLL_SECONDS)
        raise DemoError(f"the trip did not get further within {PATIENCE_SECONDS:.0f} s.\n{log_of(self._folder)}")

    async def ended(self, handle: ExecutionHandle, detail: ExecutionDetail, recorded: Recorded) -> None:
        """Show the answer and the ledger; raise unless everything happened exactly once."""
        say = self._screen.say
        say(f"The agent answers: {str(await handle.result()).strip()}")
        say()
        show_ledger(self._folder, self._screen)
        verify(self._folder, detail, recorded)
        say(f"Every side effect and each of the {MODEL_CALLS} model calls happened exactly once.")
        say()


def done(detail: ExecutionDetail) -> Recorded:
    """Return the steps that have ended."""
    return {(step.key, step.attempt): step.ended_at for step in detail.steps if step.state == "done"}


def is_still(detail: ExecutionDetail) -> bool:
    """Return whether the trip has ended, or waits for an answer."""
    return detail.execution.status in _STILL


def is_over(detail: ExecutionDetail) -> bool:
    """Return whether the trip has ended."""
    return detail.execution.status in _OVER
