"""The port of a key-value store. Its answers to writes need not be reliable: a read after the write decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")
PREFIX = "strands-durable"
"""All keys begin with it."""


class WriteError(Exception):
    """The store refused a write, or its answer was lost: only a read can show which."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value to write; with ``etag``, only over the value that has it, and with an empty one only where there is none."""

    key: str
    data: bytes
    etag: str | None = None
    ttl_seconds: int | None = None


class KeyValueStore(Protocol):
    """Keeps values, each with an ETag that changes with every write."""

    @property
    def where(self) -> str:
        """Its URL, for people."""

    async def get(self, key: str) -> tuple[bytes, str]:
        """Return a value and its ETag; both are empty if there is none."""

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the values that exist."""

    async def save(self, *values: Value) -> None:
        """Write values; `WriteError` if any may not have been written."""

    async def save_together(self, *values: Value) -> None:
        """Write values in one transaction; `WriteError` as for `save`. A refused one may write those without an ETag."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete values."""

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer; raise `BackendUnavailableError` after a while."""
