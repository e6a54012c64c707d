"""What is known of the tools of Strands and of strands-agents-tools: which delegate to agents, which change the process, which
cannot be repeated, and which can send an idempotency key.

Tools are identified by the module that defines them. The effect of a call inside the process is lost with it and must be redone
on resume; calls with an effect outside the process (a message sent, a tool of a server called, agents run) are never among
those. docs/features.md has a table of all tools of strands-agents-tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strands.middleware import ExecuteToolContext

from .agents import agent_behind

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
_IN_THREADS = (
    "so is all that its agents did, since it calls them in threads of its own, where they are part of its step"
)
_UNREPEATABLE: dict[str, str] = {
    "strands.vended_tools.file_editor.file_editor": "its insert adds the text twice",
    "strands.vended_tools.python_repl.python_repl": "its code runs twice",
    "strands.vended_tools.shell.shell": "its command runs twice",
    "strands_tools.editor": "its insert adds the text twice",
    "strands_tools.python_repl": "its code runs twice",
    "strands_tools.shell": "its command runs twice",
    "strands_tools.agent_graph": _IN_THREADS,
    "strands_tools.workflow": f"{_IN_THREADS}, and its start never returns if one of the tasks had ended",
}
"""By module: what comes of a repeated call, and what no key can prevent."""
_HTTP = ("strands.vended_tools.http_request.http_request", "strands_tools.http_request")
_SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
"""The methods that change nothing."""
_DELEGATE = frozenset(
    {"strands.vended_tools.subagent.subagent", "strands.vended_tools.swarm.swarm"}
    | {f"strands_tools.{name}" for name in ("use_agent", "use_llm", "think", "swarm", "graph")}
)


def delegates(tool: Any) -> bool:
    """Return True if all that a tool does is call agents: their steps are recorded, and the tool is never in doubt."""
    return agent_behind(tool) is not None or _module(tool) in _DELEGATE


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


def if_repeated(tool: Any) -> str | None:
    """Return what comes of a repeated call of a tool, if nothing outside can recognize the repetition."""
    return _UNREPEATABLE.get(_module(tool))


def with_idempotency_key(context: ExecuteToolContext, key: Callable[[], str]) -> ExecuteToolContext:
    """Add the key to the headers of an `http_request`, unless it changes nothing or its call gives a key itself.

    The input of ``context`` is not changed: the recorded message never has the key.
    """
    given: Any = context.tool_use.get("input")
    if _module(context.tool) not in _HTTP or not isinstance(given, dict) or str(given.get("method")).upper() in _SAFE:
        return context
    headers = given.get("headers") or {}
    if not isinstance(headers, dict) or any(str(name).lower() == "idempotency-key" for name in headers):
        return context
    headers = {**headers, "Idempotency-Key": key()}
    return context.replace(tool_use={**context.tool_use, "input": {**given, "headers": headers}})


def _module(tool: Any) -> str:
    function = getattr(tool, "_tool_func", None)
    return str(type(tool).__module__ if function is None else getattr(function, "__module__", ""))
