"""Where no worker polls the task queue, the caller that waits reads so, with the command to type."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strands_durable import ExecutionStatus
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing import agents
from strands_durable.testing.temporal import TemporalServer
from tests.commands import cli
from tests.temporal.running import url_of, working
from tests.waiting import until_async

SCRIPT = [{"tool": "approve", "what": "trip"}, {"fails_until": "fixed"}]


def test_a_caller_that_waits_reads_that_no_worker_polls_the_task_queue(
    temporal: TemporalServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = url_of(temporal, payloads="memory://me:word@shelf")
    backend = TemporalBackend(url)
    queue = backend.config.task_queue
    spec = agents.contract_agent.spec_with(folder=str(tmp_path), script=["Done."])
    worker = f"strands-durable worker FILE --backend 'temporal://{temporal.address}?task_queue={queue}&payloads=...'"

    async def is_said() -> bool:
        return "no worker polls" in caplog.text

    async def main() -> None:
        handle = await backend.dispatch(spec, "Go", execution_id="run")
        begun = time.monotonic()
        waiting = asyncio.ensure_future(handle.result(60))
        await until_async(is_said)
        assert 3 <= time.monotonic() - begun <= 20
        for part in ("execution_id=<run>", f"task queue '{queue}' in namespace 'default'", worker):
            assert part in caplog.text
        assert "word" not in caplog.text
        with pytest.raises(
            TimeoutError, match=rf"PENDING after 0\.1 s; no worker polls task queue '{queue}'"
        ) as caught:
            await handle.result(0.1)
        assert worker in str(caught.value)
        with working(url):
            assert str(await waiting) == "Done.\n"
            assert await backend.unattended() is None

    caplog.set_level(logging.WARNING)
    asyncio.run(main())


def test_an_agent_that_is_called_where_no_worker_is_says_so_on_stderr(temporal: TemporalServer, tmp_path: Path) -> None:
    given = f"folder={str(tmp_path)!r}, script=['Done.']"
    code = f"from strands_durable.testing import agents; agents.contract_agent.on({url_of(temporal)!r})('Go', {given})"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert "no worker polls task queue" in process.stderr.readline()
    finally:
        process.kill()
        process.communicate()


def test_commands_that_leave_work_to_workers_say_that_none_polls(
    temporal: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, target = url_of(temporal), "strands_durable.testing.agents:contract_agent"
    backend = TemporalBackend(url)
    expected = f"no worker polls task queue '{backend.config.task_queue}'"
    given = [f'--arg=folder="{tmp_path}"', f"--arg=script={json.dumps(SCRIPT)}", "--id=run", f"--backend={url}"]
    detached = cli("run", target, "Go", "--detach", *given)
    assert (detached.stdout, expected in detached.stderr) == ("run\n", True)
    monkeypatch.setattr("strands_durable.backends.temporal._pollers._POLL_SECONDS", 0.0)  # who has polled is gone
    with working(url):
        asyncio.run(until_it_is(backend, ExecutionStatus.SUSPENDED))
    responded = cli("respond", "run", "--answer", '"yes"', "--backend", url)
    assert ("Answer recorded." in responded.stdout, expected in responded.stderr) == (True, True)
    with working(url):
        asyncio.run(until_it_is(backend, ExecutionStatus.FAILED))
    resumed = cli("resume", "run", "--backend", url)
    assert ("Requested." in resumed.stdout, expected in resumed.stderr) == (True, True)


async def until_it_is(backend: TemporalBackend, status: ExecutionStatus) -> None:
    handle = await backend.get("run")

    async def is_it() -> bool:
        return await handle.status() is status

    await until_async(is_it)
