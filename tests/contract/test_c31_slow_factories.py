"""C31: a factory is the user's code. One that is slow, or that hangs, blocks only the runs of its own agent."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strands_durable import durable_agent, errors
from strands_durable._dispatch.worker import Worker
from tests.dispatched import agent_of, backend, dispatch
from tests.processes import run
from tests.waiting import until, until_async


@durable_agent(build_timeout=2.0)
def slow(part: str = "") -> Any:
    """A factory that hangs, where a file says so, until it is gone."""
    Path("built").write_text(part)
    until(lambda: not Path(f"hang{part}").exists(), 20)
    return agent_of(["Built."])


@durable_agent
def picky(tone: str) -> Any:
    """A factory whose arguments change what it builds only where a file says so."""
    return agent_of(["Fine."], system_prompt=tone if Path("changed").exists() else "plain")


@contextmanager
def work() -> Iterator[Any]:
    """Give a function that runs what tests do beside a worker in this loop."""

    async def beside(doing: Any) -> Any:
        stop = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve()).run(stop, 5.0))
        try:
            return await asyncio.wait_for(doing, 30)
        finally:
            Path("hang").unlink(missing_ok=True)
            stop.set()
            await working

    yield lambda doing: asyncio.run(beside(doing))


def forgotten(agent: Any) -> None:
    agent._specs.clear()


def test_c31_a_factory_that_hangs_does_not_block_other_executions() -> None:
    hanging = dispatch([], "hanging", agent=slow)
    other = dispatch([{"tool": "book", "city": "Rome"}, "Done."], "other")
    forgotten(slow)
    Path("hang").touch()

    async def doing() -> None:
        started = time.monotonic()
        while not Path("built").exists():
            await asyncio.sleep(0.005)
        assert time.monotonic() - started < 5.0
        ticks = [time.monotonic()]
        while (await other.status()).value != "COMPLETED":
            await asyncio.sleep(0.005)
            ticks.append(time.monotonic())
        assert max(late - early for early, late in itertools.pairwise(ticks)) < 1.5, "the loop is free"
        assert Path("hang").exists()
        await until_async(lambda: noted(hanging))
        assert "did not return within 2 s" in await noted(hanging)
        Path("hang").unlink()
        assert str(await hanging.result(20)) == "Built.\n", "it has returned since, and is looked at again"

    with work() as beside:
        beside(doing())


async def noted(handle: Any) -> str:
    return (await handle.detail()).execution.note or ""


def test_c31_a_factory_that_hangs_when_the_agent_is_built_fails_the_run_with_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strands_durable._dispatch.runner._BACK_OFF_SECONDS", (0.01,))
    handle = dispatch([], "run", agent=slow)
    Path("hang").touch()  # what the agent is made of is known here: only building it is left

    async def doing() -> None:
        with pytest.raises(errors.ExecutionFailedError, match=r"did not return within 2 s") as caught:
            await handle.result(20)
        assert isinstance(caught.value.__cause__, TimeoutError)

    with work() as beside:
        beside(doing())


def test_c31_a_factory_that_hangs_for_some_arguments_holds_up_no_others() -> None:
    hanging = dispatch([], "hanging", agent=slow)
    spec = replace(slow.spec, arguments={"part": "-other"})
    other = asyncio.run(backend().dispatch(spec, "Go", execution_id="other"))
    forgotten(slow)
    Path("hang").touch()

    async def doing() -> None:
        assert str(await other.result(20)) == "Built.\n"
        assert (await hanging.status()).value == "PENDING"

    with work() as beside:
        beside(doing())


def test_c26_what_is_refused_with_some_arguments_is_not_refused_with_others() -> None:
    loud = asyncio.run(backend().dispatch(picky.spec_with(tone="loud"), "Go", execution_id="loud"))
    plain = asyncio.run(backend().dispatch(picky.spec_with(tone="plain"), "Go", execution_id="plain"))
    forgotten(picky)
    Path("changed").touch()

    async def doing() -> None:
        assert str(await plain.result(10)) == "Fine.\n"
        await until_async(lambda: noted(loud))
        assert "was dispatched as" in await noted(loud)

    with work() as beside:
        beside(doing())


def test_c31_a_dispatch_leaves_the_loop_of_its_caller_free_while_the_factory_runs() -> None:
    forgotten(slow)
    Path("hang").touch()

    async def main() -> None:
        ticks = [time.monotonic()]
        dispatching = asyncio.ensure_future(slow.on(backend()).dispatch_async("Go", execution_id="run"))
        while not dispatching.done():
            await asyncio.sleep(0.005)
            ticks.append(time.monotonic())
        assert max(late - early for early, late in itertools.pairwise(ticks)) < 1.5
        with pytest.raises(TimeoutError, match=r"The factory of agent .slow. did not return within 2 s"):
            await dispatching
        Path("hang").unlink()
        handle = await slow.on(backend()).dispatch_async("Go", execution_id="run")
        assert (await handle.status()).value == "PENDING"

    asyncio.run(main())


def test_c31_a_process_ends_although_a_factory_hangs() -> None:
    dispatch([], "run", agent=slow)
    Path("hang").touch()
    started = time.monotonic()
    run(_works_a_little, os.getcwd()).checked()
    assert time.monotonic() - started < 15


def _works_a_little(folder: str) -> None:
    os.chdir(folder)

    async def main() -> None:
        stop = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve()).run(stop, 0.1))
        while not Path("built").exists():
            await asyncio.sleep(0.01)
        stop.set()
        await working

    asyncio.run(main())


def test_c31_a_build_timeout_is_checked_where_it_is_written_down() -> None:
    with pytest.raises(ValueError, match="build_timeout=0"):
        durable_agent(build_timeout=0)(lambda: None)  # type: ignore[arg-type, return-value]


def test_c31_what_a_factory_raises_at_dispatch_is_raised_there() -> None:
    @durable_agent(name="broken")
    def broken() -> Any:
        raise LookupError("no key")

    with pytest.raises(LookupError, match="no key"):
        asyncio.run(broken.on(backend()).dispatch_async("Go"))
