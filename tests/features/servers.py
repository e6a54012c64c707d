"""Tools of MCP servers: steps like any other, made by a server that has its own idea of what was called."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from strands import Agent
from strands.middleware import ExecuteToolStage, ToolResultEvent
from strands.tools.executors import SequentialToolExecutor
from strands.tools.mcp import MCPClient

from strands_durable.testing import call, reach
from tests.features.harness import BriefModel, durability, feature, seen
from tests.processes import served

SERVER = str(Path(__file__).with_name("mcp_server.py"))


async def with_points(context: Any, next_fn: Any) -> Any:
    """Stand around a tool inside the journal, where a process may die before and after the server has done its work."""
    name = context.tool_use["name"]
    reach(f"tool {name}:start")
    async for event in next_fn(context):
        if isinstance(event, ToolResultEvent):
            reach(f"tool {name}:effect")
        yield event


def shopped(client: MCPClient, script: Any) -> Any:
    agent = Agent(
        model=BriefModel(script),
        tools=[client],
        plugins=[durability()],
        tool_executor=SequentialToolExecutor(),
        callback_handler=None,
    )
    agent.add_middleware(ExecuteToolStage, with_points)
    try:
        return {**seen(agent, agent("Shop")), "names": sorted(agent.tool_names)}
    finally:
        agent.cleanup()


def at_most_one_call_more(whole: Path, place: Path, point: str) -> None:
    """Only the running call may have reached the server twice."""
    more = calls_in(place) - calls_in(whole)
    assert not calls_in(whole) - calls_in(place), point
    assert sum(more.values()) <= (1 if point.startswith(("tool ", "tool.done:before")) else 0), f"{point}: {more}"


def calls_in(folder: Path) -> Counter[str]:
    path = folder / "calls.jsonl"
    return Counter(json.loads(line) for line in path.read_text().splitlines()) if path.exists() else Counter()


@contextmanager
def shop(folder: Path) -> Iterator[None]:
    """Run the server over HTTP; it outlives the killed processes."""
    with served(SERVER, "http", "price", "picture", "buy") as (port, _):
        (folder / "url").write_text(f"http://127.0.0.1:{port}/mcp")
        yield


@feature(
    8,
    "MCP over HTTP: structured content, an image, an error",
    around=shop,
    check=at_most_one_call_more,
    points="tool|call",
)
def over_http() -> Any:
    client = MCPClient(
        url=Path("../url").read_text(),
        headers={"x-folder": str(Path.cwd())},
        prefix="shop",
        tool_filters={"rejected": ["extra"]},
    )
    calls = [call("shop_price", item="tea"), call("shop_picture", item="tea"), call("shop_buy", item="tea")]
    return shopped(client, [calls, "Sold out."])


@feature(8, "MCP over stdio", check=at_most_one_call_more, points="tool")
def over_stdio() -> Any:
    server = StdioServerParameters(command=sys.executable, args=[SERVER, "stdio", "price", "extra"], cwd=Path.cwd())
    client = MCPClient(lambda: stdio_client(server), tool_filters={"allowed": ["price"]})
    return shopped(client, [call("price", item="tea"), "Three."])
