"""``python -m bench.temporal.replay SIDE FILE``: replay a history in a fresh process, and tell how long that took."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory

from bench.temporal.sides import SIDES


async def replay(side: str, history: bytes) -> dict[str, float]:
    """Replay a history; raise if the code and the history do not agree."""
    events = History.FromString(history).events
    replayer = SIDES[side].replayer()
    begun = time.perf_counter()
    await replayer.replay_workflow(WorkflowHistory("replayed", events))
    seconds = time.perf_counter() - begun
    return {"call_s": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(replay(sys.argv[1], Path(sys.argv[2]).read_bytes()))))
