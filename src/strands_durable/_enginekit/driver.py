"""Runs one execution in this process, for an engine that stores its rows: step by step, each when the engine allows it.

The agent runs on a replica as it does on a file. Before each step it waits for a ticket. What has changed until then is a
batch, and the engine opens a ticket only after it has stored the batch that reported it. A batch holds all changes since the
one before: a prefix of the batches is the execution at some moment, and another process can resume from it.

The agent's code runs on a loop of its own, `AgentLoop`; everything else here may be called from any thread. Does not depend on
any engine.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from .._calls.control import ExecutionControl, ExecutionReleasedError
from .._dispatch.factories import in_time
from .._dispatch.queue import Queue
from .._dispatch.registry import agents
from .._dispatch.runner import ExecutionRunner, cancel, refusal
from .._journal.owner import Owner
from .._records.change_sets import ChangeSet
from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.logs import safe_logger
from .._records.step_gate import StepTicket
from ..errors import DurableError, UnreadableError
from .progress import RunEnd, end_of
from .replica import Replica

logger = safe_logger(__name__)

S = ExecutionStatus
MAX_DEATHS = 3
_LONG_SECONDS = 1e9
_ROUNDS = 20
"""Idle iterations of the loop before the agent counts as quiescent: it starts its tools one by one."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What has changed since the batch before, and which steps have begun to wait since then."""

    number: int
    rows: ChangeSet
    tickets: dict[str, StepTicket]
    inner: frozenset[str]
    """The tickets of steps inside a running step, which cannot end before they have run."""


