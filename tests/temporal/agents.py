"""Agents for tests of the Temporal engine. A worker in another process can import them."""

from __future__ import annotations

import asyncio
import random
import string
import uuid
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.agent.conversation_manager import NullConversationManager, SlidingWindowConversationManager
from strands.hooks import BeforeModelCallEvent
from strands.types.exceptions import ModelThrottledException

from strands_durable import connect, durable, durable_agent, policy
from strands_durable.testing import ScriptedModel, call


def text_of(number: int) -> str:
    """Return two kilobytes that no packer makes much smaller."""
    chance = random.Random(number)
    return "".join(chance.choice(string.ascii_letters) for _ in range(2000))


@tool(context=True)
def look(number: int, tool_context: ToolContext) -> str:
    """Look something up."""
    seen = tool_context.agent.state.get("seen") or []
    tool_context.agent.state.set("seen", [*seen, number])
    return text_of(number)


@durable_agent
def cycler(cycles: int = 10) -> Agent:
    """Look up one thing after the other."""
    turns = [call("look", number=number) for number in range(cycles)]
    return Agent(model=ScriptedModel([*turns, "Done."]), tools=[look], callback_handler=None)


class Counting(ScriptedModel):
    """Says the next turn by what was said last, not by how much was said: some of it may be out of sight."""

    def __init__(self, cycles: int) -> None:
        super().__init__(["Done."])
        self._cycles = cycles

    async def stream(self, messages: Any, *args: Any, **given: Any) -> Any:
        uses = [block["toolUse"] for message in messages for block in message["content"] if "toolUse" in block]
        number = uses[-1]["input"]["number"] + 1 if uses else 0
        model = ScriptedModel([call("look", number=number) if number < self._cycles else "Done."])
        async for event in model.stream([], *args, **given):
            yield event


@durable_agent
def forgetful(cycles: int = 10) -> Agent:
    """Look up one thing after the other, and forget."""
    manager = SlidingWindowConversationManager(window_size=6, per_turn=True)
    return Agent(model=Counting(cycles), tools=[look], conversation_manager=manager, callback_handler=None)


@policy(on_resume="rerun")
@tool(context=True)
def learn(tool_context: ToolContext) -> str:
    """Give the agent a tool."""
    tool_context.agent.tool_registry.register_tool(look)
    return "learnt"


class Learning(Counting):
    """Has the agent learn how to look things up before it does."""

    async def stream(self, messages: Any, *args: Any, **given: Any) -> Any:
        if len(messages) > 1:
            source = super().stream(messages if len(messages) > 3 else [], *args, **given)
        else:
            source = ScriptedModel([call("learn")]).stream([], *args, **given)
        async for event in source:
            yield event


@durable_agent
def learner(cycles: int = 10) -> Agent:
    """Learn first, look up one thing after the other, and forget what was said."""
    manager = SlidingWindowConversationManager(window_size=6, per_turn=True)
    return Agent(model=Learning(cycles), tools=[learn], conversation_manager=manager, callback_handler=None)


@tool
def large(size: int) -> str:
    """Return much."""
    chance = random.Random(size)
    return "".join(chance.choices(string.ascii_letters + string.digits, k=size))


@tool(context=True)
def keep(size: int, tool_context: ToolContext) -> str:
    """Keep much in the state."""
    tool_context.agent.state.set("kept", "x" * size)
    return "kept"


_together: dict[str, list[asyncio.Event]] = {}


@tool(context=True)
async def hoard(size: int, tool_context: ToolContext) -> str:
    """Return much, in the same moment as another."""
    waiting = _together.setdefault(
        tool_context.invocation_state["request_state"].setdefault("id", uuid.uuid4().hex), []
    )
    mine = asyncio.Event()
    waiting.append(mine)
    if len(waiting) == 2:
        for each in waiting:
            each.set()
    await mine.wait()
    return large(size)


@durable_agent
def squirrel(size: int) -> Agent:
    """Have two results in the same moment that are more than one payload together."""
    turn = [call("hoard", size=size), call("hoard", size=size + 1)]
    return Agent(model=ScriptedModel([turn, "Done."]), tools=[hoard], callback_handler=None)


@durable_agent
def hoarder(size: int) -> Agent:
    """Have a large state in the end."""
    return Agent(model=ScriptedModel([call("keep", size=size), "Done."]), tools=[keep], callback_handler=None)


@tool
async def note(name: str) -> str:
    """Do something in a step with a name."""
    return await durable.step(name, lambda: "noted")


@durable_agent
def wordy(length: int) -> Agent:
    """Name a step at length."""
    return Agent(model=ScriptedModel([call("note", name="é" * length), "Done."]), tools=[note], callback_handler=None)


@durable_agent
def greedy(sizes: list[Any], marker: str = "") -> Agent:
    """Call for much, one after the other, or for several at once; with a marker, fail in the end until the file is there."""

    def turn(sizes: Any) -> Any:
        return [call("large", size=size) for size in sizes] if isinstance(sizes, list) else call("large", size=sizes)

    end = ["Done."] if not marker or Path(marker).exists() else []  # a script that has ended is an error
    retry = ModelRetryStrategy(max_attempts=1)
    model = ScriptedModel([*map(turn, sizes), *end])
    manager = NullConversationManager()
    return Agent(model=model, tools=[large], conversation_manager=manager, retry_strategy=retry, callback_handler=None)


@tool
async def delegate(url: str) -> str:
    """Have another execution done, and wait for it."""
    handle = await connect(url).dispatch(cycler.spec_with(cycles=1), "Go", execution_id="inner")
    return str(await handle.result())


@durable_agent
def manager(url: str) -> Agent:
    """Delegate."""
    return Agent(
        model=ScriptedModel([call("delegate", url=url), "Delegated."]), tools=[delegate], callback_handler=None
    )


class Throttled(ScriptedModel):
    """Asks to be left alone at first."""

    def __init__(self, folder: str) -> None:
        super().__init__(["Done."])
        self._marker = Path(folder, "asked")

    async def stream(self, *args: Any, **given: Any) -> Any:
        if not self._marker.exists():
            self._marker.touch()
            raise ModelThrottledException("slow down")
        async for event in super().stream(*args, **given):
            yield event


@durable_agent
def throttled(folder: str) -> Agent:
    """Ask a model that is throttled."""
    strategy = ModelRetryStrategy(max_attempts=3, initial_delay=2, max_delay=2)
    return Agent(model=Throttled(folder), retry_strategy=strategy, callback_handler=None)


@policy(retries=2, retry_on=ConnectionError, backoff_seconds=2)
@tool
def call_in(folder: str) -> str:
    """Call a service that is down the first time."""
    marker = Path(folder, "called")
    if not marker.exists():
        marker.touch()
        raise ConnectionError("the service is down")
    return "answered"


@durable_agent
def caller(folder: str) -> Agent:
    """Call a service that is down the first time."""
    script = [call("call_in", folder=folder), "Done."]
    return Agent(model=ScriptedModel(script), tools=[call_in], callback_handler=None)


@durable_agent
def patient() -> Agent:
    """Wait before the first model call."""

    async def rest(event: BeforeModelCallEvent) -> None:
        await durable.sleep(1.5)
        await durable.step("noted", lambda: "noted")

    agent = Agent(model=ScriptedModel(["Rested."]), callback_handler=None)
    agent.hooks.add_callback(BeforeModelCallEvent, rest)
    return agent
