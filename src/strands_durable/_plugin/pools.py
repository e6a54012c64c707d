"""Tools that call agents in threads of their own: their step is unknown there, so they are part of it."""

from __future__ import annotations

from strands import Agent

from .._records.logs import safe_logger
from .._strands.public_tools import calls_agents_in_pool

logger = safe_logger(__name__)

_named: set[str] = set()


def warn_of_pools(agent: Agent) -> None:
    """Warn, once for each such tool in this process."""
    for name, tool in list(agent.tool_registry.registry.items()):
        if calls_agents_in_pool(tool) and name not in _named:
            _named.add(name)
            logger.warning(
                "agent=<%s>, tool=<%s> | it calls agents in threads of its own, so what they do is part of its step: "
                "after a crash inside, all of it runs again",
                agent.name, name,
            )  # fmt: skip
