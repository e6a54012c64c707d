"""C31, what cannot be durable; and with C25, MCP servers: changed, down when the agent is built, killed in a call."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.bidi import BidiAgent
from strands.bidi.models import BidiModel
from strands.tools.mcp import MCPClient
from strands.types.exceptions import ToolProviderException

from strands_durable import Durability, errors
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.features.servers import SERVER, calls_in
from tests.processes import served

built: list[Agent] = []
SCRIPT = [call("price", item="tea"), "Three."]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(SERVER, "http", "price") as (port, _):
        yield port


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close every connection in the test that made it: a finalizer would do it in another, and complain of a dead server."""
    yield
    for agent in built:
        with suppress(ToolProviderException):
            agent.cleanup()
    built.clear()
    gc.collect()


def agent_of(port: int, script: Any = SCRIPT, **options: Any) -> Agent:
    forget_process()
    client = MCPClient(url=f"http://127.0.0.1:{port}/mcp", headers={"x-folder": str(Path.cwd())}, **options)
    durability = Durability("runs.db", execution_id="trip")
    agent = Agent(model=ScriptedModel(script), tools=[client], plugins=[durability], callback_handler=None)
    built.append(agent)
    return agent


def crash(point: str, agent: Agent) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent("Shop")


def assert_resumes(port: int) -> None:
    assert str(agent_of(port)("Shop")) == "Three.\n"
    assert calls_in(Path.cwd()) == {"price": 1}


def test_c25_a_server_whose_tools_changed_is_noticed(port: int) -> None:
    crash("tool.done:after@1", agent_of(port))
    with (
        served(SERVER, "http", "price", "extra") as (other, _),
        pytest.raises(errors.DriftError, match="tool 'extra' is new"),
    ):
        agent_of(other)("Shop")
    with pytest.raises(errors.DriftError, match=r"(?s)'price' was there, now it is gone.*'shop_price' is new"):
        agent_of(port, prefix="shop")("Shop")
    assert_resumes(port)


def test_c31_a_server_that_is_down_is_strands_error_before_any_plugin_is_there(port: int) -> None:
    crash("tool.done:after@1", agent_of(port))
    with served(SERVER, "http", "price") as (gone, _):
        pass
    with pytest.raises(ValueError, match=r"Failed to load tool <.*MCPClient.*Failed to start MCP client"):
        agent_of(gone)
    assert_resumes(port)


def test_c31_a_server_that_may_be_down_leaves_its_tools_out_and_that_is_drift(port: int) -> None:
    crash("tool.start:after@1", agent_of(port))
    with served(SERVER, "http", "price") as (gone, _):
        pass
    with pytest.raises(errors.DriftError, match="tool 'price' was there, now it is gone"):
        agent_of(gone, continue_on_error=True)("Shop")
    assert_resumes(port)


def test_c16_a_server_that_dies_in_a_call_gives_an_error_result_that_is_recorded() -> None:
    script = [call("vanish"), "It is gone."]
    with served(SERVER, "http", "vanish") as (port, server):
        agent = agent_of(port, script)
        result = agent("Shop")
        server.wait()
    assert str(result) == "It is gone.\n"
    found = agent.messages[2]["content"][0]["toolResult"]
    assert found["status"] == "error"
    assert calls_in(Path.cwd()) == {"vanish": 1}
    before = agent.messages
    with suppress(ToolProviderException):  # the connection is gone, and Strands says so again when it lets go of it
        agent.tool_registry.cleanup()
    with served(SERVER, "http", "vanish") as (port, _):
        again = agent_of(port, script)
        assert str(again("Shop")) == "It is gone.\n"
    assert again.messages == before
    assert calls_in(Path.cwd()) == {"vanish": 1}


def test_c31_checkpoints_are_refused_at_attach_time() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="checkpointing=True ends the call at each step"):
        Agent(model=ScriptedModel([]), checkpointing=True, plugins=[Durability("runs.db")])


class Bidirectional(BidiModel):
    """A model that is never asked."""

    def get_config(self) -> Any:
        return {}

    def update_config(self, **config: Any) -> None: ...
    async def start(self, *args: Any, **kwargs: Any) -> None: ...
    async def stop(self) -> None: ...
    async def send(self, content: Any) -> None: ...
    def receive(self) -> Any: ...


def test_c31_a_bidirectional_agent_is_refused_at_attach_time() -> None:
    durability = Durability("runs.db")
    with pytest.raises(TypeError, match="plugins"):
        BidiAgent(model=Bidirectional(), plugins=[durability])  # type: ignore[call-arg]
    with pytest.raises(errors.UnsupportedFeatureError, match="a bidirectional agent takes no plugins"):
        BidiAgent(model=Bidirectional(), hooks=[durability])
    with pytest.raises(errors.UnsupportedFeatureError, match="a BidiAgent does not"):
        durability.init_agent(BidiAgent(model=Bidirectional()))  # type: ignore[arg-type]


def test_c31_the_plugin_among_the_hooks_is_refused() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match=r"plugins=\[Durability"):
        Agent(model=ScriptedModel([]), hooks=[Durability("runs.db")])
