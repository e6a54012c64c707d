"""From a URL to a backend. An engine is imported when its URL is used, and other packages can add engines."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast
from urllib.parse import parse_qsl, urlencode

from .._records.cipher import Cipher
from .._records.cipher_setting import cipher_or_default
from ..errors import UnsupportedFeatureError
from .ports import DurableBackend, WorkerMode

VARIABLE = "STRANDS_DURABLE_BACKEND"
DEFAULT_URL = "sqlite:///.strands/durable.db"
GROUP = "strands_durable.backends"
"""The entry point group in which packages register backends: the name is the URL's scheme, the object takes the URL."""

_OURS = {
    "sqlite": "strands_durable.backends.sqlite:SqliteBackend",
    "temporal": "strands_durable.backends.temporal:TemporalBackend",
    "dapr": "strands_durable.backends.dapr:DaprBackend",
    "lambda": "strands_durable.backends.aws_lambda:LambdaBackend",
}
_FOR_TESTS = {"memory": "strands_durable.testing.memory:MemoryBackend"}
"""Not offered to users: what is there dies with the process."""


def connect(url: str | os.PathLike[str] | None = None, *, cipher: Cipher | None = None) -> DurableBackend:
    """Return the backend that ``url`` names; a path names a SQLite file.

    Args:
        url: For example ``sqlite:///runs.db``. If None, the environment variable STRANDS_DURABLE_BACKEND, else
            ``sqlite:///.strands/durable.db``.
        cipher: Encrypts what the backend stores. If None, the cipher that the environment names, if any.

    Raises:
        UnsupportedFeatureError: No backend is installed for the URL, or the backend takes no cipher and there is one.
    """
    text = os.fspath(url) if url is not None else os.environ.get(VARIABLE) or DEFAULT_URL
    scheme = re.match(r"([a-z][a-z0-9+.-]*)://", text)
    if scheme is None:
        return connect(f"sqlite:///{text}", cipher=cipher)
    maker, cipher = _maker(scheme[1]), cipher_or_default(cipher)
    return maker(text) if cipher is None else _encrypting(scheme[1], maker)(text, cipher=cipher)


def _encrypting(scheme: str, maker: Callable[..., DurableBackend]) -> Callable[..., DurableBackend]:
    if "cipher" not in inspect.signature(maker).parameters:
        raise UnsupportedFeatureError(
            f"A cipher for a {scheme}:// backend", "it would store contents in plain text", "Use another engine."
        )
    return maker


def with_worker(url: str, what: WorkerMode) -> str:
    """Return a URL with the option ``worker`` set, which decides what the process itself runs."""
    location, _, query = url.partition("?")
    options = {**dict(parse_qsl(query, keep_blank_values=True)), "worker": what}
    return f"{location}?{urlencode(options)}"


def _maker(scheme: str) -> Callable[..., DurableBackend]:
    if scheme in _OURS or scheme in _FOR_TESTS:
        return _own(scheme)
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if scheme in offered:
        return cast(Callable[..., DurableBackend], offered[scheme].load())
    known = ", ".join(f"{name}://" for name in sorted({*_OURS, *offered}))
    raise UnsupportedFeatureError(
        f"A {scheme}:// backend",  # not the whole URL: it may contain a password
        f"no backend for {scheme}:// is installed (installed: {known})",
        f"Install the package that provides it: backends are entry points of the group {GROUP!r}.",
    )


def _own(scheme: str) -> Callable[..., DurableBackend]:
    module, _, name = {**_OURS, **_FOR_TESTS}[scheme].partition(":")
    try:
        return cast(Callable[..., DurableBackend], getattr(importlib.import_module(module), name))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "strands_durable":
            raise
        raise UnsupportedFeatureError(
            f"A {scheme}:// backend",
            f"{missing} is not installed",
            f"Install it: pip install 'strands-durable[{scheme}]'",
        ) from error
