"""Each tool of strands-agents-tools: what is called before a kill, and what is asked afterwards. Or why it is not run.

What is asked afterwards shows whether the effect of the calls before is still there. ``{name}`` is the name of the run,
``{folder}`` and ``{date}`` are its own, too, and ``{url}`` is a server on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strands_durable.testing import call
from strands_durable.testing._model import ToolCall

SERVER = str(Path(__file__).parent / "server.py")
INNER = "Say something."
"""What agents inside of tools are asked; every model here answers it with one sentence."""


@dataclass(frozen=True)
class Use:
    """One tool, and how it is used."""

    tool: str
    before: Sequence[ToolCall]
    after: Sequence[ToolCall]
    note: str = ""
    """For readers of the table."""
    is_last: bool = False
    """True if the tool ends the loop, so that the kill has to come in the same answer."""


def twice(tool: str, note: str = "", **given: object) -> Use:
    """Use a tool whose calls have nothing to do with each other."""
    return Use(tool, [call(tool, **given)], [call(tool, **given)], note)


_GRAPH = {"nodes": [{"id": "a", "role": "writer", "system_prompt": "Write."}], "edges": []}
_STAR = {"type": "star", "nodes": [{"id": "a", "role": "writer", "system_prompt": "Write."}], "edges": []}
_TASKS = [{"task_id": "one", "description": INNER, "system_prompt": "Be brief.", "tools": []}]
_INSIDE = "the agents inside live for one call, which is one step"

USES = [
    Use(
        "agent_graph",
        [call("agent_graph", action="create", graph_id="{name}", topology=_STAR)],
        [call("agent_graph", action="status", graph_id="{name}")],
        "`create` and `stop` are repeated, messages are not",
    ),
    Use(
        "batch",
        [call("batch", invocations=[{"name": "file_write", "arguments": {"path": "{name}.batch", "content": "x"}}])],
        [call("batch", invocations=[{"name": "file_read", "arguments": {"path": "{name}.batch", "mode": "view"}}])],
        "the calls inside are part of one step: none of them is repeated on its own",
    ),
    twice("calculator", expression="6 * 7"),
    twice("current_time"),
    Use(
        "editor",
        [call("editor", command="create", path="{folder}/{name}.txt", file_text="Rome\n")],
        [call("editor", command="view", path="{folder}/{name}.txt")],
    ),
    Use(
        "environment",
        [call("environment", action="set", name="TRIP_{name}", value="Rome")],
        [call("environment", action="get", name="TRIP_{name}")],
        "`set` and `delete` are repeated",
    ),
    twice("file_read", path="given.txt", mode="view"),
    Use(
        "file_write",
        [call("file_write", path="{name}.written", content="Rome")],
        [call("file_read", path="{name}.written", mode="view")],
    ),
    Use(
        "graph",
        [call("graph", action="create", graph_id="{name}", topology=_GRAPH)],
        [call("graph", action="execute", graph_id="{name}", task=INNER)],
        "`create` and `delete` are repeated, `execute` is not",
    ),
    Use(
        "handoff_to_user",
        [call("handoff_to_user", message="Over to you.", breakout_of_loop=True)],
        [],
        "with `breakout_of_loop=True`; otherwise it asks at the terminal, inside one step",
        is_last=True,
    ),
    Use(
        "http_request",
        [call("http_request", method="GET", url="{url}/set")],
        [call("http_request", method="GET", url="{url}/get")],
        "cookies of earlier requests are kept in the process; a request is never repeated for them",
    ),
    twice("image_reader", image_path="given.png"),
    Use(
        "journal",
        [call("journal", action="write", content="Rome {name}", date="{date}")],
        [call("journal", action="read", date="{date}")],
    ),
    Use(
        "load_tool",
        [call("load_tool", path="loaded.py", name="loaded")],
        [call("loaded", city="Rome")],
        "every call is repeated: the loaded tools are restored, and are not drift",
    ),
    Use(
        "mcp_client",
        [
            call(
                "mcp_client",
                action="connect",
                connection_id="{name}",
                transport="stdio",
                command=sys.executable,
                args=[SERVER],
            ),
            call("mcp_client", action="load_tools", connection_id="{name}"),
        ],
        [call("price", item="tea")],
        "`connect`, `load_tools` and `disconnect` are repeated, `call_tool` is not",
    ),
    Use(
        "python_repl",
        [call("python_repl", code="city = 'Rome'", interactive=False)],
        [call("python_repl", code="print(city)", interactive=False)],
        "variables are in `repl_state/` of the working folder; those that cannot be pickled are lost",
    ),
    Use(
        "shell",
        [call("shell", command="CITY=Rome; echo $CITY")],
        [call("shell", command="echo city: $CITY")],
        "each call has its own shell",
    ),
    twice("sleep", "an interrupted sleep starts over; `durable.sleep` waits for the remainder", seconds=0.01),
    Use("stop", [call("stop", reason="enough")], [], "", is_last=True),
    twice("think", _INSIDE, thought=INNER, cycle_count=1, system_prompt="Be brief."),
    twice("use_agent", _INSIDE, prompt=INNER, system_prompt="Be brief."),
    Use(
        "workflow",
        [call("workflow", action="create", workflow_id="{name}", tasks=_TASKS)],
        [call("workflow", action="status", workflow_id="{name}")],
        "workflows are files; an interrupted `start` is in doubt as a whole",
    ),
]

_AWS, _NETWORK = "needs an AWS account", "needs a network service"
_BEDROCK = f"calls Amazon Bedrock, whatever the agent's model is; {_INSIDE}"
NOT_RUN = {
    "a2a_client": "needs another version of a2a-sdk than strands-agents",
    "agent_core_memory": _AWS,
    "bright_data": _NETWORK,
    "browser": "needs a browser; its sessions live in the process, and a kill closes them",
    "chat_video": _NETWORK,
    "code_interpreter": f"{_AWS}; only the process knows its sessions",
    "cron": "changes the user's crontab",
    "diagram": "needs graphviz",
    "elasticsearch_memory": _NETWORK,
    "exa": _NETWORK,
    "generate_image": _AWS,
    "generate_image_stability": _NETWORK,
    "mem0_memory": _NETWORK,
    "memory": _AWS,
    "mongodb_memory": _NETWORK,
    "nova_reels": _AWS,
    "retrieve": _AWS,
    "rss": _NETWORK,
    "search_video": _NETWORK,
    "slack": f"{_NETWORK}; the listener of `start_socket_mode` lives in the process, and a kill ends it",
    "swarm": _BEDROCK,
    "speak": "needs a loudspeaker",
    "tavily": _NETWORK,
    "use_aws": _AWS,
    "use_computer": "needs a screen",
    "use_llm": _BEDROCK,
}
