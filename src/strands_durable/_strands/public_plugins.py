"""What the plugins that come with Strands keep in the process, so that a crash loses it: private parts of strands-agents 1.62.

tests/contract/test_c12_unkept_effects.py fails when a new version moves them. docs/features.md has a table of all plugins.
"""

from __future__ import annotations

from typing import Any

from strands import Agent
from strands.memory import MemoryManager
from strands.storage import InMemoryStorage
from strands.vended_plugins.context_offloader import ContextOffloader
from strands.vended_plugins.context_offloader import InMemoryStorage as OffloaderStorage

__all__ = ["extracting_stores", "offloads_to_memory", "unawaited_add_tool"]


def offloads_to_memory(agent: Agent) -> bool:
    """Return True if large results are moved to the memory of the process."""
    return any(_is_in_memory(plugin._storage) for plugin in _plugins(agent) if isinstance(plugin, ContextOffloader))


def extracting_stores(agent: Agent) -> list[str]:
    """Return the names of the memory stores that are filled from the conversation, in the background."""
    return [binding.store.name for manager in _memory_managers(agent) for binding in manager._extraction_stores]


def unawaited_add_tool(agent: Agent) -> str | None:
    """Return the name of the tool that adds to memory if its result does not wait for the write."""
    for manager in _memory_managers(agent):
        config = manager._add_tool_config
        if config and not config.get("wait_for_writes", True):
            return config.get("name") or "add_memory"
    return None


def _is_in_memory(storage: Any) -> bool:
    storage = getattr(storage, "_storage", storage)  # a namespace around another storage
    return isinstance(storage, (InMemoryStorage, OffloaderStorage))


def _memory_managers(agent: Agent) -> list[MemoryManager]:
    return [plugin for plugin in _plugins(agent) if isinstance(plugin, MemoryManager)]


def _plugins(agent: Agent) -> list[Any]:
    return list(agent._plugin_registry._plugins.values())
