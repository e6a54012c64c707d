"""The result of a tool that arrived after its call had stopped waiting for it, in the form that Strands gives to results.

The function has run; what it returned or raised passes again through the tool and the middleware around it.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from strands.middleware import ExecuteToolContext, ToolResultEvent

from .._strands.agents import InterruptException, ToolInterruptEvent, is_next_to_tools, with_function


async def event_of(
    context: ExecuteToolContext, next_fn: Any, outcome: Future[Any]
) -> ToolResultEvent | ToolInterruptEvent:
    """Return the event that Strands makes of the outcome of a sync tool's function."""

    async def function(*args: Any, **given: Any) -> Any:
        return outcome.result()

    context = context.replace(tool=with_function(context.tool, function))
    assert context.tool is not None
    if is_next_to_tools(context.agent):  # avoids the span and the count of another run
        events = context.tool.stream(context.tool_use, context.invocation_state)
    else:
        events = next_fn(context)
    found: Any = None
    try:
        async for event in events:
            if isinstance(event, (ToolResultEvent, ToolInterruptEvent)):
                found = event
    except InterruptException as interruption:
        return ToolInterruptEvent(context.tool_use, [interruption.interrupt])
    except Exception as error:
        return _error(context, error)
    return found if found is not None else _error(context, RuntimeError("it returned nothing"))


def _error(context: ExecuteToolContext, error: Exception) -> ToolResultEvent:
    tool_use_id = str(context.tool_use.get("toolUseId"))
    text = {"toolUseId": tool_use_id, "status": "error", "content": [{"text": f"Error: {error}"}]}
    return ToolResultEvent(text, exception=error)  # type: ignore[arg-type]