class Driver:
    """Runs one execution on a replica; no step starts until the engine opens its ticket.

    Args:
        replica: The rows of the execution.
        runner: Builds and calls the agent.
        on_notify: Called, from any thread, when there may be a batch to take.
        alone: Whether it may have killed its last worker, and is tried apart from others.
        stays: Whether it stays once it is cleared of that: for an engine whose processes run one execution each.
        owner: Who runs it, where the engine distinguishes owners by more than their process.
        reports_claim: Whether the claim is a batch of its own, before any code of the agent runs. It always is with ``alone``.
    """

    def __init__(
        self,
        replica: Replica,
        runner: ExecutionRunner,
        *,
        on_notify: Callable[[], None],
        alone: bool = False,
        stays: bool = False,
        owner: Owner | None = None,
        reports_claim: bool = False,
    ) -> None:
        self._replica, self._runner, self._on_notify = replica, runner, on_notify
        self._alone, self._stays, self._reports_claim = alone, stays, reports_claim
        self._queue = Queue(replica, owner)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._control: ExecutionControl | None = None
        self._halt: DurableError | None = None
        self._is_gentle = self._has_results = False
        self._tickets: dict[str, StepTicket] = {}
        self._closed: dict[str, Future[None]] = {}
        """The tickets that steps wait for."""
        self._unreported: list[str] = []
        self._open: set[str] = set()
        self._withdrawn: list[StepTicket] = []
        """The steps that were left while they slept."""
        self._generation = self._serial = self._batches = 0
        self.has_notes = False
        """Whether something that no step's end reports was committed since the last batch."""
        self.is_quiescent = False
        """Whether nothing has happened for a moment."""
        self.is_over = False

    # What the engine asks

    async def refusal(self) -> str | None:
        """Return why this process may not run the execution; None if it may. The factory runs in a thread, with its timeout."""
        try:
            queued = self._queue.only()
            self._queue.prompt_of(queued)
        except UnreadableError as error:
            return f"it cannot be read here: {error.reason}. {error.hint}"
        agent = agents.get(queued.agent)
        if agent is None or agent.has_spec_with(queued.spec.arguments):
            return refusal(queued)
        try:
            return await in_time(partial(refusal, queued), agent.policies.build_timeout, agent.name)
        except TimeoutError as error:
            return str(error)

    @property
    def is_suspected(self) -> bool:
        """Whether the execution may have killed its last worker."""
        return self._queue.only().is_suspected

    def open(self, ticket_id: str) -> bool:
        """Let a step run; False if the ticket is unknown here, was already opened, or no batch has reported it.

        A step whose intent is in no batch must not start: after a crash its effect would be unknown.
        """
        with self._lock:
            if self._halt is not None or ticket_id in self._unreported:
                return False
            future = self._closed.pop(ticket_id, None)
            if future is None:
                return False
            self._open.add(ticket_id)
        future.set_result(None)
        return True

    def has_ended(self, ticket_id: str) -> bool:
        """Return whether a step that was allowed to run has ended."""
        return ticket_id not in self._open

    @property
    def has_unreported(self) -> bool:
        """Whether a step waits that no batch has reported."""
        return bool(self._unreported)

    @property
    def has_results(self) -> bool:
        """Whether a step has ended since the last batch, or hooks after it have left their decision."""
        return self._has_results or self.has_notes

    @property
    def batches(self) -> int:
        """How many batches were taken."""
        return self._batches

    def waiting(self) -> dict[str, StepTicket]:
        """Return the steps that wait for their turn, whether a batch has reported them or not."""
        with self._lock:
            return {ticket_id: self._tickets[ticket_id] for ticket_id in self._closed}

    def running(self) -> dict[str, StepTicket]:
        """Return the steps that were let run and have not ended."""
        with self._lock:
            return {ticket_id: self._tickets[ticket_id] for ticket_id in self._open}

    @property
    def is_waiting(self) -> bool:
        """Whether one of its steps waits for another execution, which may need this same worker."""
        return self._control is not None and self._control.waits > 0

    @property
    def is_settled(self) -> bool:
        """Whether the next step is known: a step waits, another one runs, or the execution is over."""
        return self.is_quiescent and (bool(self._closed) or bool(self._open) or self.is_over)

    def batch(self) -> Batch:
        """Return what has changed."""
        with self._lock:
            self._batches += 1
            reported = {ticket_id: self._tickets[ticket_id] for ticket_id in self._unreported}
            self._unreported, self._has_results, self.has_notes = [], False, False
            inner = frozenset(ticket_id for ticket_id, ticket in reported.items() if self._around(ticket))
            return Batch(number=self._batches, rows=self._replica.changes(), tickets=reported, inner=inner)

    def report_again(self, before: int) -> tuple[Batch, dict[str, StepTicket]]:
        """Return a batch that reports every step that waits, and the steps that run; batches are counted from ``before`` on.

        For an engine that lost contact with this process and reattaches to it.
        """
        with self._lock:
            self._batches = before
            self._unreported = list(self._closed)
            running = {ticket_id: self._tickets[ticket_id] for ticket_id in self._open}
        return self.batch(), running

    def halt(self, why: DurableError | None = None, *, gently: bool = False) -> None:
        """Let nothing more start: the execution was cancelled, or is left to another worker.

        With ``gently`` a step that runs may do all it has to before the execution is left: what it records on its way is then
        reported with its result.
        """
        with self._lock:
            is_left = isinstance(self._halt, ExecutionReleasedError)
            if self._halt is not None and not (is_left and why is None):  # a released one can still be cancelled
                self._is_gentle = self._is_gentle and gently
                return
            control = self._control
            if why is None and control is not None:
                cancel(control)
                why = control.halt
            self._halt, self._is_gentle = why or ExecutionReleasedError(), gently
            if control is not None:
                control.stop(self._halt)
            closed, self._closed = self._closed, {}
            let_go = {ticket_id for ticket_id in closed if self._is_let_go(self._tickets[ticket_id])}
        for ticket_id, future in closed.items():
            if ticket_id in let_go:
                future.set_result(None)
            else:
                future.set_exception(self._halt)

    def give_up(self, error: DurableError) -> Batch:
        """Record that the execution has failed although one of its steps still runs; return the last batch.

        For an engine whose process must end before the step does. Anything the step records from now on is refused.
        """
        self.halt(ExecutionReleasedError())
        if self._control is not None:
            self._queue.give_up(self._control, error)
        return self.batch()

    @property
    def sleeps_until(self) -> float | None:
        """When the first step wakes, if every step sleeps, or waits for one that does, and may start over; else None."""
        if not self.is_between_steps:
            return None
        with self._lock:
            wakes = [self._tickets[ticket_id].until for ticket_id in self._closed]
        return min(wakes) if wakes and all(until > time.time() for until in wakes) else None

    @property
    def is_between_steps(self) -> bool:
        """Whether nothing runs but steps that may start over, each waiting for one inside it that has not begun."""
        with self._lock:
            around = {step for ticket_id in self._closed for step in self._tickets[ticket_id].around}
            running = [self._tickets[ticket_id] for ticket_id in self._open]
            return all(ticket.may_repeat and (ticket.call_id, ticket.key) in around for ticket in running)

    def leave_between_steps(self) -> None:
        """Leave an execution while `is_between_steps`: the steps that run are not in doubt, and start over."""
        with self._lock:
            self._withdrawn = [self._tickets[ticket_id] for ticket_id in self._open]
        self.halt(ExecutionReleasedError())

    def _around(self, ticket: StepTicket) -> list[StepTicket]:
        """Return the steps that run and enclose another."""
        running = [self._tickets[each] for each in self._open]
        return [each for each in running if (each.call_id, each.key) in ticket.around]

    def _is_let_go(self, ticket: StepTicket) -> bool:
        """Return whether a ticket need not be waited for any more: a running step ends with it.

        One with agents inside that may start over is left at the next step inside.
        """
        if not self._is_gentle or ticket.until:
            return False
        return any(ticket.kind == "effect" or not each.may_repeat for each in self._around(ticket))

    # What the agent's side calls

    async def wait(self, ticket: StepTicket) -> None:
        """Return when the step may run."""
        future: Future[None] = Future()
        with self._lock:
            if self._halt is not None:
                if self._is_let_go(ticket):
                    return
                raise self._halt
            self._serial += 1
            ticket_id = f"{self._serial} {ticket.path}"
            self._tickets[ticket_id], self._closed[ticket_id] = ticket, future
            self._unreported.append(ticket_id)
        self._notify()
        try:
            await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            with self._lock:
                self._closed.pop(ticket_id, None)
                self._unreported = [each for each in self._unreported if each != ticket_id]
                self._open.discard(ticket_id)
            self._notify()
            raise

    async def pause(self, until: float, what: str, around: tuple[tuple[int, str], ...]) -> None:
        """Sleep until a time, as a step that the engine wakes."""
        ticket = StepTicket(
            call_id=0, key="", attempt=1, kind="effect", name=what, path=what, until=until, around=around
        )
        await self.wait(ticket)
        self.end(ticket)

    def end(self, ticket: StepTicket) -> None:
        """Record that a step has ended."""
        with self._lock:
            for ticket_id in [each for each in self._open if self._tickets[each] is ticket]:
                self._open.discard(ticket_id)
                self._has_results = True
                del self._tickets[ticket_id]
        self._notify()

    def note(self) -> None:
        """Report what was committed, although no step has ended or begins to wait."""
        self.has_notes = True
        self._notify()

    async def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the execution until it ends, waits or is released."""
        self._loop = loop
        try:
            await self._run_claim()
        except Exception as error:
            logger.exception("path=<%s>, error=<%s> | execution left", self._replica.path, error)
        finally:
            with self._lock:
                self._open.clear()
                self.is_over = True
            self._notify()

    async def _run_claim(self) -> None:
        queued = self._queue.only()
        claim = self._queue.claim(queued, _LONG_SECONDS, alone=self._alone, max_deaths=MAX_DEATHS)
        if claim is None:
            return
        control = claim.control
        with self._lock:
            self._control, control.gate = control, self
            control.halt = self._halt

        def seen() -> None:
            if self._alone and not self._stays and not control.is_alone:
                self.halt(ExecutionReleasedError(), gently=True)  # it is cleared: it may run among others again

        try:
            if control.is_alone or self._reports_claim:
                await self._report_claim()
            if not isinstance(control.halt, ExecutionReleasedError):
                await self._runner.run(claim, seen)
        finally:
            self._withdraw(control)
            control.release()

    def _withdraw(self, control: ExecutionControl) -> None:
        if self._withdrawn:
            journal = control.journal
            with suppress(DurableError), journal.transaction("ticket.withdraw"):
                for ticket in self._withdrawn:
                    journal.withdraw(ticket.call_id, ticket.key, ticket.attempt)

    async def _report_claim(self) -> None:
        """Report the claim before any code of the agent runs: if that code kills this process, the death is counted."""
        with suppress(DurableError):
            await self.pause(time.time(), "claimed", ())

    def _notify(self) -> None:
        """Note that something has happened; the engine is notified when nothing more does."""
        with self._lock:
            self._generation += 1
            self.is_quiescent = False
            generation = self._generation
        for loop in {self._loop, _running_loop()}:  # sync code that calls a model blocks one and runs the other
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._await_quiescence, loop, generation, _ROUNDS)

    def _await_quiescence(self, loop: asyncio.AbstractEventLoop, generation: int, rounds: int) -> None:
        if generation != self._generation:
            return
        if rounds:
            loop.call_soon(self._await_quiescence, loop, generation, rounds - 1)
            return
        self.is_quiescent = True
        self._on_notify()

    # The outcome

    def ended(self) -> RunEnd:
        """Return the state of the execution."""
        return end_of(self._replica)

    def record(self) -> ExecutionRecord:
        """Return the execution as a list shows it."""
        return self._replica.record()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
