"""`strands-durable demo --backend temporal`: two workers on a Temporal server.

The server is real and belongs to the demo: it is stopped when the demo ends.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ..._dispatch.connect import connect
from ...errors import UnsupportedFeatureError
from .screen import Screen
from .workers import TwoWorkers, Words, worker

if TYPE_CHECKING:
    from ...testing.temporal import TemporalServer

_HEARTBEAT_SECONDS = 2
_WORDS = Words(
    recorded_in="a Temporal workflow",
    record="The history",
    missed=f"When the killed worker has missed its heartbeat for\n{_HEARTBEAT_SECONDS} seconds",
    own=(
        "The demo's server is stopped. To try this on a server of your own:",
        "  temporal server start-dev",
        "  strands-durable worker agents.py --backend temporal://localhost:7233",
    ),
)


def play(folder: Path, screen: Screen) -> None:
    """Run the demo; raise unless everything happened exactly once."""
    server = _server()
    screen.say("A travel agent books a weekend in Paris. Its model is scripted; its tools write to a ledger.")
    screen.say("Starting a Temporal server and two workers. Importing Strands takes a moment.")
    with server, ExitStack() as ending:
        url = f"{server.url}?heartbeat_seconds={_HEARTBEAT_SECONDS}"
        workers = {started.pid: started for started in (ending.enter_context(worker(url, folder)) for _ in range(2))}
        asyncio.run(TwoWorkers(folder, screen, connect(url), workers, _WORDS).play())


def _server() -> TemporalServer:
    try:
        from ...testing.temporal import TemporalServer
    except ImportError as error:
        instead = "Install it: pip install 'strands-durable[temporal]'"
        raise UnsupportedFeatureError("A demo on Temporal", "temporalio is not installed", instead) from error
    return TemporalServer()
