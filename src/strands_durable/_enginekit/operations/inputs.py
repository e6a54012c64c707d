"""The input of the function: an execution as its rows, a prompt for which the function records one, or a delivery."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypedDict

from ..._dispatch.registry import DurableAgent
from ..._records.change_sets import ChangeSet
from ...errors import UnsupportedFeatureError
from .port import Operations
from .row_store import RowStore
from .run import dispatched


class Start(TypedDict, total=False):
    """What the function is started with."""

    execution_id: str
    agent: str
    rows: ChangeSet
    segment: bool
    """Whether another execution of the function waits for this one, which continues it."""
    prompt: Any
    arguments: dict[str, Any]
    invocation_state: dict[str, Any]
    notice: Any
    """A report about the execution, which this one only delivers; see `reports`."""


def begun(
    event: Any, operations: Operations, agents: Mapping[str, DurableAgent], store: RowStore
) -> tuple[str, ChangeSet]:
    """Return the id and the rows of the execution; record one that was not dispatched by our client."""
    if isinstance(event, dict) and "rows" in event:
        return event["execution_id"], event["rows"]
    if not isinstance(event, dict) or "prompt" not in event:
        raise UnsupportedFeatureError(
            "This input of the function",
            'it is neither from strands-durable nor has it a "prompt"',
            'Dispatch with connect("..."), or pass {"prompt": ..., "agent": ..., "execution_id": ...}.',
        )
    name = event.get("agent") or next(iter(agents))
    if name not in agents:
        known = ", ".join(sorted(agents))
        raise UnsupportedFeatureError(f"Agent {name!r}", f"this function has {known}", "Name one of them.")
    spec = partial(agents[name].spec_with, **event.get("arguments", {}))
    state, execution_id = event.get("invocation_state"), event.get("execution_id")
    return dispatched(operations, store, spec, event["prompt"], execution_id, state)
