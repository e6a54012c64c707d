"""What an agent is, as data: only this and the prompt cross a process boundary. Does not import Strands."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .calls import CallKind
from .codec import digest


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """Identifies an agent, a Graph or a Swarm to a backend, and lets a worker check whether it has the same one.

    Frozen and JSON-safe. `DurableAgent.spec` returns it. Tools of MCP servers are not in it, because building it starts none.
    """

    name: str
    kind: CallKind = "agent"
    model_id: str | None = None
    """None for a Graph or Swarm: each of its ``nodes`` has one."""
    system_prompt: Any = None
    tool_names: tuple[str, ...] = ()
    tool_schemas: dict[str, Any] = field(default_factory=dict)
    session_id: str | None = None
    nodes: dict[str, Any] = field(default_factory=dict)
    """By node id, what runs there: the parts of a spec, or only the class of what is neither agent, Graph nor Swarm."""
    edges: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    """The keyword arguments for the factory."""
    fingerprint: str = ""
    """Changes with the name, the model, the prompt, the tools and the topology; not with session and arguments as such. For an
    agent with a ``version``, it changes with the name and the version alone. Empty: any version may run it."""
    version: str | None = None
    """The ``version`` of `durable_agent`."""

    @property
    def shown_version(self) -> str:
        """A readable identifier of this version."""
        return f"version {self.version!r}" if self.version is not None else self.fingerprint[:12] or "any version"

    def __hash__(self) -> int:
        return hash((self.name, self.fingerprint))

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON data."""
        return {**asdict(self), "tool_names": list(self.tool_names), "edges": list(self.edges)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> AgentSpec:
        """Return the spec that ``data`` describes; fields added by later versions are ignored."""
        known = {entry.name: data[entry.name] for entry in fields(cls) if entry.name in data}
        return cls(**{**known, "tool_names": tuple(data["tool_names"]), "edges": tuple(data["edges"])})


def fingerprint_of(parts: dict[str, Any]) -> str:
    """Return what distinguishes two agents of the same name."""
    return digest(parts)
