"""Executions that wait for a worker, and how a worker claims them. Does not import Strands.

A dispatched execution has one root call, recorded as PENDING before it runs. It is free for a worker while it is PENDING or
RUNNING and has no owner, or an owner that is gone. An execution whose owner died is suspected of having killed it and runs
alone; the first step that ends in such a trial clears it (rule C34).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._calls.control import ExecutionControl
from .._journal.owner import Owner
from .._journal.unreadable import reading
from .._records.codec import decode, encode
from .._records.counters import count
from .._records.exceptions import describe
from .._records.executions import ACCEPTED, ExecutionStatus
from .._records.logs import safe_logger
from .._records.spec import AgentSpec
from .._sqlite.database import Store
from .._sqlite.dispatches import Dispatches
from .._sqlite.lease import Lease
from ..errors import BackendUnavailableError, TypeNotRegisteredError, UnreadableError, WorkerLostError
from .unreadable import aside

logger = safe_logger(__name__)

S = ExecutionStatus
_MANY = 1000


@dataclass(frozen=True, kw_only=True)
class QueuedExecution:
    """An execution that is free for a worker."""

    row_id: int
    execution_id: str
    run: int
    fence: int
    owner: str | None
    is_cancelled: bool
    agent: str
    fingerprint: str
    spec: AgentSpec
    given: dict[str, Any]
    is_marked: bool
    was_alone: bool
    deaths: int
    tries: int
    version: str
    """The agent, its fingerprint and the arguments of its factory: what a worker has, or has not."""
    claimant: Owner
    """Who looks at it."""

    @property
    def accepts_drift(self) -> Literal["any", "adopted"] | None:
        """Which other version may run it: "any", or "adopted" by the one that has; None if drift was not accepted."""
        accepted = self.given.get(ACCEPTED)
        return None if accepted is None else "any" if accepted["fingerprint"] is None else "adopted"

    @property
    def is_suspected(self) -> bool:
        """Whether it may have killed its last worker; a reboot of the machine clears it."""
        if self.is_marked:
            return True
        if self.owner is None:
            return False
        owner, me = Owner.parse(self.owner), self.claimant
        return owner != me and not (owner.host == me.host and owner.boot_id != me.boot_id)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An execution that a worker has claimed, with its prompt."""

    control: ExecutionControl
    queued: QueuedExecution
    prompt: Any


