"""A backend and handles of an engine on a key-value store: everything that does not depend on how its workers are notified."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import inf

from ..._dispatch.handles import ExecutionHandle
from ..._dispatch.notifications.hooks import Callback, hooks, hooks_of
from ..._dispatch.notifications.webhooks import Webhook
from ..._journal.owner import Owner
from ..._records.change_sets import ChangeSet
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.keys import checked_id
from ..._records.listing import Listing
from ..._records.rekeyed import Rekeyed
from ..._records.views import ExecutionDetail
from ...errors import CipherError, ExecutionBusyError, ExecutionNotFoundError
from ..backend import LogBackend
from ..encryption import outline
from ..handle import AT_WORK, LogHandle
from ..listing import read_latest
from ..log import Position, Presence, RecordedExecution, StaleError, read
from .engine import KeyValueEngine
from .head import Head
from .log import ask_key, key_of
from .rekeying import rekey
from .store import Value


class KeyValueHandle(LogHandle):
    """One execution of an engine on a key-value store."""

    def __init__(self, backend: KeyValueBackend, execution_id: str) -> None:
        super().__init__(backend, execution_id)
        self._backend = backend

    async def status(self) -> ExecutionStatus:
        """Return what the execution is doing, without its log."""
        return ExecutionStatus((await self._backend.head(self.execution_id)).status)

    async def _append(self, base: Position, changes: ChangeSet, what: str) -> bool:
        await self._backend.engine.open.announce(self.execution_id)
        return await super()._append(base, changes, what)

    async def _appended(self, known: RecordedExecution, what: str) -> bool:
        is_done = await super()._appended(known, what)
        if is_done and not known.position.is_at_rest:
            await self._backend._ensure_open(self.execution_id)  # recorded before, by a client that may have died then
        return is_done

    async def detail(self, run: int | None = None) -> ExecutionDetail:
        """Return what `strands-durable show` shows, with what was not reported yet."""
        known, notices = await self._read(whole=True), self._backend.engine.notices
        detail = known.detail(await self._presence(known), run)
        return replace(detail, undelivered=await notices.undelivered(self.execution_id, known.position))

    async def _at_rest(self) -> None:
        head = await self._backend.head(self.execution_id)
        while ExecutionStatus(head.status) in AT_WORK:
            await self._backend.changed(self.execution_id, head)
            head = await self._backend.head(self.execution_id)

    async def _why_it_waits(self) -> str | None:
        why = await super()._why_it_waits()
        is_owned = (await self._backend.presence(self.execution_id)).owner is not None
        return why if why is not None or is_owned else await self._backend.unattended()


class KeyValueBackend(LogBackend):
    """Runs executions on an engine that keeps them in a key-value store."""

    engine: KeyValueEngine
    poll_seconds = 0.2

    def _handle(self, execution_id: str) -> ExecutionHandle:
        return KeyValueHandle(self, execution_id)

    async def _begin(self, execution_id: str, agent: str, changes: ChangeSet) -> bool:
        if await self.engine.log.head(execution_id) is not None:
            await self._ensure_open(execution_id)
            return False
        await self.engine.open.announce(execution_id)
        await self.engine.index.put(execution_id, round(time.time(), 3))
        return await super()._begin(execution_id, agent, changes)

    async def _ensure_open(self, execution_id: str) -> None:
        """Have workers check an execution that needs one, in case the client that recorded it did not."""
        head = await self.engine.log.head(execution_id)
        if head is None or head.is_at_rest or await self.engine.workers.seems_alive(head.owner):
            return
        if await self.engine.open.confirm(execution_id):
            await self.wake(execution_id)

    async def get(self, execution_id: str) -> ExecutionHandle:
        """Return the handle of an execution, or raise `ExecutionNotFoundError`."""
        await self.head(execution_id)
        return self._handle(execution_id)

    async def head(self, execution_id: str) -> Head:
        """Return the head of an execution, or raise `ExecutionNotFoundError`."""
        head = await self.engine.log.existing_head(checked_id(execution_id))
        if head is None:
            raise ExecutionNotFoundError(execution_id, self.engine.store.where)
        return head

    async def read(self, execution_id: str) -> RecordedExecution:
        """Return an execution as it is recorded, or raise `ExecutionNotFoundError`."""
        await self.head(execution_id)
        return await read(self.engine.log, execution_id, self.engine.store.where)

    async def changed(self, execution_id: str, position: Position) -> None:
        """Return when something was appended after a position."""
        while not (await self.head(execution_id)).batches(position):  # noqa: ASYNC110, a poll
            await asyncio.sleep(self.poll_seconds)

    async def presence(self, execution_id: str) -> Presence:
        """Return which worker runs an execution, or why none does."""
        head = await self.head(execution_id)
        if head.is_at_rest:
            return Presence()
        ask, note = ask_key(execution_id, head), key_of(execution_id, "note")
        found = await self.engine.store.get_many([ask, note])
        is_cancelling = ask in found
        if await self.engine.workers.seems_alive(head.owner):
            owner = str(Owner.parse(str(head.owner)))
            return Presence(owner=owner, is_alive=True, is_cancelling=is_cancelling)
        return Presence(note=self.engine.log.note(execution_id, found.get(note, b"")), is_cancelling=is_cancelling)

    async def ask_to_stop(self, execution_id: str) -> bool:
        """Ask the owner of an execution to cancel it; False if it has none."""
        workers, store = self.engine.workers, self.engine.store
        head = await self.head(execution_id)
        if not await workers.seems_alive(head.owner):
            return False
        ask = Value(key=ask_key(execution_id, head), data=b"cancel")
        await store.patiently(lambda: store.save(ask))
        now = await self.head(execution_id)
        if now.period == head.period and await workers.seems_alive(now.owner):
            return True
        await store.delete([ask.key])
        return False

    async def listed(self, asked: Listing) -> list[ExecutionRecord]:
        """Return executions, most recently changed first. Of those at rest, only the logs that the list needs are read."""
        ids = [each for each in await self.engine.index.items() if each.startswith(asked.search or "")]
        heads = await self.engine.log.heads(ids)
        found = [(_changed_until(head), execution_id) for execution_id, head in heads.items() if _may_be(head, asked)]
        return await read_latest(found, self._record, asked)

    async def _record(self, execution_id: str) -> ExecutionRecord | None:
        try:
            known = await self.read(execution_id)
            return known.detail(await self.presence(execution_id)).execution
        except ExecutionNotFoundError:
            return None  # removed in the meantime
        except CipherError as error:
            return outline(execution_id, asdict(await self.head(execution_id)), error)

    def notify(
        self,
        *,
        on_suspended: Callback | None = None,
        on_failed: Callback | None = None,
        on_completed: Callback | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        """Have the workers of this process report executions of the store."""
        hooks.add(self.engine.store.where, *hooks_of(on_suspended, on_failed, on_completed, tuple(webhooks)))

    async def rekey(self, *, decrypt: bool = False) -> Rekeyed:
        """Encrypt all executions that no worker runs with the current key, or decrypt them."""
        return await rekey(self.engine, decrypt=decrypt)

    async def remove(self, execution_id: str) -> None:
        """Delete an execution that has ended, with all it recorded."""
        head, at = await self.head(execution_id), await self.engine.index.get(execution_id)
        if not head.has_ended:
            why = f"is {head.status}. Before it can be removed, run 'strands-durable cancel {execution_id}'."
            raise ExecutionBusyError(execution_id, "", why)
        try:
            await self.engine.log.remove(execution_id, head)
        except StaleError:
            raise ExecutionBusyError(execution_id, "", "has just been resumed.") from None
        await self.engine.index.discard({execution_id: at})


def _changed_until(head: Head) -> float:
    """Return a time after which an execution has not changed: steps of one that runs are not noted on its head."""
    return head.updated_at if head.is_at_rest else inf


def _may_be(head: Head, asked: Listing) -> bool:
    """Return whether an execution may be asked for, as far as its head says."""
    is_early = asked.since is not None and _changed_until(head) < asked.since
    is_late = asked.before is not None and head.updated_at > asked.before.updated_at
    is_of = head.status in {each.value for each in asked.statuses} and asked.agent in (None, head.agent)
    is_fine = asked.with_errors and head.has_errors is False
    return is_of and not is_early and not is_late and not is_fine
