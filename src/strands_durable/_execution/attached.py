"""Which agents and orchestrators the plugin is attached to, and with which options. `_plugin` attaches it."""

from __future__ import annotations

import weakref
from typing import Any

from strands import Agent

from .._records.options import Options

attached: weakref.WeakKeyDictionary[Any, Options | None] = weakref.WeakKeyDictionary()
"""The attached agents and orchestrators, each with the options of its own `Durability`, if it has one."""


lasting: weakref.WeakSet[Agent] = weakref.WeakSet()
"""Agents that were built before any call: their memory outlives the tool that calls them."""


def options_of(subject: Any) -> Options | None:
    """Return the options of the `Durability` that an agent or orchestrator was built with, if it has one."""
    return attached.get(subject)


def lasting_agents() -> list[Agent]:
    """Return the agents that were built before any call."""
    return list(lasting)


def lasting_agent(agent_id: str) -> Agent | None:
    """Return the agent that was built before any call and has this id; None if there is none or more than one."""
    found = [agent for agent in lasting if agent.agent_id == agent_id]
    return found[0] if len(found) == 1 else None
