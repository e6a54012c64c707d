"""What hooks after a step left while others run: no step returns it, so it is reported by a signal."""

from __future__ import annotations

import asyncio
import threading

from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing.temporal import TemporalServer
from tests.contract.test_c61_slow_hooks import judged, wishes
from tests.contract.test_memory_engine import BOTH, done, gates
from tests.temporal.running import history, kinds, url_of, working
from tests.waiting import until, until_async


def test_what_slow_hooks_left_is_part_of_history_while_a_sibling_runs(temporal: TemporalServer) -> None:
    done.clear()
    wishes.clear()
    gates["slow"] = threading.Event()
    url = url_of(temporal)

    async def is_reported() -> bool:
        return kinds(await history(TemporalBackend(url), "run"))["WORKFLOW_EXECUTION_SIGNALED"] > 1

    async def result() -> str:
        handle = await TemporalBackend(url).dispatch(judged.spec_with(script=BOTH), "Go", execution_id="run")
        await asyncio.to_thread(until, lambda: wishes == ["keep"])
        await until_async(is_reported, seconds=10)
        gates["slow"].set()
        return str(await handle.result(30))

    with working(url):
        assert asyncio.run(result()) == "Done.\n"
