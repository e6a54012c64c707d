"""The step player: gives what steps came to in another run, in place of running them. For tests that replay a recorded run.

Imports neither Strands nor a store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from .steps import StepRecord

Events = AsyncGenerator[Any, None]


class StepPlayer(Protocol):
    """Takes the place of every model, tool, effect and opaque node. Each method raises a `DurableError` to end the run."""

    def model(self, call: Any, key: str) -> Events:
        """Return the events of a model call: its recorded answer."""

    def tool(self, call: Any, key: str, context: Any) -> Events:
        """Return the events of a tool call: its recorded result, after its recorded changes of the agent."""

    def node(self, call: Any, key: str) -> Events:
        """Return the events of a node that is neither an agent nor an orchestrator."""

    def effect(self, call: Any, key: str) -> StepRecord:
        """Return a recorded effect, or a recorded model call beside the loop."""
