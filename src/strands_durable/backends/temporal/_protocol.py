"""What workflow, workers and clients say to each other: names, and how batches are written. Imported into the sandbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict, cast

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
STALE = "Stale"
MALFORMED = "Malformed"
NOT_HERE = "NotHere"
GONE = "Gone"
TOO_LARGE = "PayloadTooLarge"
FORGOTTEN = "Forgotten"
OMITTED = "omitted"
"""In the place of a result that is too large for Temporal; what is recorded has it whole."""

PACKED, AWAY, PIECES = "packed", "o", "pieces"
"""In the place of a table's name, for rows in a form that people do not read: see `PayloadStore`, and `Pieces`."""
PREVIOUS = "previous"
"""In the place of a table's name: a run begins with what the one before it had come to, at this position."""

Position = list[int]
"""Epoch and batch. Whoever writes begins an epoch: a worker that takes the execution over, or a client that answers."""


_TASK_SECONDS = 5.0
"""What Temporal gives a worker for a workflow task. One that a worker took while it ended is lost until then."""


def task_timeout(heartbeat_seconds: float) -> timedelta:
    """Return how long a worker may take with a workflow until it counts as lost: not longer than with anything else."""
    return timedelta(seconds=min(_TASK_SECONDS, heartbeat_seconds))


class Start(TypedDict, total=False):
    """What a run of the workflow is given."""

    execution_id: str
    agent: str
    rows: dict[str, Any]
    """The execution as it stands at ``epoch``."""
    epoch: int
    heartbeat_seconds: float
    changes: dict[str, Any]
    """What was changed between the run before and this one, where somebody resumed it."""
    max_events: int
    """Go on in a new run after so many events; 0: when Temporal suggests it."""
    previous_run_id: str
    """The run that this one goes on from, if it was not continued by itself."""
    carried_bytes: int
    """How much this run takes over from the one before, where that is more than it could be given."""


class _Driving(TypedDict):
    epoch: int
    base: Position
    alone: bool


class Driving(_Driving, total=False):
    """What a worker is given to take an execution over."""

    lost: bool
    """Whether Temporal has lost sight of the worker before; it may live."""
    held: Position
    """The last batch that history has of the worker that is given this: it still has the execution, and tells the rest."""


class _Alive(TypedDict):
    epoch: int


class Alive(_Alive, total=False):
    """What a worker says that was given up, and lives."""

    queue: str
    """Where the workflow finds it, if it still has the execution."""


class Piece(TypedDict):
    """A part of what is too large for one payload."""

    digest: str
    data: str


class Carrying(TypedDict):
    """What a worker is given to have a run begin with what the one before it had come to."""

    run_id: str
    base: Position
    changes: dict[str, Any]


class BatchMessage(TypedDict, total=False):
    """A batch on its way."""

    epoch: int
    number: int
    rows: dict[str, Any]
    turns: list[dict[str, Any]]
    queue: str
    """Where the worker hears, with the first batch of an epoch."""
    stops: bool
    """Whether it hears there that the execution was cancelled."""
    end: dict[str, Any]
    """How far it has come, with the last batch of an epoch."""
    whole: dict[str, Any]
    """The whole execution, if the workflow is to be continued as new; or where the new run finds it."""
    whole_bytes: int
    """How much that is, where it is more than a payload takes."""


class _Stepping(TypedDict):
    epoch: int
    turn: str
    step: list[Any]
    """Call, key and attempt."""


class Stepping(_Stepping, total=False):
    """What a step is given."""

    held: bool
    """Whether it was let run in an epoch before, and runs, or has ended: it is waited for."""


class Commit(TypedDict):
    """What a client adds to an execution that nobody works on."""

    base: Position
    rows: dict[str, Any]


# What is taken for one of these: a signal or an update may come from anybody, and one that is malformed must stop nothing.


def batch_message_of(given: Any) -> BatchMessage | None:
    """Return a batch; None if it is none."""
    if not isinstance(given, dict) or not _has_numbers(given, "epoch", "number"):
        return None
    turns, queue, end = given.get("turns"), given.get("queue", ""), given.get("end", {})
    if not isinstance(turns, list) or not all(_is_turn(turn) for turn in turns):
        return None
    is_one = _is_rows(given.get("rows")) and isinstance(queue, str) and isinstance(end, dict)
    return cast(BatchMessage, given) if is_one else None


def alive_of(given: Any) -> Alive | None:
    """Return what a worker says that lives; None if it is nothing of the kind."""
    if not isinstance(given, dict) or not _has_numbers(given, "epoch") or not isinstance(given.get("queue", ""), str):
        return None
    return cast(Alive, given)


def commit_of(given: Any) -> Commit | None:
    """Return what a client adds; None if it is nothing of the kind."""
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
    """Say whether something has the form of a change set, whole or packed, of this format or of one before."""
    if not isinstance(rows, dict):
        return False
    if _is_number(rows.get("format")):
        parts = (rows.get("tables"), rows.get("gone", {}))
        return all(isinstance(part, dict) and all(_is_list(found, dict) for found in part.values()) for part in parts)
    return all(_is_table(name, found) for name, found in rows.items())


def _is_table(name: str, found: Any) -> bool:
    """Say whether something is a table of format 3, or stands for a change set that is kept elsewhere."""
    if isinstance(found, dict):  # by table, the keys of rows that are gone
        return all(isinstance(keys, list) for keys in found.values())
    if isinstance(found, str):
        return name in (PACKED, AWAY)
    return _is_list(found, str if name == PIECES else list)


def _is_list(found: Any, kind: type) -> bool:
    return isinstance(found, list) and all(isinstance(each, kind) for each in found)
