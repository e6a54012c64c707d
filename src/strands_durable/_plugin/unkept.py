"""What an agent uses that cannot be kept: effects that a crash loses, and tools whose calls should not be repeated.

Each is one WARNING in the log of a process, when Durability is attached. It says what is lost and what to use instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from strands import Agent
from strands.hooks import AgentInitializedEvent, MultiAgentInitializedEvent

from .._records.logs import safe_logger
from .._records.policy import ToolPolicy
from .._strands.agents import has_policy, is_agent
from .._strands.public_plugins import extracting_stores, offloads_to_memory, unawaited_add_tool
from .._strands.public_tools import if_repeated
from .parts import everything_in, tools_of

logger = safe_logger(__name__)

_said: set[str] = set()
"""The warnings of this process."""


def warn_of_unkept(subject: Any, policies: Mapping[str, ToolPolicy]) -> None:
    """Log what a crash would lose or repeat of an agent or orchestrator and of everything inside it."""
    for part in everything_in(subject):
        if is_agent(part):
            for text in (*_lost(part), *_repeated(part, policies)):
                _warn(f"agent=<{part.name}>, {text}")


def warn_when_built(subject: Any, policies: Mapping[str, ToolPolicy]) -> None:
    """Do the same at the end of a constructor: when our plugin is initialized, other plugins and the nodes may be missing."""
    if is_agent(subject):
        subject.hooks.add_callback(AgentInitializedEvent, lambda event: warn_of_unkept(event.agent, policies))
    else:
        subject.hooks.add_callback(MultiAgentInitializedEvent, lambda event: warn_of_unkept(event.source, policies))


def _lost(agent: Agent) -> Iterator[str]:
    if offloads_to_memory(agent):
        yield (
            "plugin=<ContextOffloader> | it keeps large results in memory: after a crash the model cannot retrieve them."
            " Give it a storage that lasts: ContextOffloader(storage=LocalFileStorage(...)), from strands.storage"
        )
    for store in extracting_stores(agent):
        yield (
            f"store=<{store}> | memory is extracted from messages that only this process has seen: after a crash,"
            " those before it are missing, and what was not yet written is lost. Let the model write what must be"
            " remembered: MemoryManager(..., add_tool_config=True)"
        )
    name = unawaited_add_tool(agent)
    if name is not None:
        yield (
            f"tool=<{name}> | it returns before the memory is written: a crash loses the write, and the record says that"
            " it was accepted. Use wait_for_writes=True, the default"
        )


def _repeated(agent: Agent, policies: Mapping[str, ToolPolicy]) -> Iterator[str]:
    for name, tool in tools_of(agent).items():
        what = if_repeated(tool)
        if what is not None and not has_policy(tool, name, policies):
            yield (
                f"tool=<{name}> | if a crash interrupts a call, it is repeated, and {what}. To let a person decide:"
                f' tool_policies={{"{name}": ToolPolicy(in_doubt="ask")}}; in_doubt="retry" keeps it as it is'
            )


def _warn(text: str) -> None:
    if text not in _said:
        _said.add(text)
        logger.warning("%s", text)
