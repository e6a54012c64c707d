"""What stands outside of an agent: servers of tools and of models, session stores, other versions of itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from strands import Agent, ModelRetryStrategy
from strands.models.openai import OpenAIModel
from strands.session import FileSessionManager
from strands.tools.executors import SequentialToolExecutor
from strands.tools.mcp import MCPClient
from strands.vended_tools import http_request

from strands_durable import Durability, ToolPolicy
from strands_durable.testing import call

from .hands import agent_of, played

MCP_SERVER = str(Path(__file__).parents[1] / "mcp_server.py")


@played
def shopping(folder: str, script: list[Any]) -> Agent:
    """Tools of a server over stdio, with a prefix; the file ``tools`` says which it has, and it does not start without."""
    offered = Path(folder, "tools")
    arguments = [MCP_SERVER, "stdio", *offered.read_text().split()] if offered.exists() else ["-c", "raise SystemExit"]
    server = StdioServerParameters(command=sys.executable, args=arguments, cwd=folder)
    client = MCPClient(lambda: stdio_client(server), prefix="shop", startup_timeout=10)
    turns = [call(found, **({"what": "it"} if found == "approve" else {"item": "tea"})) for found in script]
    return agent_of(folder, [*turns, "Done."], "approve", client, tool_executor=SequentialToolExecutor())


@played
def openai(folder: str, url: str, kind: str) -> Agent:
    """OpenAI's own client, over HTTP."""
    client: Any = {"base_url": f"{url}/{Path(folder).name}/v1", "api_key": "x", "max_retries": 0}
    strategy = ModelRetryStrategy(max_attempts=4, initial_delay=0, max_delay=0)
    model = OpenAIModel(client_args=client, model_id=kind)
    return agent_of(folder, [], "book", model=model, retry_strategy=strategy)


@played
def ordering(folder: str, url: str) -> Agent:
    """Two requests that change something, at the same time."""
    orders = [call("http_request", method="POST", url=url, body=item) for item in ("tea", "milk")]
    return agent_of(folder, [orders, "Done."], http_request)


@played
def remembering(folder: str) -> Agent:
    """A session in files."""
    manager = FileSessionManager("talk", storage_dir=f"{folder}/sessions")
    script = [call("keep", key="a"), "One.", call("keep", key="b"), "Two."]
    return agent_of(folder, script, "keep", session_manager=manager)


def _versioned(folder: str) -> Agent:
    return agent_of(
        folder, [call("approve", what="it"), "Done."], "approve", system_prompt=Path(folder, "version").read_text()
    )


@played
def versioned(folder: str) -> Agent:
    """An agent of the version in the file ``version``."""
    return _versioned(folder)


@played(on_drift="warn")
def tolerant(folder: str) -> Agent:
    """The same, with a worker that takes what it finds."""
    return _versioned(folder)


@played
def careful(folder: str) -> Agent:
    """A Durability of its own inside the factory."""
    own = Durability(f"{folder}/own.db", execution_id="own", tool_policies={"flaky": ToolPolicy(retries=2)})
    return agent_of(folder, [call("flaky", good_at=3), "Done."], "flaky", plugins=[own])


@played
def dying(folder: str) -> Agent:
    """A worker that is killed inside a tool, and an agent that prints what it does as Strands does by default."""
    script = [call("book", city="Rome"), call("book_and_die", city="Oslo"), "All booked."]
    agent = agent_of(folder, script, "book", "book_and_die")
    return Agent(model=agent.model, tools=list(agent.tool_registry.registry.values()))
