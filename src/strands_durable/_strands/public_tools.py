"""Which calls of well-known tools leave their effect in the process: what a kill forgets, and a resume has to do again.

Named by the module that defines the tool. What a call does outside of the process (a message sent, a tool of a server called,
agents run) is never among them. docs/features.md has a table of all tools of strands-agents-tools.
"""

from __future__ import annotations

from typing import Any

_IN_PROCESS: dict[str, tuple[str, frozenset[str]] | None] = {
    "strands_tools.load_tool": None,
    "strands_tools.mcp_client": ("action", frozenset({"connect", "load_tools", "disconnect"})),
    "strands_tools.environment": ("action", frozenset({"set", "delete"})),
    "strands_tools.graph": ("action", frozenset({"create", "delete"})),
    "strands_tools.agent_graph": ("action", frozenset({"create", "stop"})),
    "strands.vended_tools.mcp_router.mcp_router": ("command", frozenset({"connect", "disconnect"})),
}
"""By module: the input that tells one action of a tool from another, and the actions; None: every call."""
_ADD_TOOLS = ("strands_tools.load_tool", "strands_tools.mcp_client")


def lives_in_process(tool: Any, given: Any) -> bool:
    """Say whether a call with this input is one whose effect a new process does not have."""
    module = _module(tool)
    if module not in _IN_PROCESS:
        return False
    actions = _IN_PROCESS[module]
    return actions is None or (isinstance(given, dict) and given.get(actions[0]) in actions[1])


def may_live_in_process(tool: Any) -> bool:
    """Say whether there are such calls of a tool."""
    return _module(tool) in _IN_PROCESS


def adds_tools(tool: Any) -> bool:
    """Say whether a tool gives its agent others."""
    return _module(tool) in _ADD_TOOLS


def _module(tool: Any) -> str:
    return str(getattr(getattr(tool, "_tool_func", None), "__module__", ""))
