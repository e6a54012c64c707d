"""Building agents without the servers of their tools: what an agent is made of can be told before anything is connected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from strands.tools import ToolProvider
from strands.tools.registry import ToolRegistry

_left_out: ContextVar[list[ToolProvider] | None] = ContextVar("strands_durable_left_out", default=None)


@contextmanager
def without_servers() -> Iterator[list[ToolProvider]]:
    """Have agents that are built in this block connect to nothing; yield what would have served them tools."""
    if not hasattr(ToolRegistry.process_tools, "_strands_durable"):
        ToolRegistry.process_tools = _guarded(ToolRegistry.process_tools)  # type: ignore[method-assign]
    found: list[ToolProvider] = []
    token = _left_out.set(found)
    try:
        yield found
    finally:
        _left_out.reset(token)


def _guarded(process_tools: Any) -> Any:
    def guarded(self: ToolRegistry, tools: list[Any]) -> Any:
        left_out = _left_out.get()
        return process_tools(self, tools if left_out is None else _plain_tools(tools, left_out))

    guarded._strands_durable = True  # type: ignore[attr-defined]
    return guarded


def _plain_tools(tools: Iterable[Any], left_out: list[ToolProvider]) -> list[Any]:
    found: list[Any] = []
    for tool in tools:
        if isinstance(tool, ToolProvider):
            left_out.append(tool)
        else:
            found.append(_plain_tools(tool, left_out) if isinstance(tool, (list, tuple)) else tool)
    return found
