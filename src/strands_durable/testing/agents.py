"""The agents that `strands_durable.testing.contract` dispatches. Import this module in every worker under test.

What their models answer is data: each factory takes a script, and a folder in which tools leave marks and wait for files, so
that a test can communicate with a worker in another process. A turn of a script is

- a text,
- ``{"tool": name, ...}``: a call of that tool with the rest as its input; a list of these: calls in one answer,
- ``{"fails_until": file}``: the model raises ValueError until that file exists, and then answers "Fixed.".
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.graph import Graph

from .. import current_step, durable_agent, policy
from ._model import ScriptedModel, call

_POLL_SECONDS = 0.005
NOWHERE = "Atlantis"
"""The city for which the tool ``book`` raises, after it was called."""


class Trip(BaseModel):
    """The structured output of `contract_structured`."""

    city: str
    price: float


def marks(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the marks that the tools and models of a run left in its folder, in order."""
    path = Path(folder) / "marks.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be incomplete


def _mark(folder: str, kind: str, **facts: Any) -> None:
    step = current_step()
    where = {} if step is None else {"key": step.idempotency_key, "attempt": step.attempt}
    file = os.open(f"{folder}/marks.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (json.dumps({"kind": kind, **where, **facts}) + "\n").encode())
    os.close(file)


class _Model(ScriptedModel):
    """A scripted model whose calls leave marks."""

    def __init__(self, folder: str, script: list[Any], name: str) -> None:
        super().__init__([_turn(turn) for turn in script], model_id=f"contract-{name}")
        self._folder, self._turns = folder, script

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        turn = sum(message["role"] == "assistant" for message in messages)
        _mark(self._folder, "model", turn=turn)
        if self._is_out_of_order(turn):
            raise ValueError("the model is out of order")
        async for chunk in super().stream(messages, tool_specs, system_prompt, **kwargs):
            yield chunk

    def _is_out_of_order(self, turn: int) -> bool:
        wanted = self._turns[turn] if turn < len(self._turns) else None
        return (
            isinstance(wanted, dict)
            and "fails_until" in wanted
            and not Path(self._folder, wanted["fails_until"]).exists()
        )


def _turn(turn: Any) -> Any:
    if isinstance(turn, list):
        return [_turn(each) for each in turn]
    if isinstance(turn, dict) and "fails_until" in turn:
        return "Fixed."
    if isinstance(turn, dict):
        arguments = dict(turn)
        return call(arguments.pop("tool"), **arguments)
    return turn


def _search(city: str, hotels: dict[str, str]) -> str:
    account = "the account of a customer"
    try:
        return hotels[city]
    except KeyError as missing:
        key = f"sk-live-{len(account):016}"
        raise LookupError(f"no hotel in {city}, api_key={key}") from missing


def _tools(folder: str) -> list[Any]:
    @tool(context=True)
    def book(city: str, tool_context: ToolContext) -> str:
        """Book a hotel."""
        _mark(folder, "book", city=city)
        if city == NOWHERE:
            _search(city, {"Paris": "Ritz"})
        tool_context.agent.state.set("booked", [*(tool_context.agent.state.get("booked") or []), city])
        return f"booked {city}"

    @tool(context=True)
    def wait(path: str, tool_context: ToolContext) -> str:
        """Wait until a file exists, or until the execution is cancelled."""
        _mark(folder, "wait", path=path)
        while not Path(folder, path).exists():
            if tool_context.cancel_signal.is_set():
                _mark(folder, "cancel seen")
                return "cancelled"
            time.sleep(_POLL_SECONDS)
        return f"{path} is there"

    @tool(context=True)
    async def approve(what: str, tool_context: ToolContext) -> str:
        """Ask a person."""
        _mark(folder, "approve", what=what)
        return f"{what}: {tool_context.interrupt(f'approve {what}', reason={'what': what})}"

    @tool
    def strange() -> Any:
        """Return a value that cannot be recorded."""
        _mark(folder, "strange")
        return {"status": "success", "content": [{"json": {"handle": object()}}]}

    @tool(context=True)
    def look(tool_context: ToolContext) -> str:
        """Return the invocation state that the caller passed."""
        return json.dumps(tool_context.invocation_state.get("given"))

    @policy(retries=1)
    @tool(context=True)
    def book_all(trip: dict[str, Any], tool_context: ToolContext) -> str:
        """Book a hotel in each city by a direct call, change the input in place, and fail at the first attempt."""
        for city in trip["cities"]:
            tool_context.agent.tool.book(city=city, record_direct_tool_call=False)
        tool_context.tool_use["input"]["trip"]["cities"].clear()
        if (step := current_step()) is not None and step.attempt == 1:
            raise ValueError("all hotels are closed")
        return "booked all"

    return [book, wait, approve, strange, look, book_all]


def _agent(folder: str, script: list[Any], name: str, **options: Any) -> Agent:
    return Agent(
        name=name,
        model=_Model(folder, script, name),
        tools=_tools(folder),
        system_prompt=f"You are {name}.",
        retry_strategy=ModelRetryStrategy(max_attempts=1),
        callback_handler=None,
        **options,
    )


@durable_agent
def contract_agent(folder: str, script: list[Any]) -> Agent:
    """An agent with all the tools."""
    return _agent(folder, script, "agent")


@durable_agent
def contract_structured(folder: str, script: list[Any]) -> Agent:
    """An agent with structured output."""
    return _agent(folder, script, "structured", structured_output_model=Trip)


@durable_agent
def contract_deadline(folder: str, script: list[Any]) -> Agent:
    """An agent whose tool asks a person and waits for a limited time."""

    @tool(context=True)
    def ask_until(what: str, seconds: float, tool_context: ToolContext, default: Any = None) -> str:
        """Ask a person, for a limited time."""
        reason = {"question": what, "expires_in": seconds, "default": default}
        answer = tool_context.interrupt(f"ask {what}", reason=reason)
        _mark(folder, "answered", answer=answer)
        return f"{what}: {answer}"

    model = _Model(folder, script, "deadline")
    return Agent(name="deadline", model=model, tools=[ask_until], callback_handler=None)


class _Slow(_Model):
    """A model that answers long after the others."""

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        await asyncio.sleep(0.1)
        async for chunk in super().stream(messages, tool_specs, system_prompt, **kwargs):
            yield chunk


class _Revisited(_Model):
    """A model that follows its script once, and answers "The end." when it gets the task again: a swarm resets its messages."""

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        is_back = "back to you" in json.dumps(messages[0])
        model = _Model(self._folder, ["The end."] if is_back else self._turns, "first")
        async for chunk in model.stream(messages, tool_specs, system_prompt, **kwargs):
            yield chunk


@durable_agent
def contract_graph(folder: str, script: list[Any]) -> Graph:
    """Two nodes that run at the same time, of which the first to start is the last to end, and one that runs after both."""
    builder = GraphBuilder()
    slow = _agent(folder, ["Slowly."], "slow")
    slow.model = _Slow(folder, ["Slowly."], "slow")
    builder.add_node(slow, "slow")
    builder.add_node(_agent(folder, script, "quick"), "quick")
    builder.add_node(_agent(folder, ["All in one."], "last"), "last")
    builder.add_edge("slow", "last")
    builder.add_edge("quick", "last")
    builder.set_max_node_executions(10)
    builder.set_entry_point("slow")
    builder.set_entry_point("quick")
    return builder.build()


@durable_agent
def contract_swarm(folder: str, script: list[Any]) -> Swarm:
    """Two agents; the second hands back to the first, which then answers "The end."."""
    first = _agent(folder, script, "first")
    first.model = _Revisited(folder, script, "first")
    back = {"tool": "handoff_to_agent", "agent_name": "first", "message": "back to you"}
    return Swarm([first, _agent(folder, [back, "I handed back."], "second")], max_handoffs=4)
