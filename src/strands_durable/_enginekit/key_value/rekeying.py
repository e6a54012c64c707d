"""Encrypts the executions of a store again: with the current key, for the first time, or not at all any more.

The batches of an execution are written under the name of a new epoch, which is put on record before, then its head is swapped,
and only then the old ones are deleted. A process that is killed leaves each execution as it was or as it is to be, and the next
one, or a removal, deletes what is left over.
An execution that a worker runs is left alone: its worker would lose it, with its steps in doubt.
"""

from __future__ import annotations

from typing import Literal

from ..._records.crash_points import reach
from ..._records.rekeyed import Rekeyed
from ...errors import CipherError, ExecutionBusyError
from ..encryption import Contents
from ..log import StaleError
from .engine import KeyValueEngine
from .log import KeyValueLog

Outcome = Literal["encrypted", "rotated", "decrypted"]


async def rekey(engine: KeyValueEngine, *, decrypt: bool) -> Rekeyed:
    """Encrypt all executions of a store with the current key, or decrypt them."""
    cipher, where = engine.log.contents.cipher, engine.store.where
    if cipher is None:
        hint = "Pass cipher=, or set STRANDS_DURABLE_CIPHER_KEYS or STRANDS_DURABLE_CIPHER."
        raise CipherError(where, "no cipher was given, and rekey needs the keys", hint)
    source = KeyValueLog(engine.store, contents=Contents(cipher, where, reads_plain=True))
    target = KeyValueLog(engine.store, contents=Contents(None, where)) if decrypt else engine.log
    key_id = None if decrypt else cipher.current
    busy, batches, was_plain = list[str](), 0, False
    for execution_id in await engine.index.every_item():
        known = await source.key_ids(execution_id)
        if known is None:
            await engine.log.clear_removed(execution_id)
            continue
        (head, found), is_swept = known, await engine.log.sweep(execution_id)
        if found <= {key_id} and is_swept:
            await engine.log.clean(execution_id, head)
        elif not head.is_at_rest and await engine.workers.seems_alive(head.owner):
            busy.append(execution_id)
        else:
            count = await _rewritten(source, target, execution_id, busy)  # also to void a rewrite that was killed
            batches += 0 if found <= {key_id} else count
            was_plain |= None in found
    if busy:
        why = f"is running, as are {len(busy) - 1} others. The rest is done: run rekey again once they have ended or wait."
        raise ExecutionBusyError(busy[0], "", why if len(busy) > 1 else "is running. Run rekey again once it does not.")
    changed: Outcome = "decrypted" if decrypt else "encrypted" if was_plain else "rotated"
    return Rekeyed(outcome=changed if batches else "unchanged", key_id=key_id, rows=batches)


async def _rewritten(source: KeyValueLog, target: KeyValueLog, execution_id: str, busy: list[str]) -> int:
    """Write the batches of an execution again; return how many there are."""
    entries = [entry async for entry in source.read(execution_id)]
    if not entries:
        return 0  # removed meanwhile
    await target.clean(execution_id, entries[-1].position)  # the new head does not know what this one has replaced
    reach("rekey:before")
    try:
        new = await target.rewritten_on_record(execution_id, entries[-1].position, [entry.changes for entry in entries])
    except StaleError:
        busy.append(execution_id)
        return 0
    reach("rekey:after")
    await target.clean(execution_id, new)
    await target.sweep(execution_id)
    return len(entries)
