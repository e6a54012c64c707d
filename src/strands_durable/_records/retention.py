"""How long executions that have ended are kept, as plain data: by status, and apart from that their contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .durations import Duration, seconds_in
from .executions import ExecutionStatus


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long executions are kept after they have ended. What has not ended, and what is held, is always kept.

    Each is a text such as ``"30d"``, ``"12h"`` or ``"90m"``, a number of seconds, or a `datetime.timedelta`. None: for ever.
    """

    completed: Duration | None = None
    """How long an execution is kept that has completed."""
    failed: Duration | None = None
    """How long one is kept that has failed. After that it cannot be resumed."""
    cancelled: Duration | None = None
    """How long one is kept that was cancelled."""
    contents: Duration | None = None
    """How long inputs, results, messages and state of one that has ended are kept. Its id, status, times and tags, and the
    names, times and tokens of its steps, stay until the execution itself is removed."""

    def __post_init__(self) -> None:
        for each in fields(self):
            given = getattr(self, each.name)
            if given is not None:
                try:
                    seconds_in(given)
                except ValueError as error:
                    raise ValueError(f"Retention({each.name}={given!r}): {error}") from None

    @classmethod
    def of(cls, text: str) -> Retention:
        """Return what a text such as ``completed=30d,failed=90d,contents=7d`` says, or raise `ValueError`."""
        found: dict[str, Any] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            name, equals, given = part.partition("=")
            if name in found:
                raise ValueError(f"{part!r} is a second rule for {name!r}: {name}={found[name]} is given already.")
            if not equals or name not in _NAMES:
                raise ValueError(f"{part!r} is no rule. Use {', '.join(f'{each}=30d' for each in _NAMES)}.")
            found[name] = given
        return cls(**found)

    def seconds_of(self, status: ExecutionStatus) -> float | None:
        """Return how long an execution with a status is kept; None: for ever."""
        given = getattr(self, status.value.lower(), None)
        return None if given is None else seconds_in(given)

    @property
    def contents_seconds(self) -> float | None:
        """How long contents are kept; None: as long as the execution."""
        return None if self.contents is None else seconds_in(self.contents)

    @property
    def is_empty(self) -> bool:
        """Whether everything is kept for ever."""
        return all(getattr(self, name) is None for name in _NAMES)


_NAMES = tuple(each.name for each in fields(Retention))


@dataclass(frozen=True, kw_only=True)
class RetentionRules:
    """The retention of a backend, and those of agents that have their own, which replace it as a whole."""

    default: Retention = field(default_factory=Retention)
    agents: Mapping[str, Retention] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> RetentionRules:
        """Return what texts such as ``completed=30d`` and ``planner:completed=7d`` say, or raise `ValueError`.

        Several texts for one agent, or for none, add up; one that says the same thing twice is refused.
        """
        default: list[str] = []
        agents: dict[str, list[str]] = {}
        for text in texts:
            agent, colon, rules = text.rpartition(":")
            (agents.setdefault(agent, []) if colon else default).append(rules)
        by_agent = {agent: Retention.of(",".join(rules)) for agent, rules in agents.items()}
        return cls(default=Retention.of(",".join(default)), agents=by_agent)

    def of_agent(self, agent: str | None) -> Retention:
        """Return what applies to the executions of an agent."""
        return self.agents.get(agent or "", self.default)

    @property
    def is_empty(self) -> bool:
        """Whether everything is kept for ever."""
        return self.default.is_empty and all(each.is_empty for each in self.agents.values())

    def longest_before(self, status: ExecutionStatus, now: float) -> float | None:
        """Return the time before which an execution of some agent is removed or loses its contents; None if never."""
        every = (self.default, *self.agents.values())
        ages = [age for each in every for age in (each.seconds_of(status), each.contents_seconds) if age is not None]
        return now - min(ages) if ages else None


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What a pass of retention has removed, or would remove."""

    removed: int
    """Executions that were removed."""
    emptied: int
    """Executions whose contents were removed."""
    held: int
    """Executions that are old enough, and stay because they are held."""
    failed: int = 0
    """Executions that could not be removed, or not with every row; the log says why."""
    freed_bytes: int = 0
    """Bytes of free pages that were given back. The file is smaller by that once no reader needs its WAL; what `rebuild` gives
    back is not counted."""
    removed_ids: tuple[str, ...] = ()
    """Their ids; only of a dry run."""
    emptied_ids: tuple[str, ...] = ()
    """The ids of those whose contents would be removed; only of a dry run."""
