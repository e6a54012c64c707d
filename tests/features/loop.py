"""The loop around the steps: streams, limits, cancels, hooks, plugins, and passes that a hook adds."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from strands import Agent, ToolContext, tool
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    AfterToolsEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
)
from strands.middleware import ExecuteToolStage
from strands.plugins import Plugin, hook
from strands.tools.executors import SequentialToolExecutor

from strands_durable import ToolPolicy, current_step, durable
from strands_durable.testing import Answer, call, reach
from tests.crash.scenarios import Ledger, book, pay
from tests.features import harness
from tests.features.harness import LedgerModel, durability, effect, feature, seen


def build(script: Any, tools: Any = (book, pay), **options: Any) -> Agent:
    plugins = [options.pop("durability", None) or durability(), *options.pop("plugins", ())]
    return Agent(model=LedgerModel(script), tools=list(tools), plugins=plugins, callback_handler=None, **options)


@tool
async def slow(city: str) -> Any:
    """Book slowly, and report progress."""
    yield "looking"
    effect("slow", city=city)
    yield f"booked {city}"


@feature(9, "a stream of live events, with recorded ones marked")
def stream() -> Any:
    agent = build([call("slow", city="Rome"), Answer(text="Booked Rome.", chunk=40)], [slow])

    async def events() -> list[Any]:
        return [event async for event in agent.stream_async("Go")]

    found = asyncio.run(events())
    streamed = [event for event in found if "recorded" not in event]
    answers = sum("messageStop" in (event.get("event") or {}) for event in streamed)
    announced = [event["recorded"]["kind"] for event in found[:-1] if "recorded" in event]
    assert answers + announced.count("model") <= 2
    assert sum("tool_stream_event" in event for event in streamed) + 2 * announced.count("tool") <= 2
    return seen(agent, found[-1]["result"])


@feature(9, "a stream that begins with every finished step")
def replayed() -> Any:
    both = [call("book", city="a"), call("slow", city="b")]
    agent = build([both, call("book", city="c"), "Done."], [book, slow], durability=durability(replay_events=True))

    async def events() -> list[Any]:
        return [event async for event in agent.stream_async("Go")]

    found = asyncio.run(events())
    is_recorded = ["recorded" in event and "step" in event for event in found]
    assert is_recorded == sorted(is_recorded, reverse=True), "what is recorded comes first"
    messages = [event["message"] for event in found if "message" in event]
    answers = [message["content"] for message in messages if message["role"] == "assistant"]
    blocks = [block["toolResult"] for message in messages for block in message["content"] if "toolResult" in block]
    return seen(agent, found[-1]["result"]), answers, {block["toolUseId"]: block for block in blocks}


@feature(11, "a limit of turns")
def limit_turns() -> Any:
    agent = build([call("book", city="a"), "never"])
    return seen(agent, agent("Go", limits={"turns": 1}))


@feature(11, "a limit of tokens")
def limit_tokens() -> Any:
    agent = build([call("book", city="a"), call("book", city="b"), "never"])
    return seen(agent, agent("Go", limits={"total_tokens": 20}))


@tool(context=True)
def stop(how: str, tool_context: ToolContext) -> str:
    """Cancel the agent from inside a tool."""
    effect("stop")
    tool_context.agent.cancel(message=f"stopped {how}", after_current_tools=how == "softly")
    return "stopping"


@feature(11, "a tool cancels softly")
def cancel_softly() -> Any:
    agent = build([[call("stop", how="softly"), call("book", city="a")], "never"], [stop, book])
    return seen(agent, agent("Go"))


@feature(11, "a tool cancels at once, and another call follows")
def cancel_hard() -> Any:
    agent = build([call("stop", how="hard"), "never", "Hello."], [stop, book])
    first = seen(agent, agent("Go"))
    return first, seen(agent, agent("And now?"))


@feature(11, "a hook cancels")
def cancel_by_hook() -> Any:
    agent = build([call("book", city="a"), "never"])

    def enough(event: AfterToolCallEvent) -> None:
        event.agent.cancel(message="that is enough", after_current_tools=True)

    agent.add_hook(enough)
    return seen(agent, agent("Go"))


@feature(11, "a signal from outside cancels")
def cancel_outside() -> Any:
    signal = threading.Event()

    @tool
    def press() -> str:
        """Wait until a person presses the button."""
        effect("press")
        signal.set()
        return "pressed"

    agent = build([call("press"), call("book", city="a"), "never"], [press, book])
    return seen(agent, agent("Go", cancel_signal=signal))


def aside(name: str, value: Any = None) -> Any:
    """Do something in the outside world that is part of a `durable.step`, with points to die at."""
    reach(f"tool {name}:start")
    with Path("asides.txt").open("a") as file:
        file.write(f"{name}\n")
    reach(f"tool {name}:end")
    return value


def asides() -> list[str]:
    return sorted(set(Path("asides.txt").read_text().split()))


class Notes(Plugin):
    """Hooks, sync and async, that do things once: through `durable.step` and its kin."""

    name = "notes"

    @hook
    async def before(self, event: BeforeInvocationEvent) -> None:
        event.invocation_state["began"] = await durable.step("open", lambda: aside("open", "opened"))
        event.agent.state.set("at", durable.now().isoformat()[:2])

    @hook
    async def after_model(self, event: AfterModelCallEvent) -> None:
        await durable.step("bill", lambda: aside("bill"))

    @hook
    async def after_tool(self, event: AfterToolCallEvent) -> None:
        rating = await durable.step("rate", lambda: aside("rate", "4 stars"))
        event.result["content"].append({"text": rating})

    @hook
    async def after(self, event: AfterInvocationEvent) -> None:
        await durable.sleep(0)
        await durable.step("close", lambda: aside("close"))


@feature(11, "hooks with effects, clocks and timers")
def hooks() -> Any:
    agent = build([call("book", city="a"), "Done."], plugins=[Notes()])
    return seen(agent, agent("Go")), asides()


@feature(11, "hooks that count, and that rewrite what the model is about to see")
def counting() -> Any:
    agent = build([call("book", city="a"), "Done."])

    def counted(name: str) -> Any:
        def callback(event: Any) -> None:
            event.agent.state.set(name, (event.agent.state.get(name) or 0) + 1)
            event.invocation_state[name] = event.invocation_state.get(name, 0) + 1

        return callback

    for kind in (BeforeInvocationEvent, BeforeModelCallEvent, AfterModelCallEvent, BeforeToolsEvent, AfterToolsEvent):
        agent.add_hook(counted(kind.__name__), kind)
    agent.add_hook(lambda event: event.agent.messages[-1]["content"].append({"text": "briefly"}), BeforeModelCallEvent)
    state: dict[str, Any] = {}
    found = seen(agent, agent("Go", invocation_state=state))
    return found, {name: state[name] for name in state if name.endswith("Event")}


@feature(11, "hooks cancel, retry and end the turn")
def verdicts() -> Any:
    agent = build([[call("book", city="a"), call("pay", amount=1)], [call("book", city="b")], call("book", city="c")])

    def cancel_one(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "pay":
            event.cancel_tool = "no money"

    def again(event: AfterToolCallEvent) -> None:
        if event.tool_use["input"].get("city") == "a" and not event.agent.state.get("again"):
            event.agent.state.set("again", True)
            event.retry = True

    def cancel_all(event: BeforeToolsEvent) -> None:
        if "'b'" in str(event.message["content"]):
            event.cancel = "not there"

    def enough(event: AfterToolsEvent) -> None:
        if "not there" in str(event.message["content"]):
            event.end_turn = "That is all."

    for callback in (cancel_one, again, cancel_all, enough):
        agent.add_hook(callback)
    return seen(agent, agent("Go"))


@feature(11, "hooks and a middleware outside ours change their mind about what has happened")
def fickle() -> Any:
    def happened() -> list[str]:
        entries = Ledger(Path("ledger.jsonl")).read() if Path("ledger.jsonl").exists() else []
        mine = [entry for entry in entries if entry["execution_id"] == harness.execution_id]
        return [str(entry.get("city") or entry.get("amount")) for entry in mine]

    def forbid(event: BeforeToolCallEvent) -> None:
        if str(event.tool_use["input"].get("city")) in happened():
            event.cancel_tool = "it has happened"

    def forbid_all(event: BeforeToolsEvent) -> None:
        if "b" in happened():
            event.interrupt("all of it?")

    def again(event: AfterToolCallEvent) -> None:
        event.retry = event.tool_use["input"].get("city") == "a" and "b" in happened()

    async def answer(context: Any, next_fn: Any) -> Any:
        if str(context.tool_use["input"].get("city")) in happened():
            context.interrupt("really?")
        async for event in next_fn(context):
            yield event

    durable = durability()
    script = [[call("book", city="a"), call("book", city="b")], "Done."]
    agent = Agent(
        model=LedgerModel(script), tools=[book], tool_executor=SequentialToolExecutor(), callback_handler=None,
        hooks=[forbid, forbid_all, again],
    )  # fmt: skip
    agent.add_middleware(ExecuteToolStage, answer)
    durable.init_agent(agent)
    return seen(agent, agent("Go"))


@feature(11, "a hook denies a model call")
def denied() -> Any:
    agent = build([call("book", city="a"), "never"])

    def deny(event: BeforeModelCallEvent) -> None:
        if len(event.agent.messages) > 2:
            event.cancel = "no more today"

    agent.add_hook(deny)
    return seen(agent, agent("Go"))


@feature(11, "a hook adds a pass at the end")
def resumed() -> Any:
    agent = build([call("book", city="a"), "One.", call("book", city="b"), "Two."])

    def more(event: AfterInvocationEvent) -> None:
        if len(event.agent.messages) < 6:
            event.resume = "And then?"

    agent.add_hook(more)
    return seen(agent, agent("Go"))


@tool
async def inner(city: str) -> str:
    """Do two things, each of them once."""
    first = await durable.step("ask", lambda: aside("ask", "free"))
    token = durable.uuid()
    second = await durable.step("take", lambda: aside("take", token))
    return f"{city}: {first} {second == token}"


@feature(11, "an inline tool with steps of its own, after a direct call")
def inline() -> Any:
    agent = build(
        lambda turn, messages: call("inner", city="a") if "Go" in str(messages[-1]) else "Done.",
        [inner, quiet],
        durability=durability(tool_policies={"inner": ToolPolicy(inline=True)}),
    )
    direct = agent.tool.quiet()  # it leaves four messages, with an id that is another in every process
    found = seen(agent, agent("Go"))
    for message in found["messages"][:4]:
        for value in message["content"][0].values():
            if isinstance(value, dict):
                value.pop("toolUseId")
    return found, direct["content"], asides()


@tool
def stamp(place: str) -> str:
    """Stamp a passport, which is no step."""
    step = current_step()
    assert step is not None
    reach("tool stamp:start")
    Ledger(Path("stamps.jsonl")).write(place=place, key=step.idempotency_key)
    reach("tool stamp:effect")
    return "stamped"


@tool(context=True)
def tour(cities: list[str], tool_context: ToolContext) -> str:
    """Have the passport stamped in each city by a direct call, and change the input in place."""
    for city in cities:
        tool_context.agent.tool.stamp(place=city, record_direct_tool_call=False)
    tool_context.tool_use["input"]["cities"].append("spoiled")
    effect("tour")
    return f"{len(cities)} stamps"


def _same_stamps(whole: Path, place: Path, point: str) -> None:
    """Check that another attempt had each passport stamped under the same keys."""
    wanted, found = (Ledger(folder / "stamps.jsonl").read() for folder in (whole, place))
    assert len({entry["key"] for entry in wanted}) == len(wanted) == 4
    assert {entry["key"]: entry["place"] for entry in found} == {entry["key"]: entry["place"] for entry in wanted}, (
        point
    )


@feature(11, "direct calls inside tools that change their input in place", check=_same_stamps)
def direct_calls() -> Any:
    both = [call("tour", cities=["Rome", "Rome"]), call("tour", cities=["Oslo", "Rome"])]
    agent = build([both, "Done."], [tour, stamp], tool_executor=SequentialToolExecutor())
    return seen(agent, agent("Go"))


@tool
def quiet() -> str:
    """Do nothing."""
    return "quiet"
