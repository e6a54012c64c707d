"""What can be wrong with a backend, as far as every backend can be asked: is it reachable, does a worker run its queue."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from .._records.executions import NO_AGENT, NO_TRIAL, OTHER_VERSION, ExecutionRecord, ExecutionStatus
from .._records.findings import ANY_ID, Finding, by_reason, few
from .._records.printable import one_line, url_for_people
from ..errors import DurableError, ExecutionNotFoundError

if TYPE_CHECKING:
    from .ports import DurableBackend

S = ExecutionStatus
ANSWER_SECONDS = 10.0
"""How long a backend may take to answer."""
_PROBE_ID = "strands-durable-probe"
"""An id that need not exist: to look for it is the cheapest request that every backend answers."""
_WAIT_SECONDS = 30.0
"""How long an execution may wait for a worker."""
_AHEAD_SECONDS = 60.0


async def answers(backend: DurableBackend) -> None:
    """Raise unless a backend can be read."""
    await asyncio.to_thread(backend.refuse_unreadable)
    try:
        await backend.get(_PROBE_ID)
    except ExecutionNotFoundError:
        pass


async def examined(backend: DurableBackend) -> list[Finding]:
    """Return what can be said of any backend; only one finding if it does not answer."""
    started_at, where = time.monotonic(), url_for_people(backend.url)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await answers(backend)
            unattended = await backend.unattended()
            records = await backend.list(status=(S.PENDING, S.RUNNING, S.SUSPENDED))
    except TimeoutError:
        text = f"{where} has not answered within {ANSWER_SECONDS:g} s"
        return [Finding(check="reachable", level="problem", text=text, remedy="Check its address and the network.")]
    except DurableError as error:
        return [Finding(check="reachable", level="problem", text=str(error))]
    milliseconds = 1000 * (time.monotonic() - started_at)
    return [
        Finding(check="reachable", level="ok", text=f"{where} answers in {milliseconds:.0f} ms"),
        *_of_queue(backend, records, unattended),
        *_of_trials(records),
        *_of_records(records),
        _of_clock(records),
    ]


def _of_queue(backend: DurableBackend, records: list[ExecutionRecord], unattended: str | None) -> list[Finding]:
    """Return whether executions wait that no worker has claimed, and why."""
    waiting = [record for record in records if record.kind != "inline" and record.owner is None]
    waiting = [record for record in waiting if record.status is not S.SUSPENDED]
    if unattended is not None:
        return [Finding(check="workers", level="warning", text=unattended)]
    late = [record for record in waiting if time.time() - record.updated_at > _WAIT_SECONDS]
    late = [record for record in late if NO_TRIAL not in (record.note or "")]
    if not late:
        return [
            Finding(check="workers", level="ok", text=f"{len(waiting)} executions wait for a worker, none for long")
        ]
    oldest = min(late, key=lambda record: record.updated_at)
    seconds = time.time() - oldest.updated_at
    text = f"{len(late)} executions wait for a worker, the oldest, {oldest.execution_id!r}, for {seconds:.0f} s"
    note = (oldest.note or "").partition("\n")[0]
    remedy = note or f"Start a worker with agent {oldest.agent!r}: strands-durable worker FILE"
    if note.startswith(NO_AGENT) or OTHER_VERSION in note:
        text += ", because of its agent"
    return [Finding(check="workers", level="warning", text=text, remedy=backend.invoker or remedy)]


def _of_trials(records: list[ExecutionRecord]) -> list[Finding]:
    """Return what cannot be tried because a worker cannot start the process for it."""
    notes = {record.execution_id: record.note or "" for record in records if NO_TRIAL in (record.note or "")}
    if not notes:
        return []
    first, note = next(iter(notes.items()))
    text = f"{len(notes)} suspected executions wait, such as {first!r}: {one_line(note)}"
    remedy = (
        "A second process must be able to import the worker's files while the worker runs: let them take no fixed port "
        "and no exclusive lock. The reason is in the worker's log."
    )
    return [Finding(check="trials", level="warning", text=text, remedy=remedy)]


def _of_records(records: list[ExecutionRecord]) -> list[Finding]:
    asked = [record for record in records if record.status is S.SUSPENDED]
    found = [Finding(check="questions", level="ok", text=f"{len(asked)} executions wait for a person")]
    damaged = [(record.execution_id, record.unreadable) for record in records if record.unreadable is not None]
    return [*found, *(_unreadable(ids, why) for why, ids in by_reason(damaged).items())]


def _unreadable(ids: list[str], why: str) -> Finding:
    text, name = f"execution {ids[0]!r} cannot be read: {why}", ids[0]
    if len(ids) > 1:
        text, name = f"{len(ids)} executions cannot be read: {few(list(map(repr, ids)))}: {why}", ANY_ID
    remedy = f"Remove {'it' if name is not ANY_ID else 'each'}: strands-durable rm {name}"
    return Finding(check="readable", level="problem", text=text, remedy=remedy)


def _of_clock(records: list[ExecutionRecord]) -> Finding:
    """Compare the clock of this machine with the latest record: no other clock can be asked."""
    if not records:
        return Finding(check="clock", level="unknown", text="no open execution whose times could be compared")
    ahead = max(record.updated_at for record in records) - time.time()
    if ahead > _AHEAD_SECONDS:
        text = f"an execution was changed {ahead:.0f} s in the future of this machine's clock"
        return Finding(
            check="clock", level="warning", text=text, remedy="Synchronize the clocks of the machines (NTP)."
        )
    return Finding(check="clock", level="ok", text="no execution was changed in the future of this machine's clock")
