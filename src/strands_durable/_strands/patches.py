"""Process-wide patches of Strands, each applied once. Agents that are not durable behave as before."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from strands import Agent
from strands.event_loop import _retry, event_loop, streaming
from strands.handlers import PrintingCallbackHandler
from strands.telemetry.tracer import get_tracer


def patch_auxiliary_model(offer: Callable[[Agent, Any], Any]) -> None:
    """Make `Agent.aux_model` return ``offer(agent, model)``: the model itself, or one that replaces it."""
    original = vars(Agent)["aux_model"]
    if getattr(original.fget, "_strands_durable", False):
        return

    def aux_model(agent: Agent) -> Any:
        return offer(agent, original.fget(agent))

    aux_model.__doc__ = original.fget.__doc__
    aux_model._strands_durable = True  # type: ignore[attr-defined]
    Agent.aux_model = property(aux_model, original.fset)  # type: ignore[assignment]


_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})


class _NotPlain(Exception):
    """A value holds more than JSON data and bytes."""


def _plain_copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return _copied_dict(value)
    if kind is list:
        return _copied_list(value)
    if kind in _ATOMS:
        return value
    raise _NotPlain


# Both know the type of what they copy, and look for the types that messages are made of before they look into a set.


def _copied_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    found = value.copy()
    for key, item in value.items():
        kind = type(item)
        if kind is str or kind is int:
            continue
        if kind is dict:
            found[key] = _copied_dict(item)
        elif kind is list:
            found[key] = _copied_list(item)
        elif kind not in _ATOMS:
            raise _NotPlain
    return found


def _copied_list(value: list[Any]) -> list[Any]:
    found = value.copy()
    for place, item in enumerate(value):
        kind = type(item)
        if kind is dict:
            found[place] = _copied_dict(item)
        elif kind is list:
            found[place] = _copied_list(item)
        elif kind not in _ATOMS:
            raise _NotPlain
    return found


def copied(value: Any, memo: Any = None) -> Any:
    """Copy as `copy.deepcopy` does."""
    try:
        return _plain_copy(value)
    except (_NotPlain, RecursionError):
        return copy.deepcopy(value, memo)


class _QuickCopy:
    """Replaces the module ``copy`` where Strands copies the whole conversation, twice per model call.

    Plain data is copied three times as fast, without the bookkeeping that it does not need. Anything else is copied as before.
    """

    copy = staticmethod(copy.copy)

    deepcopy = staticmethod(copied)


def patch_deepcopy() -> None:
    """Save most of the time that a long run spends on copying its messages; results are the same."""
    for module in (event_loop, streaming):
        module.copy = _QuickCopy  # type: ignore[attr-defined]


class _RetrySleep:
    """Replaces the module ``asyncio`` where Strands waits before it retries a model call."""

    def __init__(self, pause: Callable[[float, str], Any]) -> None:
        self._pause = pause

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._pause(seconds, "throttled")


def patch_retry_sleep(pause: Callable[[float, str], Any]) -> None:
    """Make `ModelRetryStrategy` wait with ``pause(seconds, what)``."""
    _retry.asyncio = _RetrySleep(pause)  # type: ignore[assignment, attr-defined]


def patch_tracer(mark: Callable[[Any], None]) -> None:
    """Call ``mark(span)`` for each span that Strands starts, and skip encoding messages for spans that do not record.

    Strands encodes the whole conversation three times per cycle even without an exporter: a fifth of a long run.
    """
    tracer = get_tracer()
    add_event_messages, start_span = tracer._add_event_messages, tracer._start_span
    if getattr(add_event_messages, "_strands_durable", False):
        return

    def guarded(span: Any, messages: Any) -> None:
        if span.is_recording():
            add_event_messages(span, messages)

    def marking(*args: Any, **given: Any) -> Any:
        span = start_span(*args, **given)
        if span.is_recording():
            mark(span)
        return span

    tracer._start_span = marking  # type: ignore[method-assign]
    guarded._strands_durable = True  # type: ignore[attr-defined]
    tracer._add_event_messages = guarded  # type: ignore[method-assign]


@contextmanager
def silence_printing() -> Iterator[None]:
    """Take the voice from Strands' default callback handler, which prints what every agent says while it says it."""
    speak = PrintingCallbackHandler.__call__
    PrintingCallbackHandler.__call__ = lambda self, **said: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        PrintingCallbackHandler.__call__ = speak  # type: ignore[method-assign]
