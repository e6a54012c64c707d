"""What steers an execution that runs in this process: why nothing more may start, who opens the gate, which tools still run.

The lease and the journal report facts: somebody asked to cancel, a step has ended. What follows from them is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .._journal.lease import Lease
from .._journal.sqlite.journal import Journal
from .._records.calls import CallRecord
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.step_gate import StepGate
from ..errors import DurableError, ExecutionCancelledError
from .running_tools import RunningTools

logger = safe_logger(__name__)


class ExecutionControl:
    """Steers one execution that this process owns, and writes to its journal."""

    def __init__(self, lease: Lease, *, is_alone: bool = False) -> None:
        self.lease, self.journal = lease, Journal(lease, self)
        self.halt: DurableError | None = None
        """Why no step may start any more: the execution was cancelled, or its worker is to stop."""
        self.gate: StepGate | None = None
        """Decides when a step may run, where a commit is not enough."""
        self.is_alone = is_alone
        """True for a worker that runs nothing beside this execution, to see whether it is what kills workers."""
        self.on_progress: Callable[[], None] | None = None
        """To be called with the first step that ends under this lease."""
        self.waits = 0
        """How many of its steps wait for other executions, and do nothing themselves."""
        self.tools = RunningTools(lease.store.path, lease.execution_id)
        """The sync tools that run under the lease, each in a thread: it is kept until they have ended."""

    @property
    def execution_id(self) -> str:
        """The execution."""
        return self.lease.execution_id

    # What the journal reports

    def cancel_requested(self) -> None:
        """Let nothing more start: the execution is cancelled. The error is one and the same, by which a call knows it again."""
        if not isinstance(self.halt, ExecutionCancelledError):
            self.halt = ExecutionCancelledError(self.execution_id)

    def step_ended(self) -> None:
        """Clear an execution that is suspected of killing workers: one of its steps has ended."""
        if self.on_progress is not None:
            self.on_progress()

    # What the process decides

    def stop(self, why: DurableError) -> None:
        """Let nothing more start. The first reason counts."""
        self.halt = self.halt or why

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Make room while a step waits for another execution, which may need this very worker; so far nothing was killed."""
        cleared = self.on_progress
        if cleared is not None:
            with suppress(DurableError), self.journal.transaction("lease.clear", lasting=False):
                cleared()
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    # How it ends

    def end_call(self, call: CallRecord, status: ExecutionStatus, result: Any = None) -> None:
        """Record how a call ended, or that it waits, as part of a transaction."""
        if call.parent == 0 and status is ExecutionStatus.SUSPENDED and self.halt is not None:
            raise self.halt  # it does not wait for answers that nobody may use
        if call.parent == 0 and status is ExecutionStatus.FAILED and isinstance(self.halt, ExecutionCancelledError):
            self.journal.cancel()  # what it failed with is on record; what was asked for is what it is
            return
        is_running = status is not ExecutionStatus.COMPLETED and bool(self.tools.names)  # a step in doubt
        self.journal.end_call(call, status, result, keeps_lease=is_running)

    def cancel(self) -> None:
        """Record that the execution was cancelled."""
        with self.journal.transaction("call.cancelled"):
            self.journal.cancel()

    def release(self) -> None:
        """Give the execution back as it is, where that is possible and was not done with the end of its call."""
        if self.lease.dropped:
            return
        try:
            with self.journal.transaction("lease.release"):
                self.lease.drop()
        except DurableError as error:
            logger.debug("execution_id=<%s>, error=<%s> | lease not released", self.execution_id, error)
