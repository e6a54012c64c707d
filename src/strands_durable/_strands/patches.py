"""Parts of Strands that are replaced while they are needed, and only then: most of them during durable calls.

Agents that are not durable find everything in its place before and after, and during a durable call beside them a replacement
that does what the original does: each acts only for what runs inside a durable call, by a context variable.
"""

from __future__ import annotations

import asyncio
import copy
import os
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from strands import Agent
from strands.event_loop import _retry, event_loop, streaming
from strands.handlers import PrintingCallbackHandler
from strands.telemetry.tracer import Tracer

from .._records.copies import copied

_lock = threading.Lock()


class Replacement:
    """One attribute of a class or module, replaced as long as at least one block of this needs it.

    Args:
        owner: The class or module.
        name: The attribute.
        around: Returns the replacement of the original.
    """

    def __init__(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._around = owner, name, around
        self._users = 0
        self._original: Any = None
        self._ours: Any = None

    def __enter__(self) -> None:
        with _lock:
            if self._users == 0:
                self._original = vars(self._owner)[self._name]
                self._ours = self._around(self._original)
                setattr(self._owner, self._name, self._ours)
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with _lock:
            self._users = max(0, self._users - 1)
            if self._users == 0:
                self._put_back()

    def _put_back(self) -> None:
        if self._ours is not None and vars(self._owner)[self._name] is self._ours:  # else it was replaced by others
            setattr(self._owner, self._name, self._original)
        self._original = self._ours = None

    def forget(self) -> None:
        """After a fork, in the child: what needs this runs in the parent."""
        with _lock:
            self._users = 0
            self._put_back()


class DurableSeams:
    """What Strands has no public seam for, and a durable call needs.

    Args:
        is_inside: Returns True in code that runs inside a durable call.
        offer: Returns what `Agent.aux_model` gives for an agent and its model: the model itself, or one in its place.
        pause: Waits, as `ModelRetryStrategy` does before it makes a model call again, for seconds and a reason.
        mark: Gets each span that Strands starts and that is recorded.
        note_state: Gets an agent and the state that its model call may change in place.
    """

    def __init__(
        self,
        is_inside: Callable[[], bool],
        offer: Callable[[Agent, Any], Any],
        pause: Callable[[float, str], Any],
        mark: Callable[[Any], None],
        note_state: Callable[[Any, Any], None],
    ) -> None:
        self._is_inside, self._offer, self._pause, self._mark = is_inside, offer, pause, mark
        self._note_state = note_state
        self._replacements = [
            Replacement(event_loop, "copy", self._quick_copy),
            Replacement(streaming, "copy", self._quick_copy),
            Replacement(event_loop, "_make_invoke_model_terminal", self._noting),
            Replacement(_retry, "asyncio", self._pausing),
            Replacement(Agent, "aux_model", self._offering),
            Replacement(Tracer, "_start_span", self._marking),
            Replacement(Tracer, "_add_event_messages", self._guarded),
        ]
        _in_use.add(self)

    def open(self) -> None:
        """Replace them for a durable call that begins; calls in several threads may overlap."""
        for found in self._replacements:
            found.__enter__()

    def close(self) -> None:
        """Put everything back, unless other durable calls run."""
        for found in self._replacements:
            found.__exit__()

    def forget(self) -> None:
        """Put everything back in a child process: no durable call runs there."""
        for found in self._replacements:
            found.forget()

    def _quick_copy(self, module: Any) -> Any:
        """Copy the conversation, as Strands does twice per model call, in a third of the time; results are the same."""

        def deepcopy(value: Any, *memo: Any) -> Any:
            return copied(value, *memo) if self._is_inside() else copy.deepcopy(value, *memo)

        return SimpleNamespace(**{**vars(module), "deepcopy": deepcopy})

    def _noting(self, original: Any) -> Any:
        def noting(agent: Any, cycle_span: Any, tracer: Any, model_state: dict[str, Any]) -> Any:
            if self._is_inside():
                self._note_state(agent, model_state)
            return original(agent, cycle_span, tracer, model_state)

        return noting

    def _pausing(self, module: Any) -> Any:
        async def sleep(seconds: float) -> None:
            await (self._pause(seconds, "throttled") if self._is_inside() else asyncio.sleep(seconds))

        return SimpleNamespace(**{**vars(module), "sleep": sleep})

    def _offering(self, original: property) -> property:
        def aux_model(agent: Agent) -> Any:
            assert original.fget is not None
            return self._offer(agent, original.fget(agent))

        return property(aux_model, original.fset, doc=original.__doc__)

    def _marking(self, original: Any) -> Any:
        def start_span(tracer: Any, *args: Any, **given: Any) -> Any:
            span = original(tracer, *args, **given)
            if self._is_inside() and span.is_recording():
                self._mark(span)
            return span

        return start_span

    def _guarded(self, original: Any) -> Any:
        """Skip encoding the whole conversation, three times per cycle, for spans that are not recorded."""

        def add_event_messages(tracer: Any, span: Any, messages: Any) -> None:
            if span.is_recording() or not self._is_inside():
                original(tracer, span, messages)

        return add_event_messages


_in_use: weakref.WeakSet[DurableSeams] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    _lock.release()
    for found in _in_use:
        found.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)


def silence_printing() -> Replacement:
    """Take the voice from Strands' default callback handler, which prints what every agent says while it says it."""
    return Replacement(PrintingCallbackHandler, "__call__", lambda original: lambda self, **said: None)
