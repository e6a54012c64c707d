"""What tools leave behind: in the agent's state, in the invocation's, in the request's."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any

from strands import Agent, ToolContext, tool

from strands_durable.errors import NotSerializableError
from strands_durable.testing import call, forget_process
from tests.features.harness import LedgerModel, answered, durability, effect, feature, seen


class Client:
    """A connection: it has no recorded form."""


@tool(context=True)
def keep(key: str, tool_context: ToolContext) -> str:
    """Keep a value everywhere, before and after an effect."""
    agent, invocation = tool_context.agent, tool_context.invocation_state
    agent.state.set(f"{key} began", True)
    effect("keep", item=key)
    agent.state.set(key, {"by": key, "price": 3.5, "deep": [1, {"x": None}]})
    agent.state.delete(f"{key} began")
    invocation["notes"][key] = {"by": key, "cents": Decimal("0.10")}
    invocation["request_state"][key] = [key]
    assert isinstance(invocation["client"], Client)
    invocation[f"client of {key}"] = Client()
    return f"kept {key}"


@tool(context=True)
async def tell(tool_context: ToolContext) -> str:
    """Say what is there."""
    effect("tell")
    invocation = tool_context.invocation_state
    return (
        f"{sorted(tool_context.agent.state.get())} {sorted(invocation['notes'])} {sorted(invocation['request_state'])}"
    )


def kept_by(script: list[Any]) -> Any:
    state: dict[str, Any] = {"client": Client(), "notes": {}}
    agent = Agent(model=LedgerModel(script), tools=[keep, tell], plugins=[durability()], callback_handler=None)
    result = agent("Go", invocation_state=state)
    own = {key: value for key, value in state.items() if key == "notes"}
    return seen(agent, result), own


@feature(2, "state of the agent, the invocation and the request, by one tool after another")
def one_by_one() -> Any:
    return kept_by([call("keep", key="a"), call("tell"), "Done."])


@tool
def strange() -> Any:
    """Return what has no recorded form."""
    effect("strange")
    return {"status": "success", "content": [{"json": {"client": Client()}}]}


@feature(2, "a result that cannot be stored is asked about")
def unstorable() -> Any:
    def build() -> Agent:
        script = [call("strange"), "Done."]
        return Agent(model=LedgerModel(script), tools=[strange], plugins=[durability()], callback_handler=None)

    agent = build()
    with suppress(NotSerializableError):
        return seen(agent, answered(agent, "Go", lambda found: {"result": "it worked"}))
    del agent
    forget_process()
    agent = build()
    return seen(agent, answered(agent, "Go", lambda found: {"result": "it worked"}))


@feature(2, "state by tools that run at the same time")
def at_once() -> Any:
    return kept_by([[call("keep", key="a"), call("keep", key="b")], call("tell"), "Done."])
