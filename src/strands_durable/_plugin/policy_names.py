"""Policies are set by tool name: which names an agent or orchestrator has, and what to do about one that it has not.

A policy under a misspelt name would have no effect, and the payment that it should guard would be made twice.
"""

from __future__ import annotations

import difflib
import weakref
from dataclasses import dataclass, field
from typing import Any

from strands import Agent

from .._records.logs import safe_logger
from .._records.policy import ToolPolicy
from .._strands.agents import is_agent, policy_of, providers_of
from .._strands.orchestrators import adapter_of
from .._strands.public_tools import adds_tools
from ..errors import UnknownToolError
from .parts import everything_in, tools_of

logger = safe_logger(__name__)

_warned: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""By agent or orchestrator, the names that a warning was logged for."""


@dataclass
class _Names:
    """The names that may have a policy in an agent or orchestrator."""

    known: set[str] = field(default_factory=set)
    may_grow: bool = False
    """True if tools may be added later: by a server, a folder, or a tool that loads others."""

    def collect(self, subject: Any) -> None:
        for part in everything_in(subject):
            adapter = adapter_of(part)
            if is_agent(part):
                self._collect_agent(part)
            elif adapter is not None:
                for node_id, executor in adapter.executors().items():
                    if not is_agent(executor) and adapter_of(executor) is None:
                        self.known.add(node_id)  # one opaque step, with a policy of its own

    def _collect_agent(self, agent: Agent) -> None:
        tools = tools_of(agent)
        self.known |= set(tools)
        self.may_grow |= bool(providers_of(agent)) or bool(agent.load_tools_from_directory)
        self.may_grow |= any(adds_tools(tool) or _is_rerun(policy_of(tool, name, {})) for name, tool in tools.items())


def refuse_unknown(subject: Any, policies: dict[str, ToolPolicy]) -> None:
    """Raise if a policy is for a tool that neither ``subject`` nor an agent inside it has.

    If tools may be added later, log a warning instead, once for each object and name.
    """
    if not policies:
        return
    names = _Names(may_grow=any(map(_is_rerun, policies.values())))
    names.collect(subject)
    for name in policies:
        if name not in names.known:
            _refuse(subject, name, sorted(names.known), names.may_grow)


def _is_rerun(policy: ToolPolicy) -> bool:
    """Return True if a tool has effects on its process, which may include other tools."""
    return policy.on_resume not in (None, "reuse")


def _refuse(subject: Any, name: str, known: list[str], may_grow: bool) -> None:
    close = next(iter(difflib.get_close_matches(name, known, n=1)), None)
    if not may_grow:
        raise UnknownToolError(_title(subject), name, close, known)
    warned = _warned.setdefault(subject, set())
    if name not in warned:
        warned.add(name)
        meant = "" if close is None else f", did you mean {close!r}?"
        logger.warning(
            "tool=<%s>, known=<%s> | tool_policies names a tool that %s does not have yet%s",
            name, ", ".join(known), _title(subject), meant,
        )  # fmt: skip


def _title(subject: Any) -> str:
    return f"agent {subject.name!r}" if is_agent(subject) else f"{type(subject).__name__} {subject.id!r}"
