"""What is logged when a recorded result is returned instead of running anything.

Finished calls are not checked for drift, but the log shows if the agent has changed since it gave the returned answer.
"""

from __future__ import annotations

from collections.abc import Callable

from .._journal.port import Journal
from .._records.calls import CallRecord
from .._records.logs import safe_logger
from .._strands import fingerprints
from .._strands.fingerprints import Config

logger = safe_logger(__name__)


def say_returned(journal: Journal, record: CallRecord, look: Callable[[], Config]) -> None:
    """Log that a root call's record is returned; ``look`` returns the current configuration of its agent or orchestrator."""
    if record.parent != 0:
        return
    changes = _changes(journal, record, look())
    place = (journal.execution_id, record.scope, record.position, record.status.value)
    if not changes:
        logger.info("execution_id=<%s>, call=<%s#%d>, status=<%s> | recorded result returned", *place)
        return
    logger.warning(
        "execution_id=<%s>, call=<%s#%d>, status=<%s>, changes=<%s>"
        " | recorded result returned, the agent has changed since",
        *place, "; ".join(changes),
    )  # fmt: skip


def _changes(journal: Journal, record: CallRecord, now: Config) -> list[str]:
    """Return how the agent differs from the one that the call began with; a call may have loaded tools while it ran."""
    begun = journal.config(record.config_id)
    if record.kind != "agent":
        return fingerprints.topology_changes(begun, now)
    changes = fingerprints.changes(begun, now)
    last = journal.last_config(record) if changes else None
    return [] if last is not None and not fingerprints.changes(last[1], now) else changes
