"""Moves an execution from one run of its workflow to the next: in the new run's input if it fits, else in pieces.

Temporal limits the input of a new run to 2 MB. A larger execution stays in the history of the run before until a worker has
sent it to the new run, which does nothing else before that.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from ..._enginekit.compaction import prune
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.pieces import Pieces
from ..._enginekit.replica import Replica
from ..._records.change_sets import ChangeSet
from ..._records.logs import safe_logger
from ._errors import is_unknown
from ._heartbeat import signal
from ._history import rebuilt
from ._history_size import CARRIED_BYTES
from ._protocol import FORGOTTEN, PIECE, PREVIOUS, BatchMessage, Carrying

logger = safe_logger(__name__)


def leave(payload_store: PayloadStore, replica: Replica, message: BatchMessage, execution_id: str) -> BatchMessage:
    """Return the last batch of a worker that releases an execution, with the state for the next run of the workflow.

    If the state is larger than a run may begin with, it is left out, and the execution continues in the same run.
    """
    prune(replica)
    room, sizes = payload_store.limits.max_bytes - len(json.dumps(message)), list[int]()

    def too_large(packed: str) -> ChangeSet:
        sizes.append(len(packed))
        return {PREVIOUS: [message["epoch"], message["number"]]}

    whole = payload_store.offload(replica.export(), "", plainly=False, limit=room, put=too_large)
    if not sizes:
        return {**message, "whole": whole}
    if sizes[0] <= CARRIED_BYTES:
        return {**message, "whole": whole, "whole_bytes": sizes[0]}
    logger.warning(
        "execution_id=<%s>, bytes=<%d>, limit=<%d> | too large for a new run of the workflow, continues in the same one; "
        "Temporal ends it at 50 MB: trim the conversation, or set a storage for large payloads (payloads=) and resume",
        execution_id,
        sizes[0],
        CARRIED_BYTES,
    )
    return {**message, "whole_bytes": sizes[0]}


async def carry(client: Client, payload_store: PayloadStore, given: Carrying) -> ChangeSet:
    """Send this run the state of the one before it; return a reference to it."""
    workflow_id = activity.info().workflow_id or ""
    try:
        replica = await rebuilt(client, payload_store, workflow_id, given["run_id"], given["base"])
    except RPCError as error:
        if not is_unknown(error):
            raise
        gone = f"Temporal has deleted the run {given['run_id']} before this one"
        text = f"Execution {workflow_id!r} cannot continue: {gone}"
        raise ApplicationError(text, type=FORGOTTEN, non_retryable=True) from error
    pieces = Pieces(payload_store.limits.max_bytes)
    rows = await asyncio.to_thread(_packed, payload_store, replica, given["changes"], pieces)
    await pieces.send(partial(signal, client, PIECE))
    return rows


def _packed(payload_store: PayloadStore, replica: Replica, changes: ChangeSet, pieces: Pieces) -> ChangeSet:
    replica.apply(payload_store.load(changes))
    prune(replica)
    return payload_store.offload(replica.export(), "", plainly=False, put=pieces.put)
