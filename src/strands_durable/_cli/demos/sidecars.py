"""`strands-durable demo --backend dapr`: two workers, each beside its own sidecar of Dapr.

Sidecars, placement and scheduler are real and belong to the demo: they are stopped when it ends. Where they are not installed,
they are built first, which takes minutes.
"""

from __future__ import annotations

import asyncio
import importlib.util
from contextlib import ExitStack
from pathlib import Path

from ..._dispatch.connect import connect
from ...errors import UnsupportedFeatureError
from ...testing.dapr import DaprCluster
from .screen import Screen
from .workers import TwoWorkers, Words, worker

_WORDS = Words(
    recorded_in="Dapr's state store",
    record="The store",
    missed="As soon as the killed worker's sidecar has\nnoticed the closed connection",
    own=(
        "The demo's sidecars are stopped. To try this beside a sidecar of your own:",
        "  dapr run --app-id agents -- strands-durable worker agents.py --backend dapr://",
    ),
)


def play(folder: Path, screen: Screen) -> None:
    """Run the demo; raise unless everything happened exactly once."""
    if importlib.util.find_spec("dapr") is None:
        instead = "Install it: pip install 'strands-durable[dapr]'"
        raise UnsupportedFeatureError("A demo on Dapr", "dapr is not installed", instead)
    screen.say("A travel agent books a weekend in Paris. Its model is scripted; its tools write to a ledger.")
    cluster = DaprCluster(sidecars=2)
    screen.say("Starting placement, scheduler, two sidecars and two workers. Importing Strands takes a moment.")
    with cluster, ExitStack() as ending:
        workers = [ending.enter_context(worker(sidecar.url, folder)) for sidecar in cluster.sidecars]
        by_pid = {started.pid: started for started in workers}
        asyncio.run(TwoWorkers(folder, screen, connect(cluster.url), by_pid, _WORDS).play())
