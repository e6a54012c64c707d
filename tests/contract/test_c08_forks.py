"""C8 across a fork: a server that opens its store and then forks, as pre-fork servers do."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

from strands_durable import connect
from strands_durable._sqlite.change_feed import change_feed
from tests.dispatched import OFF, backend, dispatch, result, stop, worker
from tests.waiting import until

_SERVER = """
import asyncio, os, sys, threading, time
from pathlib import Path
from tests.dispatched import backend, dispatch

dispatch(["Hi."], "before")
try:
    asyncio.run(asyncio.run(backend().get("before")).result(0.01))
except TimeoutError:
    pass
while any("watch" in thread.name for thread in threading.enumerate()):
    time.sleep(0.05)
parent = os.getpid()
if os.fork() == 0:
    dispatch(["Hi."], "beside")
    Path("begun").touch()
    while os.getppid() == parent:
        time.sleep(0.01)
    time.sleep(0.1)
    dispatch(["Hi."], "after")
    Path("done").touch()
    os._exit(0)
while not Path("begun").exists():
    time.sleep(0.01)
"""


def test_c08_a_child_that_outlives_the_process_that_forked_it_loses_nothing() -> None:
    folder = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", _SERVER], check=True, timeout=60, env=environment)
    until(Path("done").exists)
    found = {record.execution_id for record in asyncio.run(connect(OFF).list())}
    assert found == {"before", "beside", "after"}
    current = worker()
    handles = [asyncio.run(backend().get(execution_id)) for execution_id in sorted(found)]
    assert [str(result(handle)) for handle in handles] == ["Hi.\n"] * 3
    stop(current)


def test_c08_a_fork_waits_for_no_lock_that_its_thread_holds() -> None:
    dispatch(["Hi."], "run")
    with backend().store.transaction("test"):
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert asyncio.run(asyncio.run(backend().get("run")).status()).value == "PENDING"


def test_c27_a_caller_that_begins_to_wait_while_the_store_is_polled_is_notified() -> None:
    """A commit after the caller has looked, and before the feed has, must not be reported to the other callers alone."""
    handle = dispatch(["Hi."], "run")
    store = backend().store
    plainly = store.second_connection

    async def main() -> None:
        loop, notified = asyncio.get_running_loop(), asyncio.Event()

        async def wait() -> None:
            async with change_feed(store).changes() as change:
                begun.set()
                await change.wait(20)
                notified.set()

        def slowly():  # type: ignore[no-untyped-def]
            asyncio.run_coroutine_threadsafe(begin(), loop).result()
            store.second_connection = plainly  # type: ignore[method-assign]
            found = plainly()
            asyncio.run_coroutine_threadsafe(handle.cancel(), loop).result()
            return found

        begun, waiting = asyncio.Event(), []

        async def begin() -> None:
            waiting.append(asyncio.ensure_future(wait()))
            await begun.wait()

        store.second_connection = slowly  # type: ignore[method-assign]
        async with change_feed(store).changes():
            await asyncio.wait_for(notified.wait(), 10)
        assert notified.is_set()
        await waiting[0]

    asyncio.run(main())


def test_c27_an_unused_store_is_not_kept_open_by_earlier_waits() -> None:
    from strands_durable.testing import forget_process

    dispatch(["Hi."], "run")
    known = weakref.ref(backend().store)
    change_feed(backend().store)
    forget_process()
    gc.collect()
    assert known() is None
