"""Dapr for tests: its processes start, die, freeze and restart on request, and report why if they do not."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from strands_durable.errors import BackendUnavailableError
from strands_durable.testing.dapr import DaprCluster, Sidecar, find
from tests.processes import run
from tests.waiting import until


def save(sidecar: Sidecar, key: str, value: str) -> None:
    url = f"http://127.0.0.1:{sidecar.http_port}/v1.0/state/statestore"
    body = json.dumps([{"key": key, "value": value}]).encode()
    urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})).close()


def read(sidecar: Sidecar, key: str) -> str | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{sidecar.http_port}/v1.0/state/statestore/{key}") as answer:
        return json.loads(answer.read() or "null")  # type: ignore[no-any-return]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_what_was_saved_is_still_there_when_everything_was_killed_and_started_again(tmp_path: Path) -> None:
    with DaprCluster(2, folder=tmp_path) as cluster:
        first, second = cluster.sidecars
        save(first, "trip", "Paris")
        assert read(second, "trip") == "Paris", "sidecars of one app-id share their keys"
        urls, pids = [each.url for each in cluster.sidecars], [each.pid for each in cluster.processes]
        cluster.kill()
        assert not any(psutil.pid_exists(pid) for pid in pids)
        with pytest.raises(BackendUnavailableError, match=r"Dapr's daprd-0 cannot be used: it is not running"):
            first.pid  # noqa: B018
        cluster.start()
        assert [each.url for each in cluster.sidecars] == urls
        assert read(first, "trip") == "Paris"


def test_another_app_id_begins_with_an_empty_store(dapr: DaprCluster) -> None:
    here = dapr.sidecars[0]
    save(here, "trip", "Paris")
    other = dapr.add_sidecar("another-app")
    try:
        assert read(other, "trip") is None
        assert other.url == f"dapr://127.0.0.1:{other.grpc_port}?store=statestore"
    finally:
        other.stop()
    assert read(here, "trip") == "Paris"


def test_a_frozen_sidecar_answers_again_when_it_is_thawed(dapr: DaprCluster) -> None:
    sidecar = dapr.add_sidecar("frozen")
    sidecar.freeze()
    assert not sidecar.is_healthy()
    sidecar.thaw()
    until(sidecar.is_healthy)
    sidecar.freeze()
    sidecar.kill()
    assert not sidecar.is_running


def test_everything_but_the_health_of_the_control_plane_listens_on_this_machine_only(dapr: DaprCluster) -> None:
    for process in (dapr.placement, dapr.scheduler, dapr.sidecars[0]):
        found = [each.laddr for each in psutil.Process(process.pid).net_connections() if each.status == "LISTEN"]
        elsewhere = [each.port for each in found if each.ip not in ("127.0.0.1", "::1")]
        assert len(elsewhere) == (not isinstance(process, Sidecar)), "1.18.1 ignores --healthz-listen-address"


def start_and_die(told: str) -> None:
    cluster = DaprCluster()
    cluster.start()
    Path(told).write_text(json.dumps([each.pid for each in cluster.processes]))
    os.kill(os.getpid(), signal.SIGKILL)


def test_nothing_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    assert run(start_and_die, str(told)).exitcode == -signal.SIGKILL
    until(lambda: not any(psutil.pid_exists(pid) for pid in json.loads(told.read_text())))


def test_a_sidecar_that_exits_because_its_database_is_locked_is_started_again(tmp_path: Path) -> None:
    cluster = DaprCluster(folder=tmp_path)
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE anything (id)")
        other.execute("BEGIN EXCLUSIVE")

        def release() -> None:
            until(lambda: cluster.sidecars[0].log.exists() and "is locked" in cluster.sidecars[0].log.read_text())
            other.execute("ROLLBACK")

        with ThreadPoolExecutor() as pool:
            released = pool.submit(release)
            with cluster:
                released.result()
                assert cluster.sidecars[0].is_healthy()


def test_a_sidecar_that_does_not_start_says_why() -> None:
    with pytest.raises(BackendUnavailableError, match=r"(?s)Dapr's daprd-0.*exited with code \d\. .*nonsense"):
        DaprCluster(options=["--nonsense"]).__enter__()


def test_a_store_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="not mysql://"):
        DaprCluster(store="mysql://localhost")


def test_the_programs_on_path_come_first_but_only_all_three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def install(*names: str) -> None:
        for name in names:
            (tmp_path / name).touch(mode=0o755)

    built = find()
    monkeypatch.setenv("PATH", str(tmp_path))
    install("scheduler")
    assert find() == built, "another program of that name"
    install("daprd", "placement")
    found = find()
    assert found is not None
    assert found.folder == tmp_path


def test_a_build_that_fails_says_so_and_what_to_do_instead(tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text('#!/bin/sh\n[ "$1" = env ] && echo go1.99.0 && exit\necho the network is down\nexit 1\n')
    go.chmod(0o755)
    environment = {"PATH": f"{go.parent}:/bin", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "strands_durable.testing.dapr"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Building daprd, placement and scheduler of Dapr" in ended.stderr
    assert "'" + f"{go} build -trimpath ...' exited with code 1" in ended.stderr
    assert "dapr init --slim" in ended.stderr
    assert "the network is down" in ended.stderr
    assert [each.name for each in (tmp_path / ".cache" / "strands-durable" / "dapr").iterdir()] == ["lock"]
