"""Many answers at once from a process without a worker: it hosts the workflow once for all of them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from strands_durable import ExecutionHandle, ExecutionStatus, SyncBackend
from strands_durable.backends.temporal import TemporalBackend, _workflow_worker
from strands_durable.errors import ExecutionCancelledError
from strands_durable.testing.agents import contract_agent
from strands_durable.testing.temporal import TemporalServer
from tests import threads
from tests.temporal.running import url_of, working

COUNT = 6
FROZEN_SECONDS = 12.0
"""A little longer than Temporal's SDK waits for the server when a worker starts."""
SCRIPT = [{"tool": "approve", "what": "trip"}, "Done."]


async def asked(backend: TemporalBackend, folder: Path, count: int = COUNT) -> list[tuple[ExecutionHandle, str]]:
    """Dispatch executions and return them with their questions, once each of them waits for a person."""
    spec = contract_agent.spec_with(folder=str(folder), script=SCRIPT)
    handles = [await backend.dispatch(spec, "Go", execution_id=f"run-{number}") for number in range(count)]
    results = [await handle.result(60) for handle in handles]
    return [(handle, result.interrupts[0].id) for handle, result in zip(handles, results, strict=True)]


@pytest.mark.parametrize("has_client", [False, True], ids=["url", "client"])
def test_answers_given_at_once_are_all_recorded_and_raise_nothing(
    temporal: TemporalServer, tmp_path: Path, has_client: bool
) -> None:
    url = url_of(temporal, worker="off")

    async def main() -> None:
        given: dict[str, Any] = {"client": await Client.connect(temporal.address)} if has_client else {}
        backend = TemporalBackend(url, **given)
        with working(url):
            found = await asyncio.to_thread(lambda: asyncio.run(asked(TemporalBackend(url), tmp_path)))
        handles = [(await backend.get(handle.execution_id), question) for handle, question in found]
        outcomes = await asyncio.gather(
            *(handle.respond({question: "yes"}) for handle, question in handles), return_exceptions=True
        )
        assert outcomes == [None] * COUNT
        for handle, _ in handles:
            assert await handle.interrupts() == []

    asyncio.run(main())


def test_answers_given_by_threads_with_one_client_are_all_recorded(temporal: TemporalServer, tmp_path: Path) -> None:
    url = url_of(temporal, worker="off")
    with working(url):
        found = asyncio.run(asked(TemporalBackend(url), tmp_path))
    backend = TemporalBackend(url, client=asyncio.run(Client.connect(temporal.address)))
    sync, outcomes = SyncBackend(backend), list[object]()

    def respond(number: int, execution_id: str, question: str) -> None:
        try:
            if number % 2:
                sync.get(execution_id).respond({question: "yes"})
            else:
                asyncio.run(answer(execution_id, question))
            outcomes.append(None)
        except BaseException as error:
            outcomes.append(error)

    async def answer(execution_id: str, question: str) -> None:
        await (await backend.get(execution_id)).respond({question: "yes"})

    answering = [
        threading.Thread(target=respond, args=(number, handle.execution_id, question), daemon=True)
        for number, (handle, question) in enumerate(found)
    ]
    for thread in answering:
        thread.start()
    threads.join(*answering)
    assert outcomes == [None] * COUNT


def test_an_answer_a_result_and_a_cancel_at_once_end_without_a_raw_error(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    url = url_of(temporal, worker="off")

    async def main() -> None:
        backend = TemporalBackend(url)
        with working(url):
            ((handle, question),) = await asyncio.to_thread(
                lambda: asyncio.run(asked(TemporalBackend(url), tmp_path, 1))
            )
        handle = await backend.get(handle.execution_id)
        answered, ended, stopped = await asyncio.gather(
            handle.respond({question: "yes"}), handle.result(60), handle.cancel(), return_exceptions=True
        )
        assert stopped is None
        assert answered is None or isinstance(answered, ExecutionCancelledError)
        assert isinstance(ended, ExecutionCancelledError) or ended.interrupts
        assert await handle.status() is ExecutionStatus.CANCELLED

    asyncio.run(main())


def test_an_answer_is_recorded_although_the_server_does_not_answer_while_the_workflow_is_first_hosted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = _workflow_worker.sandbox

    async def main(server: TemporalServer) -> None:
        url = url_of(server, worker="off")
        with working(url):
            found = await asyncio.to_thread(lambda: asyncio.run(asked(TemporalBackend(url), tmp_path, 2)))
        loop, backend = asyncio.get_running_loop(), TemporalBackend(url)

        def freeze() -> Any:
            monkeypatch.setattr(_workflow_worker, "sandbox", sandbox)
            os.kill(server.pid, signal.SIGSTOP)
            loop.call_soon_threadsafe(loop.call_later, FROZEN_SECONDS, os.kill, server.pid, signal.SIGCONT)
            return sandbox()

        for execution, question in found:
            monkeypatch.setattr(_workflow_worker, "sandbox", freeze)
            handle = await backend.get(execution.execution_id)
            await handle.respond({question: "yes"})
            assert await handle.interrupts() == []

    with TemporalServer() as server:
        asyncio.run(main(server))


def test_a_worker_starts_although_its_process_hosts_the_workflow(temporal: TemporalServer, tmp_path: Path) -> None:
    url = url_of(temporal, worker="off")

    async def main() -> None:
        backend, stop = TemporalBackend(url), asyncio.Event()
        async with _workflow_worker.workflow_worker(await backend.client(), backend.config.task_queue):
            working = asyncio.ensure_future(backend.work(stop=stop, drain_seconds=5))
            asking = asyncio.ensure_future(asked(backend, tmp_path, 1))
            await asyncio.wait([working, asking], return_when=asyncio.FIRST_COMPLETED)
            assert not working.done(), working.exception()
            ((handle, question),) = await asking
            await handle.respond({question: "yes"})
            assert str(await handle.result(60)) == "Done.\n"
            stop.set()
            assert await working

    asyncio.run(main())
