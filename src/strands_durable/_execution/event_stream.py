"""Running a call: pass on its events, set its context while its own code runs, and raise its errors in the right form."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from .._calls.context import current_context, enclosing
from .._calls.durable_call import DurableCall, UnwindLoop
from ..errors import DurableError

Events = AsyncGenerator[Any, None]


async def stream_call(
    call: DurableCall,
    start: Callable[[], Events],
    seen: Callable[[Any], None],
    failed: Callable[[BaseException], None],
    close: Callable[[], None],
) -> Events:
    """Pass on the events of a call, its result after ``seen`` has looked at it.

    Between events the consumer's code runs, outside the call and its steps. The root call raises a latched error of our own;
    inside another call it keeps unwinding, since Strands would turn the error into a tool result or a failed node.
    """
    events, step_context = start(), None
    call.is_open = True
    try:
        while True:
            outer, step = enclosing.set(call), current_context.set(step_context)
            try:
                event = await events.__anext__()
            except StopAsyncIteration:
                return
            finally:
                step_context = current_context.get()
                current_context.reset(step)
                enclosing.reset(outer)
            if "result" in event:
                await _cancel_if_due()
                seen(event)
            yield event
    except UnwindLoop:
        error = call.error
        assert error is not None
        failed(error)
        if call.outer is not None:
            raise
        raise error from error.__cause__
    except DurableError as error:
        failed(error)
        if call.outer is not None:
            call.fail(error)
        raise
    except BaseException as error:
        failed(error)
        if call.outer is not None:
            call.notice(error)
        raise
    finally:
        call.is_open = False
        close()
        await events.aclose()


async def _cancel_if_due() -> None:
    """Let a cancel through that the call's own code asked for: the task ends with it, and its result is dropped.

    asyncio raises it where the task next waits, and the task may end without waiting again.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await give_way()


async def only(event: Any) -> Events:
    """Return the stream of a call that runs nothing."""
    yield event


async def failing(error: Exception) -> Events:
    """Return the stream of a call that runs nothing and raises its recorded error."""
    raise error
    yield


@types.coroutine
def give_way() -> Generator[None, None, None]:
    """Yield to the event loop once. Not ``asyncio.sleep``: tests of agents count its calls as pauses between retries."""
    yield
