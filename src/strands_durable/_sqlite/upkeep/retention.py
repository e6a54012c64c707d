"""A pass of retention over a store: executions that have ended long ago are removed, or lose their contents.

Executions are found by the index on status and time, and marked some at a time, each checked again in the transaction that
marks it: one that was resumed, taken or held in the meantime stays. Their rows are then deleted in pieces, and at the end the
file gives its free pages back, in pieces too. A kill at any point leaves every execution either whole, or marked; the next pass
deletes the rest of what is marked. One process at a time makes a pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..._journal.owner import Owner, seems_alive
from ..._records.counters import count
from ..._records.executions import ExecutionStatus
from ..._records.logs import safe_logger
from ..._records.retention import Pruned, RetentionRules
from ...errors import BackendUnavailableError
from ..connection import Connection
from ..database import Store, is_damage
from ..inspection.listing import agent_of
from . import contents, holds
from .pieces import Stopped, delete_in_pieces, never
from .removal import Removal, mark_removed

logger = safe_logger(__name__)

ENDED = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
_BATCH = 200
"""How many executions are marked in one transaction."""
_PIECE_BYTES = 500_000
"""How much is deleted in one transaction."""
_CLAIM_SECONDS = 600.0
"""How long a pass that cannot be observed counts as being made."""
_NAME = "retention"
_DUE = f"""
SELECT e.id, e.execution_id, e.updated_at, {agent_of()}, f.execution IS NOT NULL, h.execution IS NOT NULL
FROM executions e LEFT JOIN emptied f ON f.execution = e.id LEFT JOIN holds h ON h.execution = e.id
WHERE e.status = ? AND e.updated_at <= ? AND (e.updated_at, e.id) > (?, ?) AND e.owner IS NULL
ORDER BY e.updated_at, e.id LIMIT ?
"""


@dataclass(frozen=True, kw_only=True)
class _Due:
    row_id: int
    execution_id: str
    status: ExecutionStatus
    updated_at: float
    is_removed: bool
    """Whether the execution is removed; else its contents are."""
    is_held: bool


class Pruner:
    """Applies retention to a store.

    Args:
        store: The store.
        rules: What is kept how long.
        now: The time that ages are counted from; that of the clock if None.
        is_stopped: Asked between two pieces: whether the pass ends here. The next one, which is due at once, does the rest.
    """

    def __init__(
        self, store: Store, rules: RetentionRules, now: float | None = None, is_stopped: Stopped = never
    ) -> None:
        self._store, self._rules, self._is_stopped = store, rules, is_stopped
        self._now = time.time() if now is None else now
        self._removed = self._emptied = self._held = self._failed = 0
        self._unfinished: set[int] = set()
        """Executions that are marked, and of which damage keeps some rows in the file."""

    def plan(self) -> Pruned:
        """Return what a pass would remove; nothing is changed."""
        due = [each for batch in self._batches() for each in batch]
        removed = tuple(each.execution_id for each in due if each.is_removed and not each.is_held)
        emptied = tuple(each.execution_id for each in due if not each.is_removed and not each.is_held)
        held = sum(each.is_held for each in due)
        return Pruned(removed=len(removed), emptied=len(emptied), held=held, removed_ids=removed, emptied_ids=emptied)

    def run(self, every_seconds: float = 0.0) -> Pruned | None:
        """Make a pass; None if another process is at it, or has made one less than ``every_seconds`` ago."""
        if not self._claimed(every_seconds):
            return None
        size = self._size()
        try:
            self._finish()  # what a killed pass has left
            for batch in self._batches():
                if self._is_stopped():
                    break
                self._held += sum(each.is_held for each in batch)
                self._mark([each for each in batch if not each.is_held])
                self._finish()
            if self._removed or self._emptied:
                self._store.shrink(self._is_stopped)
        finally:
            self._release()
        self._store.scrub()
        found = Pruned(
            removed=self._removed,
            emptied=self._emptied,
            held=self._held,
            failed=self._failed,
            freed_bytes=max(0, size - self._size()),
        )
        self._report(found)
        return found

    def _report(self, found: Pruned) -> None:
        count("pruned", "executions", number=found.removed)
        count("pruned", "contents", number=found.emptied)
        if found.removed or found.emptied or found.failed:
            text = (
                "store=<%s>, removed=<%d>, emptied=<%d>, held=<%d>, failed=<%d>, freed_bytes=<%d> | retention applied"
            )
            logger.info(
                text, self._store.path, found.removed, found.emptied, found.held, found.failed, found.freed_bytes
            )

    def _batches(self) -> Iterator[list[_Due]]:
        for status in ENDED:
            before = self._rules.longest_before(status, self._now)
            if before is None:
                continue
            after: tuple[float, int] = (float("-inf"), 0)
            while rows := self._store.read(_DUE, status.value, before, *after, _BATCH):
                after = (rows[-1][2], rows[-1][0])
                yield [due for row in rows if (due := self._due(status, *row)) is not None]

    def _due(
        self, status: ExecutionStatus, row_id: int, execution_id: str, updated_at: float, agent: str, *marks: int
    ) -> _Due | None:
        """Return what is to be done with an execution; None if it is kept as it is."""
        is_emptied, is_held = marks
        rule, age = self._rules.of_agent(agent), self._now - updated_at
        kept, contents_kept = rule.seconds_of(status), rule.contents_seconds
        is_removed = kept is not None and age >= kept
        if not is_removed and (is_emptied or contents_kept is None or age < contents_kept):
            return None
        return _Due(
            row_id=row_id,
            execution_id=execution_id,
            status=status,
            updated_at=updated_at,
            is_removed=is_removed,
            is_held=bool(is_held),
        )

    def _mark(self, due: list[_Due]) -> None:
        """Mark executions: all of them in one transaction, or one by one if one of them is damaged."""
        if not due:
            return
        try:
            removed, emptied = self._marked(due)
        except BackendUnavailableError as error:
            if not is_damage(error):
                raise
            if len(due) > 1:
                for each in due:
                    self._mark([each])
                return
            logger.warning("execution_id=<%s>, error=<%s> | not removed by retention", due[0].execution_id, error)
            self._failed += 1
            return
        self._removed += removed
        self._emptied += emptied

    def _marked(self, due: list[_Due]) -> tuple[int, int]:
        with self._store.transaction("retention") as connection:
            still = [each for each in due if _is_still_due(connection, each)]
            for each in still:
                if each.is_removed:
                    mark_removed(connection, each.row_id, each.execution_id)
                else:
                    contents.begin(connection, each.row_id)
            removed = sum(each.is_removed for each in still)
            self._count(connection, removed, len(still) - removed)
        return removed, len(still) - removed

    def _finish(self) -> None:
        """Delete what is left of what is marked."""
        unfinished = {*Removal(self._store).finish(_PIECE_BYTES, self._is_stopped)}
        for row_id, error in delete_in_pieces(
            self._store, "contents.piece", contents.delete_piece, _PIECE_BYTES, self._is_stopped
        ).items():
            unfinished.add(row_id)
            if row_id not in self._unfinished:
                logger.warning("execution=<%d>, error=<%s> | not all of its contents were removed", row_id, error)
        self._failed += len(unfinished - self._unfinished)
        self._unfinished |= unfinished

    def _size(self) -> int:
        (pages,), (size,) = (self._store.read(f"PRAGMA {name}")[0] for name in ("page_count", "page_size"))
        return int(pages * size)

    # Who makes a pass, and what all of them have removed

    def _claimed(self, every_seconds: float) -> bool:
        now = time.time()
        with self._store.transaction("retention.claim", lasting=False) as connection:
            rows = connection.rows("passes", "claimed_by, until, at, removed, emptied", "name = ?", _NAME)
            claimed_by, until, at, removed, emptied = rows[0] if rows else (None, 0.0, 0.0, 0, 0)
            if claimed_by is not None and seems_alive(Owner.parse(claimed_by), until):
                return False
            if now - every_seconds < at <= now:
                return False
            me = Owner.me().recorded()
            connection.put("passes", name=_NAME, claimed_by=me, until=now + _CLAIM_SECONDS, at=at, removed=removed,
                           emptied=emptied)  # fmt: skip
        return True

    def _count(self, connection: Connection, removed: int, emptied: int) -> None:
        for before in connection.rows("passes", "removed, emptied", "name = ?", _NAME):
            changes = {
                "removed": before[0] + removed,
                "emptied": before[1] + emptied,
                "until": time.time() + _CLAIM_SECONDS,
            }
            connection.update("passes", changes, "name = ?", _NAME)

    def _release(self) -> None:
        with self._store.transaction("retention.end", lasting=False) as connection:
            ended = {} if self._is_stopped() else {"at": time.time()}
            connection.update("passes", {"claimed_by": None, **ended}, "name = ?", _NAME)


def _is_still_due(connection: Connection, due: _Due) -> bool:
    rows = connection.rows("executions", "status, updated_at, owner", "id = ?", due.row_id)
    if rows != [(due.status.value, due.updated_at, None)]:
        return False
    if not due.is_removed and connection.execute("SELECT 1 FROM emptied WHERE execution = ?", (due.row_id,)).fetchone():
        return False
    return not holds.is_held(connection, due.row_id)


def totals(store: Store) -> tuple[int, int]:
    """Return how many executions, and how many contents, all passes over a store have removed."""
    rows = store.rows("passes", "removed, emptied", "name = ?", _NAME)
    return (rows[0][0], rows[0][1]) if rows else (0, 0)
