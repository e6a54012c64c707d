"""Where the running code stands: the step, or the hook beside a step, that encloses it.

Carried by a context variable, which reaches async tools, sync tools in threads, and whatever they call. The variable is set
only while the agent's own code runs, never across a yield to the consumer of a stream.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .._records.deadline import limited
from .._records.keys import idempotency_key, path

if TYPE_CHECKING:
    from .durable_call import DurableCall

CurrentStepKind = Literal["model", "tool", "tools", "node", "call"]
"""``tools`` are the hooks before and after all tools of one answer, ``call`` those around a whole call."""
StepPhase = Literal["before", "running", "after"]


@dataclass(frozen=True, kw_only=True)
class CurrentStep:
    """The step that the calling code belongs to."""

    execution_id: str
    key: str
    kind: CurrentStepKind
    name: str
    phase: StepPhase
    """``running`` inside the step itself, ``before`` and ``after`` in the hooks around it."""
    attempt: int
    """More than 1 after a crash or a retry inside this step."""
    replaying: bool
    """True in hooks around a step whose result comes from the journal."""
    run: int = 0
    """How often the execution was started over under its id."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step, and for no other: hand it to payment and booking APIs."""
        return idempotency_key(self.execution_id, self.run, self.key)


@dataclass(eq=False)
class StepContext:
    """What encloses the running code. Few look at it, so that what they see is made when they do."""

    call: DurableCall
    kind: CurrentStepKind
    name: str
    phase: StepPhase
    key: str
    """The key within the call."""
    look: Callable[[], tuple[int, bool]]
    """Returns the attempt, and whether the step comes from the journal."""
    delegate: Any = None
    """The agent or orchestrator that this step is there for: a node's, or that of an agent as a tool."""
    changes: dict[str, str | None] = field(default_factory=dict)
    """State keys that the step has written: recorded values, None for deleted."""

    @cached_property
    def occurrences(self) -> Counter[str]:
        """How often each name of a `durable.step` came up here."""
        return Counter()

    @cached_property
    def view(self) -> CurrentStep:
        """What `current_step` returns."""
        attempt, replaying = self.look()
        record = self.call.record
        return CurrentStep(
            execution_id=self.call.execution_id,
            key=path(record.scope, record.position, self.key),
            kind=self.kind,
            name=self.name,
            phase=self.phase,
            attempt=attempt,
            replaying=replaying,
            run=record.run,
        )


current_context: ContextVar[StepContext | None] = ContextVar("strands_durable_frame", default=None)
enclosing: ContextVar[DurableCall | None] = ContextVar("strands_durable_call", default=None)


async def within(step_context: StepContext, events: Any, seconds: float | None = None) -> AsyncGenerator[Any, None]:
    """Run a generator inside ``step_context``; never across a yield, where the consumer's code runs.

    Raises:
        TimedOut: It did not end within ``seconds``.
    """
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    try:
        while True:
            token = current_context.set(step_context)
            try:
                following = events.__anext__()
                event = await (following if until is None else limited(following, until - loop.time()))
            except StopAsyncIteration:
                return
            finally:
                current_context.reset(token)
            yield event
    finally:
        await events.aclose()


def enclosing_steps(step_context: StepContext | None) -> tuple[tuple[int, str], ...]:
    """Return the steps that run where somebody stands, by call and key."""
    found = []
    while step_context is not None:
        if step_context.phase == "running":
            found.append((step_context.call.record.call_id, step_context.key))
        step_context = step_context.call.made_in
    return tuple(found)


def waiting_for_execution() -> AbstractContextManager[None]:
    """Let the worker of the enclosing execution, if there is one, carry others while this waits for one of them."""
    found = current_context.get()
    return nullcontext() if found is None else found.call.control.waiting()


def current_step() -> CurrentStep | None:
    """Return the step that encloses the caller, or None outside of a durable call."""
    found = current_context.get()
    return found.view if found is not None else None
