"""What workflow, workers and clients say to each other: names, and how batches are written. Imported into the sandbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

WORKFLOW = "strands_durable"
DEFAULT_QUEUE = "strands-durable"
DRIVE = "run_agent"
RELEASE = "leave_agent"
WAKE = "wake_agent"
STEPS = {"model": "model_call", "tool": "tool_call", "effect": "durable_step", "node": "node_call"}
PROGRESS = "progress"
ALIVE = "alive"
ACCEPT_DRIFT = "accept_drift"
COMMIT = "commit"
STALE = "Stale"
NOT_HERE = "NotHere"
GONE = "Gone"
TOO_LARGE = "PayloadTooLarge"
OMITTED = "omitted"
"""In the place of a result that is too large for Temporal; what is recorded has it whole."""

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


class Driving(TypedDict):
    """What a worker is given to take an execution over."""

    epoch: int
    base: Position
    alone: bool


class Alive(TypedDict):
    """What a worker says that was given up, and lives."""

    epoch: int


class Told(TypedDict, total=False):
    """A batch on its way."""

    epoch: int
    number: int
    rows: dict[str, Any]
    turns: list[dict[str, Any]]
    queue: str
    """Where the worker hears, with the first batch of an epoch."""
    end: dict[str, Any]
    """How far it has come, with the last batch of an epoch."""
    whole: dict[str, Any]
    """The whole execution, if the workflow is to be continued as new."""


class Stepping(TypedDict):
    """What a step is given."""

    epoch: int
    turn: str
    step: list[Any]
    """Call, key and attempt."""


class Commit(TypedDict):
    """What a client adds to an execution that nobody works on."""

    base: Position
    rows: dict[str, Any]
