"""What an agent, a Graph or a Swarm consists of: itself, the agents behind tools, the executors of nodes, at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._strands.agents import agent_behind, agents_beside, is_agent
from .._strands.orchestrators import adapter_of


def tools_of(agent: Any) -> dict[str, Any]:
    """Return an agent's tools by name."""
    registry = agent.tool_registry
    return {**registry.registry, **registry.dynamic_tools}


def everything_in(subject: Any) -> Iterator[Any]:
    """Yield each agent and orchestrator once, beginning with ``subject``."""
    seen, found = set(), [subject]
    while found:
        part = found.pop(0)
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            found += parts_of(part)


def parts_of(subject: Any) -> list[Any]:
    """Return the agents and orchestrators directly inside an agent or orchestrator."""
    adapter = adapter_of(subject)
    if adapter is not None:
        parts = list(adapter.executors().values())
    else:
        parts = [*map(agent_behind, tools_of(subject).values()), *agents_beside(subject)]
    return [part for part in parts if is_agent(part) or adapter_of(part) is not None]
