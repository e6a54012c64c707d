"""Encrypts the executions of a store again: with the current key, for the first time, or not at all any more.

The batches of an execution are written under the name of a new epoch, which is put on record before, then its head is swapped,
and only then the old ones are deleted. A process that is killed leaves each execution as it was or as it is to be, and the next
one, or a removal, deletes what is left over.
An execution that a worker runs is left alone: its worker would lose it, with its steps in doubt.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from ..._records.cipher import Cipher
from ..._records.crash_points import reach
from ..._records.rekeyed import Rekeyed
from ...errors import CipherError, ExecutionBusyError
from ..encryption import Contents
from ..log import StaleError
from .engine import KeyValueEngine
from .head import Head
from .log import KeyValueLog
from .notices import name_of

Outcome = Literal["encrypted", "rotated", "decrypted"]
_LOOKS = 3
"""How often notices are looked for: a store may miss a value that is there, once."""


async def rekey(engine: KeyValueEngine, *, decrypt: bool) -> Rekeyed:
    """Encrypt all executions of a store with the current key, or decrypt them."""
    cipher, where = engine.log.contents.cipher, engine.store.where
    if cipher is None:
        hint = "Pass cipher=, or set STRANDS_DURABLE_CIPHER_KEYS or STRANDS_DURABLE_CIPHER."
        raise CipherError(where, "no cipher was given, and rekey needs the keys", hint)
    work = _Rekeying(engine, cipher, decrypt=decrypt)
    for execution_id in await engine.index.every_item():
        await work.rekey(execution_id)
    busy = list(work.busy)
    if busy:
        why = f"is running, as are {len(busy) - 1} others. The rest is done: run rekey again once they have ended or wait."
        raise ExecutionBusyError(busy[0], "", why if len(busy) > 1 else "is running. Run rekey again once it does not.")
    changed: Outcome = "decrypted" if decrypt else "encrypted" if work.was_plain else "rotated"
    return Rekeyed(outcome=changed if work.rows else "unchanged", key_id=work.key_id, rows=work.rows)


class _Rekeying:
    """Encrypts executions again, one by one."""

    def __init__(self, engine: KeyValueEngine, cipher: Cipher, *, decrypt: bool) -> None:
        where, log = engine.store.where, engine.log
        self._engine, self.key_id = engine, None if decrypt else cipher.current
        self._source = KeyValueLog(engine.store, contents=Contents(cipher, where, reads_plain=True))
        self._target = KeyValueLog(engine.store, contents=Contents(None, where)) if decrypt else log
        self.busy: dict[str, None] = {}
        """What is left alone, in order."""
        self.rows, self.was_plain = 0, False

    async def rekey(self, execution_id: str) -> None:
        """Encrypt what is recorded of an execution."""
        known = await self._source.key_ids(execution_id)
        if known is None:
            await self._target.clear_removed(execution_id)
            return
        (head, found), is_swept = known, await self._target.sweep(execution_id)
        await self._notices(execution_id, head)
        await self._target.delete_note(execution_id, self.key_id)
        if found <= {self.key_id} and is_swept:
            await self._target.clean(execution_id, head)
        elif not head.is_at_rest and await self._seems_alive(head.owner):
            self.busy[execution_id] = None
        else:
            count = await self._batches(execution_id)  # also to void a rewrite that was killed
            self.rows += 0 if found <= {self.key_id} else count
            self.was_plain |= None in found

    async def _seems_alive(self, owner: str | None) -> bool:
        """Return whether a worker seems alive: a store may miss its heartbeat, once."""
        return await self._engine.workers.seems_alive(owner) or await self._engine.workers.seems_alive(owner)

    async def _batches(self, execution_id: str) -> int:
        """Write the batches of an execution again; return how many there are."""
        entries, target = [entry async for entry in self._source.read(execution_id)], self._target
        if not entries:
            return 0  # removed meanwhile
        upto = entries[-1].position
        await target.clean(execution_id, upto)  # the new head does not know what this one has replaced
        reach("rekey:before")
        try:
            new = await target.rewritten_on_record(execution_id, upto, [entry.changes for entry in entries])
        except StaleError:
            self.busy[execution_id] = None
            return 0
        reach("rekey:after")
        await target.clean(execution_id, new)
        await target.sweep(execution_id)
        return len(entries)

    async def _notices(self, execution_id: str, head: Head) -> None:
        """Write the errors of notifications again; one that a worker delivers now is left alone, or it would be repeated."""
        notices, name = self._engine.notices, name_of(execution_id, head.life)
        source, target = self._source.contents, self._target.contents
        for _ in range(_LOOKS):
            for known in (await notices.read([name])).get(name, []):
                key_id = source.value_key_id(known.error)
                if known.error is None or key_id == self.key_id:
                    continue
                new = await asyncio.to_thread(notices.resealed, known, source, target)
                is_claimed = known.claimed_by is not None and await self._seems_alive(known.claimed_by)
                if is_claimed or not await notices.replace(name, known, new):
                    self.busy[execution_id] = None
                    continue
                self.rows, self.was_plain = self.rows + 1, self.was_plain or key_id is None
