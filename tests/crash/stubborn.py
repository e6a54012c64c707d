"""Agents of a worker that has much to wait for when it is told to stop."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path

from strands import Agent, tool

from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel, call

_LONG_SECONDS = 1e6
if Path("keeps").exists():
    threading.Thread(target=time.sleep, args=(_LONG_SECONDS,)).start()


@tool
async def ignores() -> str:
    """Ignore every cancel."""
    Path("busy").touch()
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(_LONG_SECONDS)


@tool
async def blocks() -> str:
    """Block the event loop."""
    Path("busy").touch()
    time.sleep(_LONG_SECONDS)
    return "later"


@tool
def sleeps() -> str:
    """Sleep in a thread."""
    Path("busy").touch()
    time.sleep(_LONG_SECONDS)
    return "later"


@tool
def leaves() -> str:
    """Leave a thread behind that keeps its process."""
    threading.Thread(target=time.sleep, args=(_LONG_SECONDS,)).start()
    Path("busy").touch()
    return "left"


@durable_agent
def stubborn(tool_name: str) -> Agent:
    return Agent(
        model=ScriptedModel([call(tool_name), "Done."]), tools=[ignores, blocks, sleeps, leaves], callback_handler=None
    )


@durable_agent
def plain() -> Agent:
    if Path("hangs").exists():
        Path("busy").touch()
        time.sleep(_LONG_SECONDS)
    return Agent(model=ScriptedModel(["Done."]), callback_handler=None)
