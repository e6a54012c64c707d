"""Parses a ``temporal://`` URL. It contains no TLS settings or keys: those come from Temporal's environment and config file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args
from urllib.parse import SplitResult, urlsplit

from ..._dispatch.ports import WorkerMode
from ..._enginekit.urls import options_of
from ...errors import UnsupportedFeatureError
from ._protocol import DEFAULT_QUEUE

DEFAULT_ADDRESS = "localhost:7233"
_TAKES = ("namespace", "task_queue", "prefix", "heartbeat_seconds", "max_events", "payloads", "worker")
_WORKERS = get_args(WorkerMode)


@dataclass(frozen=True, kw_only=True)
class TemporalConfig:
    """Where executions are on Temporal."""

    address: str | None
    """None: taken from Temporal's environment."""
    namespace: str | None
    task_queue: str
    prefix: str
    heartbeat_seconds: float
    max_events: int
    payloads: str | None
    worker: WorkerMode
    """What a worker in this process runs, once it is started: everything, nothing, or only executions held here."""

    @classmethod
    def of(cls, url: str) -> TemporalConfig:
        """Read a URL."""
        try:
            return _read(urlsplit(url))
        except ValueError as error:
            raise UnsupportedFeatureError(
                f"This {url.partition('://')[0]}:// URL",  # not the whole URL: there may be a password in it
                f"{error}; a Temporal URL is temporal://HOST:PORT, with the options {', '.join(_TAKES)} after a question mark",
                "TLS and API keys come from Temporal's own environment variables or config file, never from a URL.",
            ) from error

    def __str__(self) -> str:
        named = f"?namespace={self.namespace}" if self.namespace is not None else ""
        return f"temporal://{self.address or ''}{named}"


def _read(parts: SplitResult) -> TemporalConfig:
    options = options_of(parts.query, _TAKES)
    if parts.username is not None or parts.path not in ("", "/"):
        raise ValueError("it has more than a host and a port")
    worker = options.get("worker", "on")
    if worker not in _WORKERS:
        raise ValueError(f"worker must be one of {', '.join(_WORKERS)}")
    heartbeat_seconds, max_events = float(options.get("heartbeat_seconds", 10.0)), int(options.get("max_events", 0))
    if not heartbeat_seconds > 0 or max_events < 0:
        raise ValueError("heartbeat_seconds must be greater than 0, and max_events 0 or more")
    return TemporalConfig(
        address=_address(parts),
        namespace=options.get("namespace"),
        task_queue=options.get("task_queue", DEFAULT_QUEUE),
        prefix=options.get("prefix", ""),
        heartbeat_seconds=heartbeat_seconds,
        max_events=max_events,
        payloads=options.get("payloads"),
        worker=cast(WorkerMode, worker),
    )


def _address(parts: SplitResult) -> str | None:
    if parts.hostname is None:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or 7233}"
