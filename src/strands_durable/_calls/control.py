"""Controls an execution that runs in this process: why no step may start, which gate steps wait at, which tools still run.

The lease and the journal report facts: a cancel was requested, a step has ended. This module decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .._journal.port import Journal
from .._records.calls import CallRecord
from .._records.executions import ExecutionStatus
from .._records.logs import safe_logger
from .._records.step_gate import StepGate
from .._sqlite.lease import Lease
from ..errors import CipherError, DurableError, ExecutionCancelledError
from .running_tools import RunningTools

logger = safe_logger(__name__)


class ExecutionReleasedError(DurableError):
    """This process stops, and leaves the execution to another; never seen by users."""

    def __str__(self) -> str:
        return "The execution was left to another worker."


class ExecutionControl:
    """Controls one execution that this process owns, and writes to its journal."""

    def __init__(self, lease: Lease, *, is_alone: bool = False) -> None:
        self.lease = lease
        self.journal: Journal = lease.journal(self)
        self.halt: DurableError | None = None
        """Why no more steps may start: the execution was cancelled, or its worker is stopping."""
        self.gate: StepGate | None = None
        """Decides when a step may run, if a commit alone does not permit it."""
        self.is_alone = is_alone
        """True if the worker runs only this execution, to find out whether it is what kills workers."""
        self.on_progress: Callable[[], None] | None = None
        """Called when the first step ends under this lease."""
        self.waits = 0
        """How many of its steps are idle, waiting for other executions."""
        self.tools = RunningTools(lease.store.path, lease.execution_id)
        """The sync tools that run under the lease, each in a thread: the lease is held until they end."""

    @property
    def execution_id(self) -> str:
        """The execution."""
        return self.lease.execution_id

    # What the journal reports

    def cancel_requested(self) -> None:
        """Start no more steps: the execution is cancelled. The error object stays the same, so that calls can recognize it."""
        if not isinstance(self.halt, ExecutionCancelledError):
            self.halt = ExecutionCancelledError(self.execution_id)

    def step_ended(self) -> None:
        """Clear the suspicion that the execution kills workers: one of its steps has ended."""
        if self.on_progress is not None:
            self.on_progress()

    # What the process decides

    def stop(self, why: DurableError) -> None:
        """Start no more steps. The first reason counts."""
        self.halt = self.halt or why

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Free the slot while a step waits for another execution, which may need this worker; nothing was killed so far."""
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
            raise self.halt  # it must not wait for answers that could not be used
        if call.parent == 0 and status is ExecutionStatus.FAILED and isinstance(self.halt, ExecutionCancelledError):
            self.journal.cancel()  # its failure is on record, but the requested cancel determines its status
            return
        is_running = status is not ExecutionStatus.COMPLETED and bool(self.tools.names)  # a step in doubt
        self.journal.end_call(call, status, result, keeps_lease=is_running)

    def cancel(self) -> None:
        """Record that the execution was cancelled."""
        with self.journal.transaction("call.cancelled"):
            self.journal.cancel()

    def release(self) -> None:
        """Release the lease if possible, unless the end of the call already did."""
        if self.lease.dropped:
            return
        try:
            with self.journal.transaction("lease.release"):
                self.lease.drop()
        except CipherError:
            with suppress(DurableError):
                self.lease.abandon()
        except DurableError as error:
            logger.debug("execution_id=<%s>, error=<%s> | lease not released", self.execution_id, error)
