"""One process of Dapr: started, killed, frozen and started again on the same ports, and gone with the process that owns it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path

import psutil

from ...errors import BackendUnavailableError

_PATIENCE_SECONDS = 60
_STARTS = 4
"""How often a process that exits before it answers is started: a sidecar gives up on a database that another one opens."""
_GUARD = 'read _; kill -9 "$0"'
"""Run by a shell beside the process: its input ends when the process that started both exits, however it exits."""


class DaprProcess:
    """A process of Dapr; kill it, freeze it and start it again to test how your agents handle that."""

    def __init__(self, name: str, command: list[str], folder: Path, ports: Ports, health: tuple[int, str]) -> None:
        self.name, self.folder = name, folder
        self._command, self._ports = command, ports
        self._health_port, self._health_path = health
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process; raises if it is not running."""
        if self._process is None:
            raise self._unusable("it is not running", "Call start().")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """Start it, the first time or again, and return when it answers."""
        self.launch()
        self.await_health()

    def launch(self) -> None:
        """Start it, and return at once."""
        if self._process is not None:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env={**os.environ, "DAPR_HOST_IP": "127.0.0.1"},  # where sidecars reach each other
                start_new_session=True,  # Ctrl-C is for the tests, which may still need Dapr to finish
            )  # fmt: skip
        guard = ["sh", "-c", _GUARD, str(self._process.pid)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)

    def await_health(self) -> None:
        """Return when it answers; start it again if it exits instead, and raise if that does not help."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        starts = 1
        try:
            while not self.is_healthy():
                code = None if self._process is None else self._process.poll()
                if code is not None and starts == _STARTS:
                    raise self._unusable(f"it exited with code {code}", self._log_end())
                if code is not None:
                    starts += 1
                    self.kill()
                    self.launch()
                if time.monotonic() > deadline:
                    raise self._unusable(f"it did not answer within {_PATIENCE_SECONDS} s", self._log_end())
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise

    def is_healthy(self) -> bool:
        """Return whether it says that it can work."""
        connection = http.client.HTTPConnection("127.0.0.1", self._health_port, timeout=2)
        try:
            connection.request("GET", self._health_path)
            return connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it, start it again, and return when it answers."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop it with SIGSTOP, and return when all its threads stand still; its connections stay open."""
        self._signal(signal.SIGSTOP)
        while not _stands_still(self.pid):
            time.sleep(0.001)

    def thaw(self) -> None:
        """Let a frozen process continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, how: signal.Signals) -> None:
        if self._process is None:
            raise self._unusable("it is not running", "Call start().")
        self._process.send_signal(how)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        guard, self._guard = self._guard, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:  # also a frozen one, which takes no SIGTERM
            process.kill()
            process.wait()
        if guard is not None:
            guard.kill()
            guard.communicate()

    def _log_end(self) -> str:
        return f"The end of its log:\n{self.log.read_text(errors='replace')[-2000:].strip()}"

    def _unusable(self, reason: str, hint: str) -> BackendUnavailableError:
        return BackendUnavailableError(f"Dapr's {self.name}", reason, hint)


class Sidecar(DaprProcess):
    """A `daprd`: apps connect to its gRPC port."""

    def __init__(self, name: str, command: list[str], folder: Path, ports: Ports, store: str) -> None:
        self.grpc_port, self.http_port, *_ = ports.numbers
        self._store = store
        super().__init__(name, command, folder, ports, (self.http_port, "/v1.0/healthz/outbound"))

    @property
    def address(self) -> str:
        """The address of its gRPC API: ``127.0.0.1:port``."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def url(self) -> str:
        """The URL for `connect`: ``dapr://127.0.0.1:port?store=statestore``."""
        return f"dapr://{self.address}?store={self._store}"


def _stands_still(pid: int) -> bool:
    """Return whether a process has stopped: each thread does so when it gets to it, a moment after the signal."""
    if sys.platform != "linux":
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)


class Ports:
    """Free ports that stay reserved while this object lives; Dapr can bind each of them repeatedly."""

    def __init__(self, count: int) -> None:
        self._held = [socket.socket() for _ in range(count)]
        for held in self._held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
        self.numbers: list[int] = [held.getsockname()[1] for held in self._held]
        if sys.platform == "linux":  # elsewhere, a reserved port cannot be bound a second time
            weakref.finalize(self, _close, self._held)
        else:
            _close(self._held)


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
