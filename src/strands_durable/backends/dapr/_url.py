"""Parses a ``dapr://`` URL. It contains no token: that comes from Dapr's own environment variable, DAPR_API_TOKEN."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from dapr.conf import settings

from ...errors import UnsupportedFeatureError

DEFAULT_STORE = "statestore"
_TAKES = {"store": None, "steps": ("on", "off"), "worker": ("on", "off")}


@dataclass(frozen=True, kw_only=True)
class DaprConfig:
    """A sidecar, and the state store behind it."""

    host: str
    port: int
    store: str
    has_steps: bool
    """Whether the steps of an execution are reported to its workflow, for Dapr's own tools."""
    has_worker: bool
    """Whether `DaprBackend.start` starts a worker."""

    @classmethod
    def of(cls, url: str) -> DaprConfig:
        """Read a URL."""
        try:
            return _read(urlsplit(url))
        except ValueError as error:
            raise UnsupportedFeatureError(
                "This dapr:// URL",  # not the URL itself: it may contain a password
                f"{error}; it is dapr://HOST:PORT, with the options {', '.join(_TAKES)} after a question mark",
                "HOST:PORT is the sidecar's gRPC address. A token comes from DAPR_API_TOKEN, never from a URL.",
            ) from error

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"dapr://{self.address}" + (f"?store={self.store}" if self.store != DEFAULT_STORE else "")


def _read(parts: SplitResult) -> DaprConfig:
    options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    unknown = sorted(options.keys() - _TAKES)
    if unknown:
        raise ValueError(f"unknown option {', '.join(unknown)}")
    if parts.username is not None or parts.path not in ("", "/"):
        raise ValueError("it has more than a host and a port")
    for name, values in _TAKES.items():
        if values is not None and options.get(name, "on") not in values:
            raise ValueError(f"{name} must be one of {', '.join(values)}")
    return DaprConfig(
        host=parts.hostname or str(settings.DAPR_RUNTIME_HOST),
        port=parts.port or int(settings.DAPR_GRPC_PORT),
        store=options.get("store", DEFAULT_STORE),
        has_steps=options.get("steps", "on") == "on",
        has_worker=options.get("worker", "on") == "on",
    )
