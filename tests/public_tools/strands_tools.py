"""The tools of strands-agents-tools: what is called first, and what is asked afterwards.

What is asked afterwards shows whether the effect of the first calls is still there. ``{folder}`` is the folder of the run,
``{web}`` and ``{remote}`` are servers on this machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import strands.agent.agent
from strands import Agent
from strands.types.tools import AgentTool

from strands_durable.testing import ScriptedModel, call
from strands_durable.testing._model import ToolCall
from tests.public_tools.scenario import SERVER, Place, agent_of, by_prompt, pay, scenario

PAYING = "Pay it."
"""What agents inside of tools are asked: to pay twice."""


@dataclass(frozen=True)
class Use:
    """One tool, and how it is used."""

    tool: str
    first: Sequence[ToolCall]
    afterwards: Sequence[ToolCall] = ()
    note: str = ""
    """For readers of the table."""
    what: str = ""
    """The way it is used, if there are several."""
    is_last: bool = False
    """True if the tool ends the loop."""
    points: str = ""
    """Where it is killed, as a pattern, if not everywhere: that may take too long, or have another end each time."""


def twice(tool: str, note: str = "", **given: object) -> Use:
    """Use a tool whose calls have nothing to do with each other."""
    return Use(tool, [call(tool, **given)], [call(tool, **given)], note)


_STAR = {"type": "star", "nodes": [{"id": "a", "role": "writer", "system_prompt": "Write."}], "edges": []}
_TASKS = [{"task_id": "one", "description": PAYING, "system_prompt": "Be brief.", "tools": ["pay"]}]
_MEMBERS = [{"name": "payer", "system_prompt": "Pay.", "tools": ["pay"]}]
_STEPS = "the steps of the agents inside are recorded"
_TRACE = f"{_STEPS}; the metrics in its result leave out those of another process, and nothing else differs"
_BEDROCK = f"{_STEPS}; they run on Amazon Bedrock, whatever the agent's model is"
_CONNECT = {"connection_id": "shop", "transport": "stdio", "command": sys.executable, "args": [str(SERVER)]}
_ORDER = {"method": "POST", "url": "{web}/order", "body": "tea"}
_SESSION = {"session_name": "trip-to-rome"}


def _browse(kind: str, **given: Any) -> ToolCall:
    return call("browser", browser_input={"action": {"type": kind, **given}})


def _sqs(operation: str, **given: Any) -> ToolCall:
    common = {"service_name": "sqs", "region": "us-east-1", "label": operation}
    return call("use_aws", operation_name=operation, parameters=given, **common)


USES = [
    Use(
        "a2a_client",
        [
            call("a2a_discover_agent", url="{remote}"),
            call("a2a_send_message", message_text="Rome or not, {folder}", target_agent_url="{remote}"),
        ],
        [call("a2a_list_discovered_agents")],
        note="the remote agent is asked again, with a new message id",
    ),
    Use(
        "agent_graph",
        [call("agent_graph", action="create", graph_id="trip", topology=_STAR)],
        [call("agent_graph", action="status", graph_id="trip")],
        "`create` and `stop` are repeated, messages are not",
    ),
    Use(
        "batch",
        [call("batch", invocations=[{"name": "pay", "arguments": {"amount": amount}} for amount in (5, 7)])],
        note="the calls inside are part of one step: each has a key of its own, which lasts",
    ),
    Use(
        "browser",
        [_browse("init_session", description="See it.", **_SESSION), _browse("navigate", url="{web}/page", **_SESSION)],
        [_browse("get_text", selector="h1", **_SESSION)],
        "its sessions live in the process, and a kill closes them: the model sees an error; killed only around calls",
        points="tool",
    ),
    twice("calculator", expression="6 * 7"),
    Use(
        "cron",
        [call("cron", action="add", schedule="0 8 * * *", command="echo Rome")],
        [call("cron", action="list")],
        "run with a program that stands in for `crontab`; `remove` goes by line: a repeated one removes another job",
    ),
    twice("current_time"),
    Use(
        "editor",
        [call("editor", command="create", path="{folder}/new.txt", file_text="Rome\n")],
        [call("editor", command="view", path="{folder}/new.txt")],
        what="`create`",
    ),
    Use(
        "editor",
        [call("editor", command="insert", path="{folder}/trip", insert_line=1, new_str="Oslo")],
        [call("editor", command="view", path="{folder}/trip")],
        "a call in doubt inserts its text twice",
        what="`insert`",
    ),
    Use(
        "environment",
        [call("environment", action="set", name="TRIP", value="Rome")],
        [call("environment", action="get", name="TRIP")],
        "`set` and `delete` are repeated",
    ),
    twice("file_read", path="{folder}/trip", mode="view"),
    Use(
        "file_write",
        [call("file_write", path="{folder}/written", content="Rome")],
        [call("file_read", path="{folder}/written", mode="view")],
    ),
    Use(
        "graph",
        [
            call(
                "graph",
                action="create",
                graph_id="trip",
                topology={
                    "nodes": [{"id": "a", "role": "payer", "system_prompt": "Pay.", "tools": ["pay"]}],
                    "edges": [],
                },
            )
        ],
        [call("graph", action="execute", graph_id="trip", task=PAYING)],
        f"`create` and `delete` are repeated; {_STEPS}",
    ),
    Use(
        "handoff_to_user",
        [call("handoff_to_user", message="Over to you.", breakout_of_loop=True)],
        note="with `breakout_of_loop=True`; otherwise it asks at the terminal, inside one step",
        is_last=True,
    ),
    Use(
        "http_request",
        [call("http_request", method="GET", url="{web}/set")],
        [call("http_request", method="GET", url="{web}/get")],
        "cookies of earlier requests are kept in the process; a request is never repeated for them",
        what="with cookies",
    ),
    Use(
        "http_request",
        [call("http_request", **_ORDER), call("http_request", **_ORDER)],
        note="sends the step's key as `Idempotency-Key`: the repeated request has the same",
        what="that changes something",
    ),
    twice("image_reader", image_path="{folder}/given.png"),
    Use(
        "journal",
        [call("journal", action="write", content="Rome", date="2026-01-02")],
        [call("journal", action="read", date="2026-01-02")],
    ),
    Use(
        "load_tool",
        [call("load_tool", path="{folder}/loaded.py", name="loaded")],
        [call("loaded", city="Rome")],
        "every call is repeated: the loaded tools are restored, and are not drift",
    ),
    Use(
        "mcp_client",
        [
            call("mcp_client", action="connect", **_CONNECT),
            call("mcp_client", action="load_tools", connection_id="shop"),
        ],
        [call("price", item="tea")],
        "`connect`, `load_tools` and `disconnect` are repeated, `call_tool` is not",
    ),
    Use(
        "python_repl",
        [call("python_repl", code="city = 'Rome'; _ = open('cities', 'a').write(city)", interactive=False)],
        [call("python_repl", code="print(city)", interactive=False)],
        "variables are in `repl_state/` of the working folder; those that cannot be pickled are lost",
    ),
    Use(
        "rss",
        [call("rss", action="subscribe", url="{web}/feed", feed_id="trips")],
        [call("rss", action="read", feed_id="trips")],
        "subscriptions are files; a subscription that is there cannot be made again: the model sees another result; "
        "killed only around calls",
        points=".*",
    ),
    Use(
        "shell",
        [call("shell", command="{strike}")],
        [call("shell", command="cat cities")],
        "each call has its own shell",
    ),
    twice("sleep", "an interrupted sleep starts over; `durable.sleep` waits for the remainder", seconds=0.01),
    Use("stop", [call("stop", reason="enough")], is_last=True),
    twice("speak", "run with a program that stands in for the loudspeaker", text="Rome", mode="fast"),
    Use(
        "swarm",
        [call("swarm", task=PAYING, agents=_MEMBERS)],
        [call("pay", amount=9)],
        _BEDROCK,
    ),
    Use(
        "think",
        [call("think", thought=PAYING, cycle_count=1, system_prompt="Be brief.", tools=["pay"])],
        [call("pay", amount=9)],
        _STEPS,
    ),
    Use(
        "use_agent",
        [call("use_agent", prompt=PAYING, system_prompt="Be brief.", tools=["pay"])],
        [call("pay", amount=9)],
        _TRACE,
    ),
    Use(
        "use_aws",
        [
            _sqs("create_queue", QueueName="{name}"),
            _sqs("send_message", QueueUrl="{aws}/123456789012/{name}", MessageBody="Rome"),
        ],
        [
            _sqs(
                "get_queue_attributes",
                QueueUrl="{aws}/123456789012/{name}",
                AttributeNames=["ApproximateNumberOfMessages"],
            )
        ],
        "run against a server that stands in for AWS, which gets a repeated call twice; killed only around calls",
        points="tool.(start|done):",
    ),
    Use(
        "use_llm",
        [call("use_llm", prompt=PAYING, system_prompt="Be brief.")],
        [call("pay", amount=9)],
        f"{_TRACE}; they run on Amazon Bedrock, whatever the agent's model is",
    ),
    Use(
        "workflow",
        [call("workflow", action="create", workflow_id="trip", tasks=_TASKS)],
        [call("workflow", action="status", workflow_id="trip")],
        "workflows are files; `start` runs agents in threads of its own and is in doubt as a whole; repeated, it never"
        " returns if a task had ended, which a warning says",
    ),
]


def _filled(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, str):
        for place, found in places.items():
            value = value.replace(place, found)
        return value
    if isinstance(value, dict):
        return {key: _filled(item, places) for key, item in value.items()}
    return [_filled(item, places) for item in value] if isinstance(value, list) else value


def _tools(name: str, place: Place) -> list[Any]:
    """Return a tool as a user would list it: the decorated function, the module, or what a class makes."""
    module = import_module(f"strands_tools.{name}")
    if name == "a2a_client":
        return list(module.A2AClientToolProvider(known_agent_urls=[place.remote]).tools)
    if name == "browser":
        chromium = {"executable_path": os.environ.get("CHROMIUM", "/usr/bin/chromium"), "args": ["--no-sandbox"]}
        return [module.LocalChromiumBrowser(launch_options=chromium).browser]
    found = getattr(module, name, None)
    return [found if isinstance(found, AgentTool) else module]


def _build(use: Use, place: Place) -> Agent:
    places = {
        "{aws}": place.aws,
        "{folder}": str(place.folder),
        "{name}": place.folder.name,
        "{remote}": place.remote,
        "{strike}": place.command("echo Rome >> cities"),
        "{web}": place.web,
    }
    first, afterwards = (
        [ToolCall(found.name, _filled(found.input, places)) for found in calls] for calls in (use.first, use.afterwards)
    )
    turns: list[Any] = [[*first, call("pay", amount=3)]] if use.is_last else first
    paying = [call("pay", amount=5), call("pay", amount=7), "Paid."]
    script = by_prompt(Go=[*turns, *afterwards, "Done."], Pay=paying)
    strands.agent.agent.BedrockModel = lambda *_, **__: ScriptedModel(script)  # type: ignore[misc, assignment]
    helpers = [tool for name in ("file_read",) if use.tool == "file_write" for tool in _tools(name, place)]
    return agent_of(place, script, [*_tools(use.tool, place), *helpers, pay])


for _use in USES:
    scenario(f"strands_tools.{_use.tool}", _use.what, note=_use.note, points=_use.points)(partial(_build, _use))
