"""Where a forked or imported execution comes from, and what a fork may change: plain frozen data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PART = "origin"
"""The part of the first root call's head that records the origin."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The execution that another one was forked from."""

    execution_id: str
    run: int
    step: int
    """The number of the last finished step that both have in common; 0 if the fork began at the beginning."""
    forked_at: float
    """When it was forked, in seconds since the epoch."""
    by: str
    """Who forked it: the ``by`` of `ExecutionHandle.fork`, else ``user@host``."""
    changed: tuple[str, ...] = ()
    """What was replaced: ``state``, ``messages``, ``prompt``."""
    drift: tuple[str, ...] = ()
    """How the agent that took up the fork differs from the one that ran the steps before it."""

    def to_text(self) -> str:
        """Return the recorded form."""
        return json.dumps(vars(self))

    @classmethod
    def from_text(cls, text: str) -> Origin:
        """Return what was recorded."""
        found = json.loads(text)
        known = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
        return cls(**{**known, **{name: tuple(found.get(name, ())) for name in ("changed", "drift")}})


IMPORTED = "imported"
"""The part of the same head that records an import."""


@dataclass(frozen=True, kw_only=True)
class ImportOrigin:
    """How an execution came into its store from a file."""

    execution_id: str
    """The id that it had where it was exported."""
    exported_at: str
    """When it was exported, in ISO 8601."""
    imported_at: float
    """When it was imported, in seconds since the epoch."""
    by: str
    """Who imported it: ``user@host``."""

    def to_text(self) -> str:
        """Return the recorded form."""
        return json.dumps(vars(self))

    @classmethod
    def from_text(cls, text: str) -> ImportOrigin:
        """Return what was recorded."""
        found = json.loads(text)
        return cls(**{name: found[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True)
class ForkPoint:
    """What a fork at a step would begin with: the agent that the step belongs to, as it was then."""

    step: int
    """The number of the step; 0 for the beginning."""
    scope: str
    """Which agent: the path of the call inside the execution."""
    messages: list[Any]
    """The conversation that it had in sight."""
    state: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ForkChanges:
    """What a fork replaces; None leaves it as it was."""

    state: dict[str, Any] | None = None
    messages: list[Any] | None = None
    prompt: Any = None
    by: str | None = None
    """Who asks for it; None: the user of this process."""

    @classmethod
    def of(
        cls, state: Mapping[str, Any] | None, messages: Sequence[Any] | None, prompt: Any, by: str | None
    ) -> ForkChanges:
        """Return what is given to `ExecutionHandle.fork`."""
        return cls(
            state=None if state is None else dict(state),
            messages=None if messages is None else list(messages),
            prompt=prompt,
            by=by,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is replaced."""
        return tuple(name for name in ("state", "messages", "prompt") if getattr(self, name) is not None)
