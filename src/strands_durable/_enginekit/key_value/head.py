"""The head of an execution: one small value that says which batches count. A commit is a swap of it."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field, replace

from ..._records.change_sets import ChangeSet, rows_of
from ..._records.executions import ExecutionStatus
from ..encryption import facts_of
from ..handle import AT_WORK

REMOVED = "REMOVED"
Place = tuple[str, int]
"""An epoch, and the number of a batch in it."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """What is known of an execution without its batches. It is also a position in its log: that of the last batch.

    An epoch is what one writer has appended. Its name is random: no other writer uses its keys, whatever the store does with a
    transaction that it refuses.
    """

    life: str
    """Distinguishes executions that had the same id one after the other."""
    period: str = ""
    """Distinguishes the times at which it was at work, from one rest to the next."""
    resumes: int = 0
    """How often it was resumed after it had ended."""
    is_child: bool = False
    """Whether a workflow of a user starts and awaits its workflow."""
    status: str
    log: tuple[Place, ...]
    """The epochs that count, in order, each with the number of its batches."""
    since: Place | None = None
    """The last batch that the first one has replaced."""
    replaced: tuple[Place, ...] = ()
    """Epochs that no longer count, and may not be deleted yet."""
    before: str = ""
    """The status before the last batch."""
    agent: str = ""
    owner: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    not_before: float = 0.0
    has_errors: bool | None = None
    """Whether a tool call of it has ended in an error; None: an earlier version began it, and did not say."""
    etag: str = field(default="", compare=False)
    is_ours: bool = field(default=False, compare=False)
    """Whether the reader has written it, so that its next batch continues the epoch."""

    @classmethod
    def first(cls, changes: ChangeSet, life: str | None = None, *, is_child: bool = False) -> Head:
        """Return the head of a new execution."""
        empty = cls(life=life or uuid.uuid4().hex[:12], status="", log=(), is_child=is_child, has_errors=False)
        return empty.next(changes)

    @classmethod
    def of(cls, data: bytes, etag: str) -> Head:
        """Read a head."""
        found = {name: value for name, value in json.loads(data).items() if name in cls.__dataclass_fields__}
        since = found["since"]
        log, replaced = (tuple((epoch, count) for epoch, count in found[name]) for name in ("log", "replaced"))
        since = None if since is None else (since[0], since[1])
        return cls(**{**found, "log": log, "replaced": replaced, "since": since}, etag=etag)

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        found = {name: value for name, value in asdict(self).items() if name not in ("etag", "is_ours")}
        return json.dumps(found, separators=(",", ":")).encode()

    @property
    def last(self) -> Place:
        """The last batch."""
        return self.log[-1]

    @property
    def is_at_rest(self) -> bool:
        """Whether no worker is needed."""
        return self.status not in [status.value for status in AT_WORK]

    @property
    def has_ended(self) -> bool:
        """Whether it has completed or failed, or was cancelled."""
        return self.is_at_rest and self.status != ExecutionStatus.SUSPENDED.value

    @property
    def may_reopen(self) -> bool:
        """Whether a client can have it continued."""
        return self.status in (ExecutionStatus.SUSPENDED.value, ExecutionStatus.FAILED.value)

    @property
    def is_long(self) -> bool:
        """Whether the log should be replaced by one batch."""
        return len(self.log) > 20 or sum(count for _, count in self.log) > 500

    def batches(self, after: Head | None = None) -> list[Place]:
        """Return the batches that count, only those after another position if there is one."""
        every = _batches(self.log)
        if after is None:
            return every
        if after.last in every:
            return every[every.index(after.last) + 1 :]
        return every[1:] if after.last == self.since else every

    def old_batches(self) -> list[Place]:
        """Return batches that no longer count, and may not be deleted yet."""
        return _batches(self.replaced)

    def has(self, place: Place) -> bool:
        """Return whether a batch counts."""
        return any(epoch == place[0] and place[1] <= count for epoch, count in self.log)

    def had(self, place: Place) -> bool:
        """Return whether a batch counts, or did before the log was compacted; not known of more than one compaction."""
        return any(epoch == place[0] and place[1] <= count for epoch, count in (*self.log, *self.replaced))

    def knows(self, place: Place) -> bool:
        """Return whether the epoch of a batch is on record, so that `had` is certain of what was to follow it."""
        return any(epoch == place[0] for epoch, _ in (*self.log, *self.replaced))

    def next(self, changes: ChangeSet) -> Head:
        """Return the head after a further batch."""
        log = (*self.log[:-1], (self.last[0], self.last[1] + 1)) if self.is_ours else (*self.log, _new_epoch())
        errors = True if _has_failed_tool(changes) else self.has_errors
        new = replace(self, **facts_of(changes), has_errors=errors, log=log, before=self.status, is_ours=True)
        if new.is_at_rest or not self.is_at_rest:
            return new
        is_resumed = self.has_ended and self.status != ""
        return replace(new, period=uuid.uuid4().hex[:12], resumes=self.resumes + is_resumed)

    def rewritten(self, count: int) -> Head:
        """Return the head after all batches were replaced by so many others."""
        epoch, _ = _new_epoch()
        return replace(self, log=((epoch, count),), since=self.last, replaced=self.log, is_ours=True)

    def removed(self) -> Head:
        """Return the head that stays after everything else is deleted."""
        replaced = (*self.replaced, *self.log)
        return replace(self, status=REMOVED, log=(_new_epoch(),), since=None, replaced=replaced, owner=None)


def _has_failed_tool(changes: ChangeSet) -> bool:
    """Return whether changes have a tool call that ended in an error."""
    tools = (row for row in rows_of(changes, "steps") if row["kind"] == "tool" and row["status"] == "done")
    return any(row.get("error") is not None for row in tools)


def _batches(epochs: tuple[Place, ...]) -> list[Place]:
    return [(epoch, number) for epoch, count in epochs for number in range(1, count + 1)]


def _new_epoch() -> Place:
    return uuid.uuid4().hex[:12], 1
