"""Which runs a process works on that dispatches: its own, unless it is asked for more."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect
from strands_durable._dispatch import worker
from strands_durable.backends.sqlite import SqliteBackend, _shared
from tests.dispatched import dispatch, scripted, status
from tests.processes import run
from tests.waiting import until, until_async


def in_another_process(doing: Any, *given: Any) -> Any:
    return run(doing, os.getcwd(), *given).checked()


def _dispatches(folder: str, execution_id: str) -> str:
    os.chdir(folder)
    return str(scripted.on("sqlite:///runs.db")("Go", execution_id=execution_id, script=["Hi."])).strip()


def test_a_process_that_dispatches_works_on_its_own_runs_and_leaves_those_of_others_alone() -> None:
    dispatch(["Hi."], "somebody-else-s")
    assert in_another_process(_dispatches, "mine") == "Hi."
    assert (status("mine"), status("somebody-else-s")) == ("COMPLETED", "PENDING")


def test_a_script_that_is_run_again_resumes_what_it_had_dispatched() -> None:
    dispatch(["Hi."], "mine")  # and the process that did so is gone
    assert in_another_process(_dispatches, "mine") == "Hi."


def _waits(folder: str) -> str:
    os.chdir(folder)

    async def main() -> str:
        return str(await (await connect("sqlite:///runs.db").get("run")).result(timeout=30)).strip()

    return asyncio.run(main())


def test_a_process_that_waits_for_a_run_works_on_it() -> None:
    dispatch(["Hi."], "run")
    assert in_another_process(_waits) == "Hi."


def _looks(folder: str) -> list[str]:
    os.chdir(folder)

    async def main() -> list[str]:
        backend = connect("sqlite:///runs.db")
        handle = await backend.get("run")
        found = [(await handle.status()).value, *[step.name for step in await handle.steps()]]
        await scripted.on(backend).invoke_async("Go", execution_id="mine", script=["Hi."])
        return [*found, (await handle.status()).value]

    return asyncio.run(main())


def test_a_process_that_only_looks_at_a_run_does_not_work_on_it() -> None:
    dispatch(["Hi."], "run")
    assert in_another_process(_looks) == ["PENDING", "PENDING"]


def _answers(folder: str) -> str:
    os.chdir(folder)

    async def main() -> str:
        handle = await connect("sqlite:///runs.db").get("run")
        (question,) = await handle.interrupts()
        await handle.respond({question.id: "yes"})
        await until_async(lambda: _is_over(handle))
        return str(await handle.result(timeout=30)).strip()

    return asyncio.run(main())


async def _is_over(handle: Any) -> bool:
    return (await handle.status()).value == "COMPLETED"


def test_a_process_that_answers_a_run_resumes_it() -> None:
    async def ask() -> None:
        found = connect("sqlite:///runs.db")
        script = [{"tool": "approve", "what": "trip"}, "Done."]
        assert (await scripted.on(found).invoke_async("Go", execution_id="run", script=script)).interrupts
        await found.close()

    asyncio.run(ask())
    assert in_another_process(_answers) == "Done."


def _starts(folder: str, url: str) -> None:
    os.chdir(folder)
    found = connect(url)
    found.start()
    until(lambda: status("left") == "COMPLETED" or Path("enough").exists())
    asyncio.run(found.close())


@pytest.mark.parametrize("url", ["sqlite:///runs.db", "sqlite:///runs.db?worker=on"])
def test_a_server_that_calls_start_works_on_everything_that_was_left(url: str) -> None:
    dispatch(["Hi."], "left")
    in_another_process(_starts, url)
    assert status("left") == "COMPLETED"


def test_a_timeout_says_that_no_process_runs_the_execution_and_how_to_start_one() -> None:
    handle = dispatch(["Hi."], "run")
    with pytest.raises(TimeoutError, match=r"no process is running it.*strands-durable worker FILE"):
        asyncio.run(handle.result(timeout=0.01))


def test_what_the_worker_of_this_process_runs_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        found = connect("sqlite:///runs.db")
        with caplog.at_level(logging.INFO):
            await scripted.on(found).invoke_async("Go", script=["Hi."])
        await found.close()

    asyncio.run(main())
    assert "runs=<what this process dispatches, waits for, answers or resumes>" in caplog.text


def test_a_server_forgets_which_runs_were_its_own_once_they_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MIN_PRUNED", 5)

    async def main() -> None:
        found = SqliteBackend("sqlite:///runs.db", concurrency=7)
        own = _shared(found.path, 7, None, is_own=True).only
        assert own is not None
        spec = scripted.spec_with(script=["Hi."])
        for number in range(12):
            await (await found.dispatch(spec, "Go", execution_id=f"run-{number}")).result(timeout=60)
        assert len(own) <= 6
        await found.close()

    asyncio.run(main())
