"""The step, or the hook around a step, that encloses the running code.

Carried by a context variable, which reaches async tools, sync tools in threads, and everything they call. The variable is
set only while the agent's own code runs, never across a yield to the consumer of a stream.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .._records.deadline import limited
from .._records.keys import idempotency_key, path
from .children import Children

if TYPE_CHECKING:
    from .durable_call import DurableCall

CurrentStepKind = Literal["model", "tool", "tools", "node", "call"]
"""``tools`` are the hooks before and after all tools of one answer, ``call`` those around a whole call."""
StepPhase = Literal["before", "running", "after"]


_counting = threading.Lock()
"""Direct calls of tools and calls of agents run in threads: several may be made in one step at the same time."""


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
    """How often the execution was restarted under its id."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step and unique to it: pass it to payment and booking APIs."""
        return idempotency_key(self.execution_id, self.run, self.key)


@dataclass(eq=False)
class StepContext:
    """What encloses the running code. Few callers read it, so its view is built on demand."""

    call: DurableCall
    kind: CurrentStepKind
    name: str
    phase: StepPhase
    key: str
    """The key within the call."""
    look: Callable[[], tuple[int, bool]]
    """Returns the attempt, and whether the step comes from the journal."""
    delegate: Any = None
    """The agent or orchestrator that this step runs: that of a node, or of an agent used as a tool."""
    changes: dict[str, str | None] = field(default_factory=dict)
    """State keys that the step wrote, with their recorded values; None means deleted."""
    inside: StepContext | None = None
    """Of a direct call of a tool, and of the function of a `durable.step`: what it is part of."""
    effect: str = ""
    """The key of the `durable.step` whose function runs, if one does."""
    tries_again: bool = False
    """Whether an earlier attempt of the step has ended in an error, after which its policy tries again."""
    may_repeat: bool = True
    """Whether the step simply runs again if it is in doubt."""
    is_opaque: bool = False
    """Whether the agents that the step's code calls are part of the step."""
    is_over: bool = False
    """Whether the step has ended: what it left running is not part of it."""

    @cached_property
    def _occurrences(self) -> Counter[str]:
        return Counter()

    @cached_property
    def _children(self) -> Children:
        return Children(self)

    @property
    def children(self) -> Children:
        """The calls that the code of the whole step or hook makes."""
        with _counting:
            return self.recorded._children

    def in_effect(self, key: str) -> StepContext:
        """Return the context of the function of a `durable.step`: that around it, but calls belong to the effect."""
        found = replace(self, effect=key, inside=self)
        vars(found)["_occurrences"] = self._occurrences
        return found

    def place_of(self, call: str) -> str:
        """Return the place of a call that code makes here, within the enclosing call."""
        return f"{self.effect}/@{call}" if self.effect else f"{self.key}/{self.phase}@{call}"

    def occurrence(self, name: str) -> int:
        """Return how often ``name`` occurred here before: the name of a `durable.step`, or of a call made here."""
        with _counting:
            found = self._occurrences[name]
            self._occurrences[name] += 1
        return found

    @property
    def recorded(self) -> StepContext:
        """The step or hook that records what happens here."""
        return self if self.inside is None else self.inside.recorded

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
    """Return the running steps that enclose ``step_context``, by call and key."""
    found = []
    while step_context is not None:
        call_id = step_context.call.record.call_id
        while step_context.inside is not None:
            if step_context.effect:
                found.append((call_id, step_context.effect))
            step_context = step_context.inside
        if step_context.phase == "running":
            found.append((call_id, step_context.key))
        step_context = step_context.call.made_in
    return tuple(found)


def waiting_for_execution() -> AbstractContextManager[None]:
    """Let the worker of the enclosing execution, if any, run others while this one waits for one of them."""
    found = current_context.get()
    return nullcontext() if found is None else found.call.control.waiting()


def current_step() -> CurrentStep | None:
    """Return the step that encloses the caller, or None outside a durable call."""
    found = current_context.get()
    return found.view if found is not None else None
