"""The protocol between workflow, workers and clients: names, and the form of messages. Imported into the sandbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict, cast

from ..._enginekit.payloads import AWAY, PACKED
from ..._enginekit.pieces import PIECES

WORKFLOW = "strands_durable"
DEFAULT_QUEUE = "strands-durable"
DRIVE = "run_agent"
RELEASE = "leave_agent"
WAKE = "wake_agent"
STEPS = {"model": "model_call", "tool": "tool_call", "effect": "durable_step", "node": "node_call"}
PROGRESS = "progress"
ALIVE = "alive"
ACCEPT_DRIFT = "accept_drift"
CANCEL = "cancel_agent"
PIECE = "piece"
CARRY = "carry_agent"
COMMIT = "commit"
NOTIFY_WORKFLOW = "strands_durable_notify"
NOTIFY = "notify"
"""Delivers a notification; also the end of the task queue of workers that have hooks."""
STALE = "Stale"
MALFORMED = "Malformed"
NOT_HERE = "NotHere"
GONE = "Gone"
TOO_LARGE = "PayloadTooLarge"
FORGOTTEN = "Forgotten"
OMITTED = "omitted"
"""Replaces a result that is too large for Temporal; the recorded rows contain it in full."""

PREVIOUS = "previous"
"""Used as a table's name: a run begins with the state of the one before it, at this position."""

Position = list[int]
"""Epoch and batch. Each writer begins an epoch: a worker that takes over the execution, or a client that answers."""


_TASK_SECONDS = 5.0
"""Timeout of a workflow task. A task that a worker received while it shut down is lost until then."""


def task_timeout(heartbeat_seconds: float) -> timedelta:
    """Return how long a worker may take for a workflow task before it counts as lost: at most as long as a heartbeat."""
    return timedelta(seconds=min(_TASK_SECONDS, heartbeat_seconds))


class Start(TypedDict, total=False):
    """The input of a run of the workflow."""

    execution_id: str
    agent: str
    rows: dict[str, Any]
    """The execution as it is at ``epoch``."""
    epoch: int
    heartbeat_seconds: float
    changes: dict[str, Any]
    """What was changed between the run before and this one, if a client resumed it."""
    max_events: int
    """Continue in a new run after so many events; 0: when Temporal suggests it."""
    previous_run_id: str
    """The run that this one resumes, if a client started it (no continue-as-new)."""
    carried_bytes: int
    """How many bytes this run copies from the one before, if they do not fit into its input."""


class _Driving(TypedDict):
    epoch: int
    base: Position
    alone: bool


class Driving(_Driving, total=False):
    """The input of the activity with which a worker takes over an execution."""

    lost: bool
    """Whether Temporal has lost contact with the previous worker, which may be alive."""
    held: Position
    """The last batch in history of the worker that receives this: it still has the execution, and reports the rest."""


class _Alive(TypedDict):
    epoch: int


class Alive(_Alive, total=False):
    """Sent by a worker that was given up but is alive."""

    queue: str
    """Its task queue, if it still has the execution."""


class Carrying(TypedDict):
    """The input of the activity that sends a run the state of the one before it."""

    run_id: str
    base: Position
    changes: dict[str, Any]


class BatchMessage(TypedDict, total=False):
    """A batch as it is sent to the workflow."""

    epoch: int
    number: int
    rows: dict[str, Any]
    turns: list[dict[str, Any]]
    queue: str
    """The task queue of the worker, in the first batch of an epoch."""
    stops: bool
    """Whether the worker accepts a cancel request on that queue."""
    reports: list[str]
    """The events that the hooks of the worker are called for, in the first batch of an epoch, if it has hooks."""
    end: dict[str, Any]
    """The state of the execution, in the last batch of an epoch."""
    whole: dict[str, Any]
    """The whole execution, or a reference to it, if the workflow is to be continued as new."""
    whole_bytes: int
    """The size of the whole execution, if it does not fit into a payload."""


