"""Which calls of well-known tools have an effect inside the process, which is lost with it and must be redone on resume.

Tools are identified by the module that defines them. Calls with an effect outside the process (a message sent, a tool of a
server called, agents run) are never among them. docs/features.md has a table of all tools of strands-agents-tools.
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
"""By module: the input field that selects the tool's action, and the actions; None: every call."""
_ADD_TOOLS = ("strands_tools.load_tool", "strands_tools.mcp_client")


def lives_in_process(tool: Any, arguments: Any) -> bool:
    """Return True if a call with these arguments has an effect that a new process does not have."""
    module = _module(tool)
    if module not in _IN_PROCESS:
        return False
    actions = _IN_PROCESS[module]
    return actions is None or (isinstance(arguments, dict) and arguments.get(actions[0]) in actions[1])


def may_live_in_process(tool: Any) -> bool:
    """Return True if some calls of a tool have such an effect."""
    return _module(tool) in _IN_PROCESS


def adds_tools(tool: Any) -> bool:
    """Return True if a tool adds other tools to its agent."""
    return _module(tool) in _ADD_TOOLS


def _module(tool: Any) -> str:
    return str(getattr(getattr(tool, "_tool_func", None), "__module__", ""))
