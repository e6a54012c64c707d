"""What `dapr init` sets up, without Docker and for one test: placement, scheduler, and sidecars with one state store."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from ._binaries import build
from ._processes import DaprProcess, Ports, Sidecar

_STORE = "statestore"
_LOCAL = "127.0.0.1"


class DaprCluster:
    """A Dapr of its own, on free ports of 127.0.0.1.

    Args:
        sidecars: How many `daprd` to start. They are replicas: one app-id, one state store.
        store: The state store: None for a SQLite file in the folder, or a URL, ``postgresql://...`` or ``redis://host:port``.
        components: A folder with components of your own, one of which is named ``statestore``, instead of ``store``.
        folder: Where databases and logs are. If None, a temporary folder, which is removed at the end.
        app_id: The app-id of the sidecars.
        options: Additional arguments for each `daprd`, for example ``["--max-body-size", "64Mi"]``.
    """

    def __init__(
        self,
        sidecars: int = 1,
        *,
        store: str | None = None,
        components: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        app_id: str = "agents",
        options: Sequence[str] = (),
    ) -> None:
        self._binaries = build()
        if folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="dapr-"))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        else:
            self.folder = Path(folder).resolve()
            self.folder.mkdir(parents=True, exist_ok=True)
        self._app_id, self._options = app_id, list(options)
        self._components = self._written(store) if components is None else Path(components).resolve()
        self.placement = self._placement()
        self.scheduler = self._scheduler()
        self.sidecars: list[Sidecar] = []
        for _ in range(sidecars):
            self._prepare(app_id)

    @property
    def url(self) -> str:
        """The URL of the first sidecar, for `connect`."""
        return self.sidecars[0].url

    @property
    def processes(self) -> list[DaprProcess]:
        """Placement, scheduler and all sidecars."""
        return [self.placement, self.scheduler, *self.sidecars]

    def add_sidecar(self, app_id: str | None = None) -> Sidecar:
        """Start one more sidecar, of this or another app-id, and return it when it answers."""
        added = self._prepare(app_id or self._app_id)
        added.start()
        return added

    def start(self) -> None:
        """Start what is not running, and return when everything answers."""
        for process in self.processes:
            process.launch()
        for process in self.processes:
            process.await_health()

    def stop(self) -> None:
        """Stop everything with SIGTERM, sidecars first."""
        for process in reversed(self.processes):
            process.stop()

    def kill(self) -> None:
        """Kill everything with SIGKILL, as a power cut would; `start` begins again with what is on disk."""
        for process in reversed(self.processes):
            process.kill()

    def __enter__(self) -> DaprCluster:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # its databases are of no use to anybody after this

    def _placement(self) -> DaprProcess:
        ports = Ports(3)
        health, raft, self._placement_port = ports.numbers
        command = [
            str(self._binaries.placement), "--port", str(self._placement_port), "--listen-address", _LOCAL,
            "--healthz-port", str(health), "--healthz-listen-address", _LOCAL, "--enable-metrics=false",
            "--id", "dapr-placement-0", "--initial-cluster", f"dapr-placement-0={_LOCAL}:{raft}",
        ]  # fmt: skip
        return DaprProcess("placement", command, self.folder, ports, (health, "/healthz"))

    def _scheduler(self) -> DaprProcess:
        ports = Ports(4)
        health, client, peer, self._scheduler_port = ports.numbers
        data = self.folder / "etcd"
        data.mkdir(mode=0o700, exist_ok=True)
        name = "dapr-scheduler-server-0"
        command = [
            str(self._binaries.scheduler), "--id", name, "--port", str(self._scheduler_port),
            "--listen-address", _LOCAL, "--healthz-port", str(health), "--healthz-listen-address", _LOCAL,
            "--enable-metrics=false", "--etcd-data-dir", str(data), "--etcd-client-port", str(client),
            "--etcd-initial-cluster", f"{name}=http://{_LOCAL}:{peer}",
            "--identity-directory-write", str(self.folder / "tls"),
        ]  # fmt: skip
        return DaprProcess("scheduler", command, self.folder, ports, (health, "/healthz"))

    def _prepare(self, app_id: str) -> Sidecar:
        ports = Ports(3)
        grpc, http, internal = ports.numbers
        command = [
            str(self._binaries.daprd), "--app-id", app_id, "--dapr-grpc-port", str(grpc), "--dapr-http-port", str(http),
            "--dapr-internal-grpc-port", str(internal), "--dapr-listen-addresses", _LOCAL,
            "--dapr-internal-grpc-listen-address", _LOCAL, "--enable-metrics=false",
            "--placement-host-address", f"{_LOCAL}:{self._placement_port}",
            "--scheduler-host-address", f"{_LOCAL}:{self._scheduler_port}",
            "--resources-path", str(self._components), *self._options,
        ]  # fmt: skip
        sidecar = Sidecar(f"daprd-{len(self.sidecars)}", command, self.folder, ports, _STORE)
        self.sidecars.append(sidecar)
        return sidecar

    def _written(self, store: str | None) -> Path:
        """Write the component of a state store, and return its folder."""
        kind, version, settings = _component(store, self.folder)
        metadata = {**settings, "actorStateStore": "true"}
        component = {
            "apiVersion": "dapr.io/v1alpha1",
            "kind": "Component",
            "metadata": {"name": _STORE},
            "spec": {
                "type": kind,
                "version": version,
                "metadata": [{"name": name, "value": value} for name, value in metadata.items()],
            },
        }
        folder = self.folder / "components"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{_STORE}.yaml").write_text(json.dumps(component, indent=1))  # JSON is YAML
        return folder


def _component(store: str | None, folder: Path) -> tuple[str, str, dict[str, str]]:
    """Return the type and version of a state store, and its settings."""
    if store is None:
        return "state.sqlite", "v1", {"connectionString": f"file:{folder / 'state.db'}"}
    url = urlsplit(store)
    if url.scheme in ("postgresql", "postgres"):
        return "state.postgresql", "v2", {"connectionString": store}
    if url.scheme == "redis":
        return "state.redis", "v1", {"redisHost": url.netloc.rpartition("@")[2], "redisPassword": url.password or ""}
    raise ValueError(f"A state store is None, postgresql://... or redis://..., not {url.scheme}://")
