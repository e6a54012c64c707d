"""Record the histories that must replay for ever: ``python -m tests.temporal.record [NAME]``, once for each release.

Each is a workflow as a real server has recorded it, in tests/temporal/histories/VERSION. They are never changed afterwards: a
workflow that is running while a worker is replaced by one of a newer version has such a history.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

from strands_durable import ExecutionHandle, Notification, errors
from strands_durable._enginekit.payloads import PayloadLimits, PayloadStore
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.backends.temporal._protocol import ALIVE
from strands_durable.testing import agents as contract
from strands_durable.testing.contract._bench import BOOK, WAIT
from strands_durable.testing.temporal import TemporalServer
from tests.temporal import agents
from tests.temporal.running import url_of, working
from tests.waiting import until_async

HISTORIES = Path(__file__).with_name("histories")
ASK = {"tool": "approve", "what": "trip"}
LONG = ("goes on in new runs", "is carried in pieces")
PATIENCE = 60.0
_WORKER = "import socket; socket.gethostname = lambda: 'worker'; from strands_durable._cli import main; main()"


def main() -> None:
    """Record all, without the name of the machine."""
    socket.gethostname = lambda: "worker"
    folder = HISTORIES / (sys.argv[1] if len(sys.argv) > 1 else version("strands-durable"))
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place, TemporalServer(Path(place, "temporal.db")) as server:
        for name, record in RECORDS.items():
            path = folder / file_of(name)
            asyncio.run(_record(server, path, record))
            print(f"{name}: {path.stat().st_size:,} bytes")


def file_of(name: str) -> str:
    """Return the name of the file for a kind of history."""
    return f"{name.replace(' ', '_')}.json"


async def _record(server: TemporalServer, path: Path, record: Callable[[Any], Awaitable[None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = url_of(server, heartbeat_seconds=2, max_events=60 if path.name in map(file_of, LONG) else 0)
        backend = TemporalBackend(url)
        if path.name == file_of("is reported"):
            backend.notify(on_suspended=_take, on_completed=_take)
        if path.name in (file_of("loses its worker"), file_of("loses sight of its worker")):
            await record((backend, url, folder, server))
        else:
            with working(url):
                await record((backend, url, folder, server))
        handle = (await backend.client()).get_workflow_handle(backend.workflow_id("run"))
        path.write_text((await handle.fetch_history()).to_json())


async def _dispatch(backend: TemporalBackend, folder: str, *script: Any, agent: Any = None) -> ExecutionHandle:
    spec = (agent or contract.contract_agent).spec_with(folder=folder, script=list(script))
    return await backend.dispatch(spec, "Go", execution_id="run")


async def _completes(given: Any) -> None:
    backend, _, folder, _ = given
    await (await _dispatch(backend, folder, BOOK, BOOK, "Booked.")).result(PATIENCE)


async def _is_answered(given: Any) -> None:
    backend, _, folder, _ = given
    handle = await _dispatch(backend, folder, ASK, "Done.")
    question = (await handle.result(PATIENCE)).interrupts[0]
    await handle.respond({question.id: "yes"})
    await handle.result(PATIENCE)


def _take(notification: Notification) -> None:
    """Take a notification."""


async def _fails(given: Any) -> None:
    backend, _, folder, _ = given
    handle = await _dispatch(backend, folder, BOOK, {"fails_until": "mended"})
    for _ in range(2):
        try:
            await handle.result(PATIENCE)
        except errors.ExecutionFailedError:
            await handle.resume()
    Path(folder, "mended").touch()
    try:
        await handle.result(PATIENCE)
    except errors.ExecutionFailedError:
        await handle.resume()
        await handle.result(PATIENCE)


async def _is_cancelled(given: Any) -> None:
    backend, _, folder, _ = given
    handle = await _dispatch(backend, folder, BOOK, WAIT, "Done.")
    await until_async(lambda: _has(folder, "wait"))
    await handle.cancel()
    try:
        await handle.result(PATIENCE)
    except errors.ExecutionCancelledError:
        return


async def _is_a_graph(given: Any) -> None:
    backend, _, folder, _ = given
    await (await _dispatch(backend, folder, BOOK, "Booked.", agent=contract.contract_graph)).result(PATIENCE)


async def _continues_in_new_runs(given: Any) -> None:
    backend, _, _, _ = given
    handle = await backend.dispatch(agents.cycler.spec_with(cycles=12), "Go", execution_id="run")
    await handle.result(PATIENCE)


async def _is_carried_in_pieces(given: Any) -> None:
    with mock.patch.object(PayloadStore, "limits", PayloadLimits(max_bytes=4000)):
        await _continues_in_new_runs(given)


async def _outlives_an_outage(given: Any) -> None:
    backend, _, folder, server = given
    handle = await _dispatch(backend, folder, BOOK, WAIT, "Done.")
    await until_async(lambda: _has(folder, "wait"))
    server.kill()
    await asyncio.sleep(4)
    server.start()
    await until_async(lambda: _is_resumed(backend))
    Path(folder, "go").touch()
    await handle.result(PATIENCE)


async def _is_resumed(backend: TemporalBackend) -> bool:
    events = (await backend.workflow("run")).fetch_history_events()
    return b'"held":true' in b"".join([event.SerializeToString() async for event in events])


async def _is_throttled(given: Any) -> None:
    backend, _, folder, _ = given
    await (await backend.dispatch(agents.throttled.spec_with(folder=folder), "Go", execution_id="run")).result(PATIENCE)


async def _loses_its_worker(given: Any, *, lives: bool = False) -> None:
    backend, url, folder, _ = given
    handle = await _dispatch(backend, folder, BOOK, WAIT, "Done.")
    command = [sys.executable, "-c", _WORKER, "worker", "strands_durable.testing.agents", "--backend", url]
    for expected in (1, 2):
        worker = subprocess.Popen([*command, "--quiet"], stdout=subprocess.DEVNULL)
        await until_async(lambda expected=expected: _has(folder, "wait", expected), 120)  # type: ignore[misc]
        if expected == 1:
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
            if lives:
                await (await backend.workflow("run")).signal(ALIVE, {"epoch": 1})
    Path(folder, "go").touch()
    await handle.result(PATIENCE)
    worker.terminate()
    worker.wait()


async def _has(folder: str, kind: str, times: int = 1) -> bool:
    return len([mark for mark in contract.marks(folder) if mark["kind"] == kind]) >= times


RECORDS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "completes": _completes,
    "is answered": _is_answered,
    "is reported": _is_answered,
    "fails and is resumed": _fails,
    "is cancelled": _is_cancelled,
    "is a graph": _is_a_graph,
    "goes on in new runs": _continues_in_new_runs,
    "is carried in pieces": _is_carried_in_pieces,
    "outlives an outage": _outlives_an_outage,
    "is throttled": _is_throttled,
    "loses its worker": _loses_its_worker,
    "loses sight of its worker": partial(_loses_its_worker, lives=True),
}

if __name__ == "__main__":
    main()
