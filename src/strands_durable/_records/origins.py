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


def checked_step(at: Any) -> int | None:
    """Return ``at`` if it can be the number of a step, or None."""
    if at is not None and type(at) is not int:
        raise TypeError(f"at must be the number of a finished step, an int, not {_brief(at)}")
    return at


def _brief(value: Any) -> str:
    return f"{repr(value)[:40]} ({type(value).__name__})"


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
        """Return what is given to `ExecutionHandle.fork`; raise TypeError for what is something else."""
        if state is not None and not (isinstance(state, Mapping) and all(isinstance(name, str) for name in state)):
            raise TypeError(f"state must be a mapping with names as keys, not {_brief(state)}")
        if messages is not None and (not isinstance(messages, Sequence) or isinstance(messages, (str, bytes))):
            raise TypeError(f"messages must be a list of Strands messages, not {_brief(messages)}")
        if by is not None and not isinstance(by, str):
            raise TypeError(f"by must be a text, not {_brief(by)}")
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
