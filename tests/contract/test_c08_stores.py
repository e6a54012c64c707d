"""C8: workers and those who wait see that the file they have open is gone; backends on one file share one worker."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from strands_durable import connect, errors
from strands_durable._dispatch.worker import Worker
from tests.dispatched import OFF, dispatch, scripted, status
from tests.processes import Child


def dispatch_elsewhere(folder: str, execution_id: str) -> None:
    os.chdir(folder)
    dispatch(["Hi."], execution_id)


def status_elsewhere(folder: str, execution_id: str) -> str:
    os.chdir(folder)
    return status(execution_id)


def delete() -> None:
    for path in Path().glob("runs.db*"):
        path.unlink()


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "strands-durable-worker"]


def test_c08_a_worker_continues_with_the_store_that_has_replaced_its_own() -> None:
    handle = dispatch(["Hi."], "first")

    async def main() -> str:
        ends = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve()).run(ends, 5.0))
        await handle.result(20)
        delete()
        await asyncio.sleep(1.2)
        assert not Path("runs.db").exists(), "a worker makes no store"
        await asyncio.to_thread(lambda: Child(dispatch_elsewhere, os.getcwd(), "second").join().checked())
        found = ""
        while found != "COMPLETED":
            found = await asyncio.to_thread(lambda: Child(status_elsewhere, os.getcwd(), "second").join().checked())
        ends.set()
        await working
        return found

    assert asyncio.run(asyncio.wait_for(main(), 60)) == "COMPLETED"


def test_c27_waiting_for_an_execution_whose_store_is_deleted_raises() -> None:
    handle = dispatch(["Hi."], "run")

    async def main() -> None:
        waiting = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0.2)
        delete()
        with pytest.raises(errors.BackendUnavailableError, match="deleted or replaced"):
            await asyncio.wait_for(waiting, 10)
        with pytest.raises(errors.BackendUnavailableError, match="deleted or replaced"):
            await handle.status()

    asyncio.run(main())
    assert not Path("runs.db").exists(), "waiting for it does not create it again"


def test_c31_backends_that_are_alike_share_one_worker_and_the_last_that_is_closed_stops_it() -> None:
    before = len(workers())
    spec = scripted.spec_with(script=["Hi."])

    async def main() -> None:
        kept = connect("sqlite:///runs.db")
        for number in range(5):
            handle = await connect(f"sqlite:///{Path('runs.db').resolve()}").dispatch(spec, f"Go {number}")
            assert str(await handle.result(20)) == "Hi.\n"
        handle = await kept.dispatch(spec, "Go")
        assert len(workers()) == before + 1
        passing = connect("sqlite:///runs.db")
        passing.start()
        await passing.close()
        assert len(workers()) == before + 1, "another backend has it, too"
        assert str(await handle.result(20)) == "Hi.\n"
        handle = await connect(OFF).dispatch(spec, "Once more")
        assert str(await (await kept.get(handle.execution_id)).result(20)) == "Hi.\n"
        await kept.close()
        assert len(workers()) == before

    asyncio.run(main())
