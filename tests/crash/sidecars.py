"""Workers beside sidecars of Dapr in processes of their own, and what they leave behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from strands_durable import ExecutionHandle, connect
from strands_durable._enginekit.log import RecordedExecution
from strands_durable.backends.dapr import DaprBackend
from strands_durable.testing.dapr import DaprCluster, Sidecar
from tests.crash import crew
from tests.crash.site import EngineSite
from tests.processes import Child

SILENT_SECONDS = 15 + 5
"""How long a frozen worker is not missed: Dapr pings it after 10 s and waits 5 s, and then we wait for its heartbeat."""


class DaprSite(EngineSite):
    """Some sidecars with a worker each, and one more for the client: it is not killed."""

    backend: DaprBackend

    def __init__(self, folder: Path, sidecars: int = 2, *, store: str | None = None, **options: str) -> None:
        self.cluster = DaprCluster(sidecars + 1, store=store, folder=folder / "dapr")
        self._options = "".join(f"&{name}={value}" for name, value in options.items())
        super().__init__(self.cluster.sidecars[-1].url + self._options, folder)
        backend = connect(self.url)
        assert isinstance(backend, DaprBackend)
        self.backend = backend
        self._beside: dict[int, tuple[Child, Sidecar]] = {}

    def __enter__(self) -> DaprSite:
        self.cluster.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        finally:
            self.cluster.kill()

    def recorded(self, handle: ExecutionHandle) -> RecordedExecution:
        """Return what is in the store of an execution."""
        return self.run(self.backend.read(handle.execution_id))

    def worker(self, *args: Any, target: Callable[..., Any] = crew.serve, url: str = "") -> Child:
        """Start a worker beside a sidecar that has none."""
        taken = [sidecar for child, sidecar in self._beside.values() if child.process.is_alive()]
        sidecar = next(each for each in self.cluster.sidecars[:-1] if each not in taken)
        child = super().worker(*args, target=target, url=url or sidecar.url + self._options)
        self._beside[child.pid] = child, sidecar
        return child

    def sidecar_of(self, worker: Child) -> Sidecar:
        """Return the sidecar beside which a worker was started."""
        return self._beside[worker.pid][1]

    def killed(self, worker: Child) -> None:
        """Kill a worker if it has not ended, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        worker.process.join()
