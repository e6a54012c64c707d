"""The one patch that every agent of the process sees: `stream_async` of agents, Graphs and Swarms asks a context variable.

Everything that calls an agent comes through it. Outside durable calls the variable is unset, and nothing else happens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from strands import Agent
from strands.multiagent.graph import Graph
from strands.multiagent.swarm import Swarm


def patch_streams(context: ContextVar[Any], enter: Callable[..., Any]) -> None:
    """Have ``enter(found, subject, original, *args, **given)`` make calls where ``context`` is set to ``found``."""
    for kind in (Agent, Graph, Swarm):
        original: Any = kind.stream_async
        if not hasattr(original, "_strands_durable"):
            kind.stream_async = _patched(original, context, enter)  # type: ignore[method-assign]


def _patched(original: Any, context: ContextVar[Any], enter: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def stream_async(self: Any, *args: Any, **given: Any) -> Any:
        found = context.get()
        if found is None:
            return original(self, *args, **given)
        return enter(found, self, functools.partial(original, self), *args, **given)

    stream_async._strands_durable = True  # type: ignore[attr-defined]
    return stream_async


class Borrowed:
    """What attaching replaces in an agent or orchestrator, to be given back after one call."""

    def __init__(self, subject: Any) -> None:
        owners = [subject, subject.hooks, getattr(subject, "_middleware_registry", None)]
        self._before = [
            (owner, name, vars(owner).get(name)) for owner in owners if owner is not None for name in _REPLACED
        ]
        self._subject = subject

    def give_back(self, functions: set[Any]) -> None:
        """Put back the attributes, and remove the middlewares and hooks that are among ``functions``."""
        for owner, name, value in self._before:
            if value is not None:
                setattr(owner, name, value)
            else:
                vars(owner).pop(name, None)
        registry: Any = getattr(self._subject, "_middleware_registry", None)
        if registry is not None:
            _remove(registry._handlers, lambda tagged: tagged.handler in functions)
        _remove(self._subject.hooks._registered_callbacks, lambda entry: entry.callback in functions)


def _remove(lists: dict[Any, list[Any]], is_ours: Callable[[Any], bool]) -> None:
    for key, found in list(lists.items()):
        kept = [each for each in found if not is_ours(each)]
        if kept:
            lists[key] = kept
        elif found:
            del lists[key]


_REPLACED = (
    "_observe_cancellation",
    "_make_agent_stream_terminal",
    "_execute_swarm",
    "_execute_nodes_parallel",
    "invoke_callbacks_async",
    "invoke",
)
"""By whatever attaches: see `decisions`, `watchers`, `graph` and `swarm`."""
