"""Executions as people look at them: read from a store, without importing Strands and without changing anything.

Looking creates no file, not even the ones that SQLite keeps beside a store in use. What is read is given as it is recorded;
what prints it makes it safe to print.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from .._records.cipher import Cipher
from .._records.executions import ExecutionRecord
from .._records.listing import Listing
from .._records.views import ExecutionDetail, OpenQuestion
from ..errors import (
    BackendUnavailableError,
    BytesNotFoundError,
    ExecutionNotFoundError,
    UnsupportedFeatureError,
)
from .blobs import bytes_of
from .checksums import DamageError
from .connection import Connection
from .database import damaged, is_damage, path_of, translated
from .encryption.data_keys import is_encrypted, unlock
from .inspection.detail import detail_of, without_calls
from .inspection.listing import records_of
from .inspection.moment import BUSY_SECONDS, as_text, at_one_moment
from .inspection.questions import open_questions
from .inspection.verified import read_checked
from .store_file import version_of

T = TypeVar("T")


class Catalog:
    """What a store holds, for people. Every look is one consistent moment; nothing is kept open in between.

    Without a cipher, an encrypted store shows ids, statuses, names, times and numbers, and "<encrypted>" in place of contents.
    """

    def __init__(self, store: str | os.PathLike[str], cipher: Cipher | None = None) -> None:
        scheme, separator, _ = os.fspath(store).partition("://")
        if separator and scheme != "sqlite":
            raise UnsupportedFeatureError(
                f"A {scheme}:// store", "only a SQLite file can be read here", "Pass the path of a store file."
            )
        self.path, self._cipher = path_of(store), cipher

    def executions(self, asked: Listing | None = None) -> list[ExecutionRecord]:
        """Return executions, the one that changed last first: all of them, or those that were asked for."""
        return self._look(lambda connection: records_of(connection, asked or Listing()))

    def questions(self, limit: int | None = None, since: float | None = None) -> list[OpenQuestion]:
        """Return the open questions of all executions, or of those that changed since, the last one asked first."""
        return self._look(lambda connection: open_questions(connection, limit, since), needs_key=True)

    def execution(self, execution_id: str, run: int | None = None) -> ExecutionDetail:
        """Return one execution with its calls and steps, of its current run or of an earlier one.

        Of one whose rows are damaged, return what can be said of it without them, and why it cannot be read.
        """
        try:
            found = self._look(lambda connection: detail_of(connection, execution_id, run))
        except BackendUnavailableError as error:
            if not is_damage(error):
                raise
            reason = error.reason
            found = self._look(lambda connection: without_calls(connection, execution_id, reason))
        if found is None:
            raise ExecutionNotFoundError(execution_id, str(self.path))
        return found

    def recorded_bytes(self, execution_id: str, digest: str) -> bytes:
        """Return large bytes that an execution refers to."""
        row_id, found = self._look(lambda connection: _bytes(connection, execution_id, digest), needs_key=True)
        if row_id is None:
            raise ExecutionNotFoundError(execution_id, str(self.path))
        if found is None:
            raise BytesNotFoundError(execution_id, digest)
        return found

    def holds(self, execution_id: str) -> bool:
        """Return True if there is an execution with this id."""
        query = "SELECT 1 FROM executions WHERE execution_id = ?"
        return bool(self._look(lambda connection: connection.execute(query, (execution_id,)).fetchall()))

    def _look(self, query: Callable[[Connection], T], *, needs_key: bool = False) -> T:
        try:
            refuse_unreadable(self.path)
            return at_one_moment(self.path, lambda connection: self._checked(connection, query, needs_key))
        except sqlite3.Error as error:
            raise translated(self.path, error, BUSY_SECONDS) from error
        except UnicodeDecodeError as error:  # in a name of the schema, which SQLite itself does not look at
            raise damaged(self.path, str(error)) from error
        except OSError as error:
            raise BackendUnavailableError(str(self.path), error.strerror or str(error)) from error

    def _checked(self, connection: Connection, query: Callable[[Connection], T], needs_key: bool) -> T:
        connection.execute("BEGIN")  # the keys are those of the rows that are read
        is_locked = self._cipher is None and not needs_key and is_encrypted(connection)
        if not is_locked:
            unlock(connection, str(self.path), self._cipher)
        checks = read_checked(connection, is_locked=is_locked)
        connection.text_factory = as_text
        try:
            return query(connection)
        except sqlite3.Error as error:
            if checks.locked is not None:
                raise checks.locked from error
            if checks.damage is None and "user-defined function" not in str(error):
                raise
            raise DamageError(checks.damage or "a row holds bytes that are not text") from error


def _bytes(connection: Connection, execution_id: str, digest: str) -> tuple[int | None, bytes | None]:
    row = connection.execute("SELECT id FROM executions WHERE execution_id = ?", (execution_id,)).fetchone()
    return (None, None) if row is None else (row[0], bytes_of(connection, row[0], digest))


def refuse_unreadable(path: Path) -> None:
    """Raise if there is nothing at ``path`` to look at: most likely the path is wrong."""
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        hint = "Pass the path of an existing store, or run an agent with Durability on this path first."
        raise BackendUnavailableError(str(path), "the store does not exist yet", hint)
    if not path.is_file():
        raise BackendUnavailableError(str(path), "it is not a file", "Pass the path of a store.")
    version_of(path)
