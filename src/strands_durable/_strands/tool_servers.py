"""Building agents without connecting to the servers of their tools, to describe an agent before anything is connected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from strands.tools import ToolProvider
from strands.tools.registry import ToolRegistry

from .patches import Replacement

_left_out: ContextVar[list[ToolProvider] | None] = ContextVar("strands_durable_left_out", default=None)


@contextmanager
def without_servers() -> Iterator[list[ToolProvider]]:
    """Keep agents that are built in this block from connecting to tool servers; yield the providers left out."""
    providers: list[ToolProvider] = []
    with _process_tools:
        token = _left_out.set(providers)
        try:
            yield providers
        finally:
            _left_out.reset(token)


def _guarded(process_tools: Any) -> Any:
    def guarded(self: ToolRegistry, tools: list[Any]) -> Any:
        left_out = _left_out.get()
        return process_tools(self, tools if left_out is None else _plain_tools(tools, left_out))

    return guarded


_process_tools = Replacement(ToolRegistry, "process_tools", _guarded)


def _plain_tools(tools: Iterable[Any], left_out: list[ToolProvider]) -> list[Any]:
    plain: list[Any] = []
    for tool in tools:
        if isinstance(tool, ToolProvider):
            left_out.append(tool)
        else:
            plain.append(_plain_tools(tool, left_out) if isinstance(tool, (list, tuple)) else tool)
    return plain
