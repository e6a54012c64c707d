"""Taking an execution from one run of its workflow to the next: in the new run's input where it fits, else in pieces.

Temporal gives a new run 2 MB at most. What is larger stays in the history of the run before, until a worker has sent it to the
new one; nothing else happens there before.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from ..._enginekit.change_sets import ChangeSet
from ..._enginekit.compaction import prune
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.replica import Replica
from ..._records.logs import safe_logger
from ._errors import is_unknown
from ._heartbeat import signal
from ._history import rebuilt
from ._payload_parts import CARRIED_BYTES, Pieces
from ._protocol import FORGOTTEN, PIECE, PREVIOUS, BatchMessage, Carrying

logger = safe_logger(__name__)


def leave(payload_store: PayloadStore, replica: Replica, told: BatchMessage, execution_id: str) -> BatchMessage:
    """Return the last batch of a worker that leaves, with what the next run of the workflow begins with.

    Without it, where that is more than a run may begin with: the execution then continues in the same run.
    """
    prune(replica)
    room, sizes = payload_store.limits.max_bytes - len(json.dumps(told)), list[int]()

    def too_large(packed: str) -> ChangeSet:
        sizes.append(len(packed))
        return {PREVIOUS: [told["epoch"], told["number"]]}

    whole = payload_store.offload(replica.export(), "", plainly=False, limit=room, put=too_large)
    if not sizes:
        return {**told, "whole": whole}
    if sizes[0] <= CARRIED_BYTES:
        return {**told, "whole": whole, "whole_bytes": sizes[0]}
    logger.warning(
        "execution_id=<%s>, bytes=<%d>, limit=<%d> | too large for a new run of the workflow, continues in the same one; "
        "Temporal ends it at 50 MB: have the agent forget, or name a place for large payloads (payloads=) and resume",
        execution_id,
        sizes[0],
        CARRIED_BYTES,
    )
    return {**told, "whole_bytes": sizes[0]}


async def carry(client: Client, payload_store: PayloadStore, given: Carrying) -> ChangeSet:
    """Send this run what the one before it had come to; return what refers to it."""
    workflow_id = activity.info().workflow_id or ""
    try:
        replica = await rebuilt(client, payload_store, workflow_id, given["run_id"], given["base"])
    except RPCError as error:
        if not is_unknown(error):
            raise
        text = (
            f"Execution {workflow_id!r} cannot continue: Temporal has deleted the run {given['run_id']} before this one"
        )
        raise ApplicationError(text, type=FORGOTTEN, non_retryable=True) from error
    pieces = Pieces()
    rows = await asyncio.to_thread(_packed, payload_store, replica, given["changes"], pieces)
    await pieces.send(partial(signal, client, PIECE))
    return rows


def _packed(payload_store: PayloadStore, replica: Replica, changes: ChangeSet, pieces: Pieces) -> ChangeSet:
    replica.apply(payload_store.load(changes))
    prune(replica)
    return payload_store.offload(replica.export(), "", plainly=False, put=pieces.put)
