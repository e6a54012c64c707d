"""Live chunks of running steps, written only while a reader subscribes. Knows no Strands.

A reader records in the execution's row until when it subscribes. The process that runs a step buffers its chunks and checks
that row ten times a second; if there is a subscriber, chunks are written without fsync. The commit that ends the step deletes
them: from then on the step itself has the result.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from .._records.codec import encode
from .._records.logs import safe_logger
from ..errors import DurableError, NotSerializableError
from .database import Store

if TYPE_CHECKING:
    from .journal import Journal

logger = safe_logger(__name__)

_FLUSH_SECONDS = 0.1
_KEPT = 10_000
_CHUNK = ("call", "key", "attempt", "number", "data")


class ChunkWriter:
    """The pieces of one attempt of one step."""

    def __init__(self, journal: Journal, call_id: int, key: str, attempt: int, kind: str, name: str) -> None:
        self._journal, self._place = journal, (call_id, key, attempt)
        self._about = {"kind": kind, "name": name}
        self._chunks: list[Any] = []
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, event: Any) -> None:
        """Add a piece."""
        if len(self._chunks) >= _KEPT:
            return
        self._chunks.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush)

    def close(self) -> None:
        """Say no more; what is written is deleted with the commit of the step."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._chunks = []

    def _flush(self) -> None:
        self._timer = None
        try:
            if self._journal.has_subscriber():
                self._write()
        except (DurableError, sqlite3.Error) as error:  # a run must not fail because of its readers
            logger.debug("execution_id=<%s>, error=<%s> | chunks not written", self._journal.execution_id, error)

    def _write(self) -> None:
        new = self._chunks[self._written :]
        rows = [(*self._place, number, text) for number, text in enumerate(map(self._text, new), self._written + 1)]
        self._written += len(new)
        with self._journal.transaction("chunks", lasting=False):
            for row in rows:
                self._journal.store.connection.put("chunks", **dict(zip(_CHUNK, row, strict=True)))
        self._journal.with_chunks.add(self._place[:2])

    def _text(self, event: Any) -> str:
        try:
            return encode({**self._about, "event": event})
        except NotSerializableError:
            return encode({**self._about, "event": None})


def subscribe(store: Store, row_id: int, seconds: float) -> None:
    """Ask the process that runs an execution to write the chunks of its steps for a while."""
    with store.transaction("listen", lasting=False) as connection:
        connection.execute("UPDATE executions SET listened_until = ? WHERE id = ?", (time.time() + seconds, row_id))