class Notifying(TypedDict):
    """The input of the workflow that has a notification delivered."""

    execution_id: str
    workflow_id: str
    run_id: str
    created_at: float
    """When the execution was dispatched: another one of the same id has another time."""
    notice_id: str
    event: str
    at: float
    heartbeat_seconds: float


class Delivering(TypedDict):
    """The input of the activity that calls the hooks of a worker."""

    execution_id: str
    workflow_id: str
    run_id: str
    created_at: float
    notice_id: str
    event: str
    at: float
    tries: int
    taken: list[str]
    """The hooks that have taken it already."""


class Delivered(TypedDict):
    """Which hooks have taken a notification by now, and why others have not."""

    taken: list[str]
    failures: dict[str, str]


class _Stepping(TypedDict):
    epoch: int
    turn: str
    step: list[Any]
    """Call, key and attempt."""


class Stepping(_Stepping, total=False):
    """The input of the activity of a step."""

    held: bool
    """Whether the step was let run in an earlier epoch: the activity only waits for its end."""


class Commit(TypedDict):
    """What a client adds to an execution that no worker runs."""

    base: Position
    rows: dict[str, Any]


# Validation: any client may send a signal or an update, and a malformed one must not stop the workflow.


def batch_message_of(given: Any) -> BatchMessage | None:
    """Return a batch; None if the value is malformed."""
    if not isinstance(given, dict) or not _has_numbers(given, "epoch", "number"):
        return None
    turns, queue, end = given.get("turns"), given.get("queue", ""), given.get("end", {})
    if not isinstance(turns, list) or not all(_is_turn(turn) for turn in turns):
        return None
    is_one = _is_rows(given.get("rows")) and isinstance(queue, str) and isinstance(end, dict)
    is_one = is_one and _is_list(given.get("reports", []), str)
    return cast(BatchMessage, given) if is_one else None


def alive_of(given: Any) -> Alive | None:
    """Return the message of a worker that is alive; None if the value is malformed."""
    if not isinstance(given, dict) or not _has_numbers(given, "epoch") or not isinstance(given.get("queue", ""), str):
        return None
    return cast(Alive, given)


def commit_of(given: Any) -> Commit | None:
    """Return what a client adds; None if the value is malformed."""
    if not isinstance(given, dict) or not _is_rows(given.get("rows")):
        return None
    base = given.get("base")
    is_place = isinstance(base, list) and len(base) == 2 and all(_is_number(each) for each in base)
    return cast(Commit, given) if is_place else None


def _has_numbers(given: dict[str, Any], *names: str) -> bool:
    return all(_is_number(given.get(name)) for name in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_turn(turn: Any) -> bool:
    if not isinstance(turn, dict) or not isinstance(turn.get("until", 0.0), (int, float)):
        return False
    step = turn.get("step")
    if not isinstance(step, list) or len(step) != 3 or not isinstance(step[1], str):
        return False
    is_known = turn.get("kind") in STEPS and _is_number(step[0]) and _is_number(step[2])
    return is_known and isinstance(turn.get("id"), str) and isinstance(turn.get("summary"), str)


def _is_rows(rows: Any) -> bool:
    """Return True if a value has the form of a change set, plain or packed, of this format or an earlier one."""
    if not isinstance(rows, dict):
        return False
    if _is_number(rows.get("format")):
        parts = (rows.get("tables"), rows.get("gone", {}))
        return all(isinstance(part, dict) and all(_is_list(found, dict) for found in part.values()) for part in parts)
    return all(_is_table(name, found) for name, found in rows.items())


def _is_table(name: str, found: Any) -> bool:
    """Return True if a value is a table of format 3, or refers to a change set that is stored elsewhere."""
    if isinstance(found, dict):  # by table, the keys of deleted rows
        return all(isinstance(keys, list) for keys in found.values())
    if isinstance(found, str):
        return name in (PACKED, AWAY)
    return _is_list(found, str if name == PIECES else list)


def _is_list(found: Any, kind: type) -> bool:
    return isinstance(found, list) and all(isinstance(each, kind) for each in found)