class LocalClaims:
    """The executions that the workers of this process run.

    Two workers in one process are one owner, and a run that has ended is held until its agent is cleaned up: neither its owner
    nor its status show that an execution is not free.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[tuple[int, Path, int]] = set()

    def add(self, path: Path, row_id: int) -> bool:
        """Add an execution; return False if another worker of this process has it."""
        with self._lock:
            mine = (os.getpid(), path, row_id)  # a fork has none
            is_free = mine not in self._ids
            self._ids.add(mine)
            return is_free

    def release(self, path: Path, row_id: int) -> None:
        """Remove an execution."""
        with self._lock:
            self._ids.discard((os.getpid(), path, row_id))

    def ids(self, path: Path) -> list[int]:
        """Return the executions of a store that are held."""
        with self._lock:
            return [row_id for pid, found, row_id in self._ids if (pid, found) == (os.getpid(), path)]


local_claims = LocalClaims()


class Queue:
    """The dispatched executions of a store, as workers see them.

    Args:
        store: The store.
        me: Who claims them, if an engine identifies owners by more than their process.
    """

    def __init__(self, store: Store, me: Owner | None = None) -> None:
        self._store, self._me = store, me or Owner.me()
        self._dispatches = Dispatches(store)

    def claimable(
        self, *, refused: Collection[str], suspected: bool, limit: int, only: Collection[str] | None = None
    ) -> list[QueuedExecution]:
        """Return executions that are free, the oldest first: those that may have killed their worker, or the others.

        ``only`` limits the search to these ids. Executions that cannot be read are put aside.
        """
        me, dead = Owner.me().recorded(), self._dead()
        values: dict[str, Any] = {
            "now": time.time(),
            "dead": json.dumps(dead),
            "me": me,
            "held": json.dumps(local_claims.ids(self._store.path)),
            "refused": json.dumps(list(refused)),
            "limit": limit,
            "only": None if only is None else json.dumps(list(only)),
        }
        while True:
            values["aside"] = json.dumps(aside.ids(self._store))
            rows = self._dispatches.free(values, suspected=suspected)
            found: list[QueuedExecution] = []
            for row_id in rows:
                if len(found) < limit and (queued := self._look_at(row_id)) is not None:
                    found.append(queued)
            if len(rows) < values["limit"] or len(found) == limit:
                aside.log()
                return found
            values["limit"] = _MANY  # some were put aside: those behind them must not wait for the next search

    def _look_at(self, row_id: int) -> QueuedExecution | None:
        """Return one execution; None if it cannot be read or was removed."""
        try:
            with reading():
                return self._read(row_id)
        except UnreadableError as error:
            name = self._dispatches.name_of(row_id)
            if name is not None:
                self._put_aside(row_id, name, error)
            return None

    def put_aside(self, row_id: int, execution_id: str, error: UnreadableError) -> None:
        """Skip an execution that this process cannot read, and note on it why it waits, if its row can be written."""
        self._put_aside(row_id, execution_id, error)
        aside.log()

    def _put_aside(self, row_id: int, execution_id: str, error: UnreadableError) -> None:
        aside.put(self._store, row_id, execution_id, error)
        note = f"it cannot be read: {error.reason}"
        if isinstance(error, TypeNotRegisteredError):
            note = f"{Owner.me()} cannot read it: the type {error.name!r} is not registered there"
        self.note_on(row_id, note)

    def note_on(self, row_id: int, note: str) -> None:
        """Note on an execution why it waits, if its row can be written."""
        with suppress(BackendUnavailableError), self._store.transaction("note", lasting=False):
            self._dispatches.note(row_id, note)

    def _dead(self) -> list[int]:
        """Return the executions whose owner, another process, is dead."""
        me = Owner.me().recorded()
        beats = [found for found in self._dispatches.beats() if found.owner != me]
        return [found.row_id for found in self._store.liveness.dead(beats)]

    def only(self) -> QueuedExecution:
        """Return the one execution of a replica, regardless of its recorded owner: its engine decides who owns it."""
        with reading():
            found = self._read(self._dispatches.only())
        assert found is not None
        return found

    def _read(self, row_id: int) -> QueuedExecution | None:
        row = self._dispatches.row(row_id)
        return None if row is None else _queued(row, self._me)

    def clear_suspicion(self) -> None:
        """Note, in a replica, that the last owner of the execution is not dead: its engine has only lost contact with it."""
        with self._store.transaction("pardon"):
            self._dispatches.forget_owner()

    def claim(self, queued: QueuedExecution, seconds: float, *, alone: bool, max_deaths: int) -> Claim | None:
        """Become the owner of an execution; return None if another worker was faster, or if there is nothing left to run.

        A run that has killed too many workers fails here, and one with a cancel request is cancelled.
        """
        try:
            prompt = self.prompt_of(queued)
        except UnreadableError as error:
            self.put_aside(queued.row_id, queued.execution_id, error)
            return None
        me, is_suspected = self._me.recorded(), alone or queued.is_suspected
        deaths = queued.deaths + (1 if queued.was_alone and queued.owner is not None else 0)
        with self._store.transaction("claim", lasting=False):
            if not self._dispatches.claim(queued.row_id, queued.fence, me, seconds):
                return None
            self._dispatches.suspect(queued.row_id, is_suspected=is_suspected, alone=alone, deaths=deaths)
            lease = Lease(self._store, queued.row_id, queued.execution_id, queued.run, queued.fence + 1, seconds)
            control = ExecutionControl(lease, is_alone=alone)
            if queued.is_cancelled:
                control.journal.cancel()
                return None
            if deaths >= max_deaths:
                owner = str(Owner.parse(queued.owner)) if queued.owner else "unknown"
                lost = WorkerLostError(queued.execution_id, deaths, owner)
                logger.error("execution_id=<%s>, error=<%s> | execution failed", queued.execution_id, lost)
                self._fail(control, lost)
                return None
        if queued.owner is not None:
            count("takeovers")
        if is_suspected:
            control.on_progress = _ClearSuspicion(control, self._dispatches)
        return Claim(control=control, queued=queued, prompt=prompt)

    def prompt_of(self, queued: QueuedExecution) -> Any:
        """Return the prompt of an execution. It is read before the claim, so that no unreadable execution is claimed."""
        with reading(queued.execution_id):
            unowned = Lease(self._store, queued.row_id, queued.execution_id, queued.run, fence=-1, seconds=0)
            record = unowned.journal().call_at(0)
            if record is None:
                raise UnreadableError("its call is missing")
            return record.input

    def adopt(self, claim: Claim, spec: AgentSpec) -> None:
        """Record that an execution whose drift was accepted runs with the agent of ``spec``, and belongs to it from now on."""
        given = {**claim.queued.given, ACCEPTED: {**claim.queued.given[ACCEPTED], "fingerprint": spec.fingerprint}}
        with claim.control.journal.transaction("drift.accepted"):
            text = encode(spec.to_json())
            self._dispatches.replace_spec(claim.control.lease.row_id, spec.fingerprint, text, encode(given))

    def fail(self, control: ExecutionControl, error: BaseException) -> None:
        """Record that an execution failed, unless its call has done so."""
        with control.journal.transaction("call.failed"):
            if control.journal.status() in (S.PENDING, S.RUNNING):
                self._fail(control, error)

    def give_up(self, control: ExecutionControl, error: BaseException) -> None:
        """Record that an execution failed, and take it from its owner, whatever still runs there."""
        self.fail(control, error)
        with control.journal.transaction("evict"):
            self._dispatches.evict(control.lease.row_id)

    def _fail(self, control: ExecutionControl, error: BaseException) -> None:
        record = control.journal.call_at(0)
        assert record is not None
        control.journal.insert_failure(record.call_id, record.attempt, describe(error))
        control.end_call(record, S.FAILED)

    def put_off(self, control: ExecutionControl, seconds: float, note: str) -> None:
        """Give an execution back, to be tried again later."""
        with control.journal.transaction("put-off"):
            self._dispatches.put_off(control.lease.row_id, seconds, note)
            control.lease.drop()

    def note(self, refused: Mapping[str, str]) -> None:
        """Note on refused executions why they wait, unless they have a note."""
        rows = self._dispatches.unnoted(refused, self._dead())
        if rows:
            with self._store.transaction("note", lasting=False):
                self._dispatches.note_unnoted([(row_id, refused[version]) for row_id, version in rows])

    def over(self, execution_ids: Collection[str]) -> set[str]:
        """Return which of these executions have ended for good: they can be neither resumed nor answered."""
        return self._dispatches.over(execution_ids)

    def cancelled(self, row_ids: Collection[int]) -> list[int]:
        """Return which of these executions have a cancel request."""
        return self._dispatches.cancelled(row_ids)


class _ClearSuspicion:
    """Clears an execution of the suspicion that it kills workers, with the first step that ends."""

    def __init__(self, control: ExecutionControl, dispatches: Dispatches) -> None:
        self._control, self._dispatches = control, dispatches

    def __call__(self) -> None:
        control = self._control
        control.on_progress, control.is_alone = None, False
        self._dispatches.clear_suspicion(control.lease.row_id)


def _checked(given: Any) -> dict[str, Any]:
    """Return the recorded arguments of a dispatch besides its prompt, checked."""
    if type(given["invocation_state"]) is not dict or "limits" not in given:
        raise UnreadableError("its invocation_state is not a dict, or its limits are missing")
    found: dict[str, Any] = given
    return found


def _queued(row: Any, me: Owner) -> QueuedExecution:
    row_id, execution_id, run, fence, owner, cancel_asked_at, agent, fingerprint, spec, given, *rest = row
    is_suspected, is_alone, deaths, tries, version = rest
    return QueuedExecution(
        row_id=row_id,
        execution_id=execution_id,
        run=run,
        fence=fence,
        owner=owner,
        is_cancelled=cancel_asked_at is not None,
        agent=agent,
        fingerprint=fingerprint,
        spec=AgentSpec.from_json(decode(spec)),
        given=_checked(decode(given)),
        is_marked=bool(is_suspected),
        was_alone=bool(is_alone),
        deaths=deaths,
        tries=tries,
        version=version,
        claimant=me,
    )
