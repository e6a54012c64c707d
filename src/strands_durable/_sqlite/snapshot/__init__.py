"""One execution as a change set: as it is, or as it was when a number of its steps had ended; and written under another id.

The change set holds the rows that an engine's history holds too (`TRAVELLING`), so that any store takes it: a file by
`restore`, a store in memory as it is. Rows keep their numbers; large bytes are references, with the bytes beside them. That of
an encrypted store is in plain text, too.
"""

from __future__ import annotations

import base64

from ..._journal.unreadable import reading
from ..._records.change_sets import ChangeSet, Row, change_set
from ...errors import ContentsRemovedError, ExecutionNotFoundError
from .. import blobs
from ..database import Store
from . import names
from .past import LAST, Last, as_of
from .stored_rows import StoredRows

__all__ = ["LAST", "last_number", "snapshot"]


def snapshot(
    store: Store, execution_id: str, at: int | Last | None = None, *, with_bytes: bool = True, with_past: bool = False
) -> ChangeSet:
    """Return the rows of one execution, read in one transaction, each compared with its checksum.

    Args:
        store: The store that holds it.
        execution_id: Which one.
        at: How many of its steps had ended: the number of a finished step of the current run, 0 for its beginning, `LAST` for
            the last one. None: all of its runs, as they are now.
        with_bytes: Whether to add the large bytes that rows refer to, under names that other stores know; a copy in the same
            store does not need them.
        with_past: Whether to add what heads were before they changed, for `restore` into a file. A store in memory has no place
            for it.

    Raises:
        ExecutionNotFoundError: There is none with this id.
        ContentsRemovedError: Retention has removed its contents.
        ForkError: ``at`` is not the number of a finished step of the current run, or what was then is no longer recorded.
    """
    with store.reading() as connection:
        found = connection.rows("executions", "id, run", "execution_id = ?", execution_id)
        if not found:
            raise ExecutionNotFoundError(execution_id, str(store.path))
        emptied = connection.rows("emptied", "at", "execution = ?", found[0][0]) if store.removes_contents else []
        if emptied:
            raise ContentsRemovedError(execution_id, emptied[0][0])
        with reading(execution_id):
            rows = StoredRows(
                connection, *found[0], with_past=with_past and store.keeps_past, keeps_past=store.keeps_past
            )
            tables_of = rows.as_they_are() if at is None else as_of(rows, execution_id, at)
        if with_bytes:
            bytes_of = {digest: blobs.stored(connection, digest) for digest in _digests(tables_of)}
            if connection.seal is not None:
                tables_of, bytes_of = names.outside(tables_of, bytes_of)
            tables_of["blobs"] = [_row(digest, bytes_of[digest]) for digest in sorted(bytes_of)]
    return change_set({name: found for name, found in tables_of.items() if found})


def last_number(changes: ChangeSet) -> int:
    """Return how many steps of an execution have ended, by its rows."""
    return max((row.get("number") or 0 for row in changes["tables"].get("steps", ())), default=0)


def _digests(found: dict[str, list[Row]]) -> set[str]:
    """Return the digests of the large bytes that rows refer to."""
    texts = (
        row[column]
        for table, column in blobs.PLACES
        for row in found.get(table, ())
        if isinstance(row.get(column), str)
    )
    return {digest for text in texts if blobs.REFERENCE_MARK in text for digest in blobs.digests_in(text)}


def _row(digest: str, data: bytes) -> Row:
    return {"digest": digest, "data": {"b": base64.b64encode(data).decode()}}
