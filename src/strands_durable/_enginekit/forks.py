"""Forks on engines that keep a log: an execution as its log left it when a step had ended, as the beginning of another log."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from .._dispatch import forks
from .._journal import messages as conversation
from .._records.change_sets import ChangeSet, rows_of, upgrade
from .._records.executions import ExecutionStatus
from .._records.origins import ForkChanges, ForkPoint
from .._sqlite.database import Store
from .._sqlite.lease import look
from .._sqlite.snapshot import LAST, last_number, snapshot
from ..errors import ForkError
from .replica import Replica


def stood_at(execution_id: str, entries: Sequence[ChangeSet], at: int | None) -> Replica:
    """Return an execution as it was before the entry in which the step after ``at`` ended; as it is, if there is none.

    Raises:
        ForkError: One entry holds the end of this step and of later ones: the log was compacted, or they ended together.
    """
    numbers: list[int] = []
    for changes in map(upgrade, entries):
        ended = (row.get("number") or 0 for row in rows_of(changes, "steps"))
        numbers.append(max([numbers[-1] if numbers else 0, *ended]))
    kept = len(entries) if at is None else sum(number <= at for number in numbers)
    if at is not None and 0 <= at < numbers[-1] and (not kept or numbers[kept - 1] != at):
        known = ", ".join(map(str, sorted(set(numbers))))
        raise ForkError(execution_id, f"its log does not keep step {at} apart", f"Steps that it keeps: {known}.")
    replica = Replica(f"{execution_id}:{uuid.uuid4().hex}")
    replica.apply(*entries[: kept or None])
    return replica


def rows_at(store: Store, execution_id: str, at: int | None) -> ChangeSet:
    """Return the rows of an execution as they were when a step had ended; None: its last finished one."""
    return snapshot(store, execution_id, LAST if at is None else at)


def forked(origin: Replica, execution_id: str, at: int | None, fork_id: str, changes: ForkChanges) -> ChangeSet:
    """Return all rows of a fork, as changes to an empty replica."""
    rows, journal = rows_at(origin, execution_id, at), look(origin, execution_id).journal()
    replica = Replica.new(fork_id, origin.hash_key)
    replica.apply(forks.fork(rows, journal, fork_id, changes))
    return replica.export()


def point_of(rows: ChangeSet, execution_id: str) -> ForkPoint:
    """Return what a fork of an execution, by its rows as they were, would begin with."""
    replica = Replica.new(execution_id)
    replica.apply(rows)
    call, journal = forks.call_of_step(rows), look(replica, execution_id).journal()
    messages: list[Any] = []
    state: dict[str, Any] = {}
    if call["lineage"] and call["kind"] == "agent":
        messages = conversation.read(journal, call["lineage"], journal.head(call["id"])[0].ranges)
        state = journal.state(call["id"])
    return ForkPoint(step=last_number(rows), scope=call["scope"], messages=messages, state=state)


def refuse_at_rest(execution_id: str, fork: ChangeSet) -> None:
    """Raise if a fork has nothing to run, for engines that create an execution by running it."""
    (row,) = rows_of(fork, "executions")
    if row["status"] != ExecutionStatus.PENDING.value:
        what = "waited for a person" if row["status"] == ExecutionStatus.SUSPENDED.value else "had ended"
        reason = f"it {what} with that step, and its engine starts only what has something to run"
        raise ForkError(execution_id, reason, "Fork at an earlier step, or pass a prompt or messages.")
