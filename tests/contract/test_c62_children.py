"""C62: an agent, Swarm or Graph that a tool or hook builds and calls is attached for that call: its steps are steps."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent
from strands.multiagent import GraphBuilder, Swarm
from strands.types.exceptions import ConcurrencyException
from strands.vended_tools.subagent import make_subagent
from strands.vended_tools.swarm import make_swarm

from strands_durable import Durability, ToolPolicy, current_step, durable, policy
from strands_durable.errors import DriftError
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach

paid: list[tuple[int, str]] = []
asked: list[str] = []
"""Who called a model, in which order."""


@pytest.fixture(autouse=True)
def nothing_has_happened() -> None:
    paid.clear()
    asked.clear()


@tool
def pay(amount: int) -> str:
    """Pay."""
    step = current_step()
    assert step is not None
    assert (step.name, step.phase) == ("pay", "running")
    paid.append((amount, step.idempotency_key))
    reach(f"paid {amount}")
    return f"paid {amount}"


@tool(context=True)
def ask(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('sure', reason=what)}"


class Model(ScriptedModel):
    """A scripted model that notes its calls."""

    def __init__(self, script: Any, name: str = "") -> None:
        super().__init__(script)
        self._name = name

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(self._name)
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


def child(script: Any, tools: Any = (pay,), name: str = "child", **options: Any) -> Agent:
    return Agent(model=Model(script, name), name=name, tools=list(tools), callback_handler=None, **options)


def root(script: Any, tools: Any, **options: Any) -> Agent:
    """Build the root agent as a new process does."""
    forget_process()
    given = {name: options.pop(name) for name in ("tool_policies", "on_drift") if name in options}
    durability = Durability("runs.db", execution_id="trip", **given)
    return Agent(
        model=Model(script, "root"), tools=list(tools), plugins=[durability], callback_handler=None,
        system_prompt="Lead.", **options,
    )  # fmt: skip


def crash(point: str, agent: Agent, prompt: Any = "Go") -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt)


def amounts() -> list[int]:
    return [amount for amount, _ in paid]


def told(agent: Agent) -> list[str]:
    """Return what the model was told by tools."""
    blocks = [block for message in agent.messages for block in message["content"] if "toolResult" in block]
    return [block["toolResult"]["content"][0]["text"].strip() for block in blocks]


TWICE = [call("pay", amount=5), call("pay", amount=7), "Paid."]


@tool
def delegate(what: str) -> str:
    """Have an agent do it that is made for it, without Durability."""
    return str(child(TWICE)(what)).strip()


# Steps and keys


@pytest.mark.parametrize(
    "point", ["model.start:after@4", "model.start:after@3", "tool.done:after@2", "call.end:after@1"]
)
def test_c62_what_an_agent_inside_a_tool_has_paid_is_not_paid_again(point: str) -> None:
    script = [call("delegate", what="it"), "Done."]
    crash(point, root(script, [delegate]))
    agent = root(script, [delegate])
    assert str(agent("Go")).strip() == "Done."
    assert amounts() == [5, 7]
    assert len({key for _, key in paid}) == 2
    assert told(agent) == ["Paid."]


def test_c62_a_tool_in_doubt_inside_is_repeated_with_its_own_key() -> None:
    script = [call("delegate", what="it"), "Done."]
    crash("paid 7@1", root(script, [delegate]))
    root(script, [delegate])("Go")
    assert amounts() == [5, 7, 7]
    assert paid[1] == paid[2]
    assert paid[0][1] != paid[1][1]


def test_c62_the_policies_of_the_root_hold_for_tools_inside() -> None:
    script = [call("delegate", what="it"), "Done."]
    policies = {"pay": ToolPolicy(in_doubt="fail")}
    crash("paid 7@1", root(script, [delegate, pay], tool_policies=policies))
    root(script, [delegate, pay], tool_policies=policies)("Go")
    assert amounts() == [5, 7]


@pytest.mark.parametrize("is_async", [True, False])
def test_c62_equal_children_are_distinguished_by_their_order(is_async: bool) -> None:
    async def both(what: str) -> str:
        """Ask three agents."""
        found = [child([call("pay", amount=n), f"{n}."]).invoke_async(what) for n in (1, 2, 3)]
        results = await asyncio.gather(*found) if is_async else [await each for each in found]
        return " ".join(str(result).strip() for result in results)

    script = [call("both", what="it"), "Done."]
    crash("paid 3@1", root(script, [tool(both)]))
    agent = root(script, [tool(both)])
    agent("Go")
    assert told(agent) == ["1. 2. 3."]
    assert len(set(paid)) == len({key for _, key in paid}) == 3  # those that ran at the same time were in doubt, too
    assert is_async or amounts() == [1, 2, 3, 3]


def test_c62_equal_inputs_in_another_order_find_their_own_configuration() -> None:
    order = ["optimist", "pessimist"]

    @tool
    def debate() -> str:
        """Ask two agents the same."""
        said = {}
        for view in order:
            agent = child([call("pay", amount=len(view)), f"I am an {view}."], system_prompt=f"You are an {view}.")
            said[view] = str(agent("Well?")).strip()
        reach("debated")
        return f"{said['optimist']} {said['pessimist']}"

    script = [call("debate"), "Done."]
    crash("debated@1", root(script, [debate]))
    order.reverse()
    agent = root(script, [debate])
    agent("Go")
    assert told(agent) == ["I am an optimist. I am an pessimist."]
    assert amounts() == [8, 9]


def test_c62_a_child_that_is_called_twice_remembers_the_first_call() -> None:
    @tool
    def talk() -> str:
        """Talk to one agent twice."""
        agent = child(lambda turn, messages: f"{len(messages)} messages")
        return f"{str(agent('One')).strip()}, {str(agent('Two')).strip()}"

    script = [call("talk"), "Done."]
    crash("call.end:after@2", root(script, [talk]))
    agent = root(script, [talk])
    agent("Go")
    assert told(agent) == ["1 messages, 3 messages"]
    assert asked.count("child") == 2


def test_c62_a_child_within_a_child_is_attached_too() -> None:
    @tool
    def outer(what: str) -> str:
        """Have an agent do it that has it done."""
        return str(child([call("delegate", what=what), "It did."], [delegate], name="middle")(what)).strip()

    script = [call("outer", what="it"), "Done."]
    crash("paid 7@1", root(script, [outer]))
    agent = root(script, [outer])
    agent("Go")
    assert told(agent) == ["It did."]
    assert amounts() == [5, 7, 7]
    assert paid[1] == paid[2]


def test_c62_an_agent_that_a_child_has_as_a_tool_is_attached_too() -> None:
    helper = child(TWICE, name="helper")

    @tool
    def outer(what: str) -> str:
        """Have an agent do it that has another as a tool."""
        return str(child([call("helper", input=what), "It did."], [helper.as_tool()], name="middle")(what)).strip()

    script = [call("outer", what="it"), "Done."]
    crash("paid 7@1", root(script, [outer]))
    root(script, [outer])("Go")
    assert amounts() == [5, 7, 7]
    assert paid[1] == paid[2]
    assert "stream_async" not in vars(helper)


@pytest.mark.parametrize("kind", ["graph", "swarm"])
def test_c62_orchestrators_that_a_tool_builds_are_attached(kind: str) -> None:
    @tool
    async def team(what: str) -> str:
        """Have a team do it."""
        if kind == "graph":
            builder = GraphBuilder()
            builder.add_node(child([call("pay", amount=5), "Five."], name="a"), "a")
            builder.add_node(child([call("pay", amount=7), "Seven."], name="b"), "b")
            builder.add_edge("a", "b")
            result: Any = await builder.build().invoke_async(what)
        else:
            over = call("handoff_to_agent", agent_name="b", message="yours", context={})
            nodes = [
                child([call("pay", amount=5), over, "Given."], name="a"),
                child([call("pay", amount=7), "Seven."], name="b"),
            ]
            result = await Swarm(nodes).invoke_async(what)
        reach("team is done")
        return f"{result.status.value}: {str(result.results['b'].result).strip()}"

    script = [call("team", what="it"), "Done."]
    for point in ("paid 7@1", "team is done@1"):
        crash(point, root(script, [team]))
    agent = root(script, [team])
    agent("Go")
    assert told(agent) == ["completed: Seven."]
    assert amounts() == [5, 7, 7]
    assert paid[1] == paid[2]
    assert paid[0][1] != paid[1][1]


def test_c62_an_agent_that_a_hook_calls_is_not_asked_again() -> None:
    def judged() -> Agent:
        agent = root([call("pay", amount=5), "Done."], [pay])

        def judge(event: BeforeToolCallEvent) -> None:
            if "no" in str(child(["yes" if asked.count("judge") == 0 else "no"], [], name="judge")("Well?")):
                event.cancel_tool = "no"

        agent.add_hook(judge, BeforeToolCallEvent)
        return agent

    crash("tool.start:before@1", judged())
    agent = judged()
    agent("Go")
    assert told(agent) == ["paid 5"]
    assert asked.count("judge") == 1


def test_c62_a_child_in_a_recorded_effect_belongs_to_the_effect() -> None:
    @tool
    async def outer() -> str:
        """Ask in an effect, and again beside it."""

        async def inside() -> str:
            return str(await child([call("pay", amount=1), "One."]).invoke_async("Well?")).strip()

        first = await durable.step("inside", inside)
        second = str(await child([call("pay", amount=2), "Two."]).invoke_async("Well?")).strip()
        return f"{first} {second}"

    script = [call("outer"), "Done."]
    crash("paid 2@1", root(script, [outer]))
    agent = root(script, [outer])
    agent("Go")
    assert told(agent) == ["One. Two."]
    assert amounts() == [1, 2, 2]


def test_c62_a_module_level_agent_is_attached_only_for_the_call() -> None:
    helper = child(lambda turn, messages: call("pay", amount=5) if turn == 0 else "Paid.")
    before = (
        set(vars(helper)),
        {event: len(found) for event, found in helper.hooks._registered_callbacks.items()},
        {stage: len(found) for stage, found in helper._middleware_registry._handlers.items()},
        set(vars(helper.hooks)),
        set(vars(helper._middleware_registry)),
    )

    @tool
    def use(what: str) -> str:
        """Have an agent do it."""
        return str(helper(what)).strip()

    agent = root([call("use", what="it"), "Done."], [use])
    agent("Go")
    assert len(paid) == 1
    assert before == (
        set(vars(helper)),
        {event: len(found) for event, found in helper.hooks._registered_callbacks.items()},
        {stage: len(found) for stage, found in helper._middleware_registry._handlers.items()},
        set(vars(helper.hooks)),
        set(vars(helper._middleware_registry)),
    )
    plain = Agent(model=Model(["Plain."]), callback_handler=None)
    assert "stream_async" not in vars(plain)
    assert str(plain("Go")).strip() == "Plain."


def test_c62_children_are_not_kept() -> None:
    children: weakref.WeakSet[Agent] = weakref.WeakSet()

    @tool
    async def many() -> str:
        """Ask a lot of agents."""
        for n in range(50):
            agent = child([f"{n}."], [])
            children.add(agent)
            await agent.invoke_async("Well?")
        return "many"

    agent = root([call("many"), "Done."], [many])
    agent("Go")
    gc.collect()
    assert len(children) == 0


def test_c62_an_agent_that_is_busy_is_refused_as_in_strands() -> None:
    @tool
    async def both() -> str:
        """Call one agent twice at once."""
        started, go = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait for the other call."""
            started.set()
            await go.wait()
            return "waited"

        helper = child([call("wait"), "One."], [wait])
        first = asyncio.create_task(helper.invoke_async("a"))
        await started.wait()
        with pytest.raises(ConcurrencyException):
            await helper.invoke_async("b")
        go.set()
        return str(await first).strip()

    agent = root([call("both"), "Done."], [both])
    agent("Go")
    assert told(agent) == ["One."]


def test_c62_events_and_callbacks_reach_the_tool_as_in_strands() -> None:
    heard: list[Any] = []

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    async def listen() -> Any:
        """Pass on what an agent says."""
        agent = Agent(
            model=Model([call("look"), "Seen."]),
            tools=[look],
            callback_handler=lambda **said: heard.append(sorted(said)),
        )
        kinds = []
        async for event in agent.stream_async("Well?"):
            kinds.append(sorted(event))
        yield str(kinds)

    agent = root([call("listen"), "Done."], [listen])
    agent("Go")
    durable_ones, heard[:] = (told(agent), [*heard]), []
    plain = Agent(model=Model([call("listen"), "Done."]), tools=[listen], callback_handler=None)
    plain("Go")
    assert (told(plain), heard) == durable_ones


def test_c62_a_structured_output_is_returned_from_the_record() -> None:
    class Price(BaseModel):
        amount: int

    @tool
    def price() -> str:
        """Ask for a price."""
        agent = child([call("Price", amount=3), "Never."], [])
        result = agent("How much?", structured_output_model=Price)
        assert isinstance(result.structured_output, Price)
        reach("priced")
        return f"{result.structured_output.amount} euros"

    script = [call("price"), "Done."]
    crash("priced@1", root(script, [price]))
    agent = root(script, [price])
    agent("Go")
    assert told(agent) == ["3 euros"]
    assert asked.count("child") == 1


def test_c62_a_child_that_fails_raises_in_the_tool_and_is_tried_again_by_its_policy() -> None:
    failures = itertools.count()

    class Failing(Model):
        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if len(messages) > 1 and next(failures) == 0:
                raise RuntimeError("out of order")
            async for chunk in super().stream(messages, *args, **kwargs):
                yield chunk

    @policy(retries=1)
    @tool
    def use() -> str:
        """Have an agent do it."""
        return str(
            Agent(model=Failing([call("pay", amount=5), "Paid."]), tools=[pay], callback_handler=None)("Go")
        ).strip()

    agent = root([call("use"), "Done."], [use])
    agent("Go")
    assert told(agent) == ["Paid."]
    assert amounts() == [5]


def test_c62_a_stream_that_the_tool_leaves_is_resumed() -> None:
    @tool
    async def peek() -> str:
        """Read until the first payment."""
        agent = child([call("pay", amount=5), "Paid."])
        stream = agent.stream_async("Go")
        async for event in stream:
            if "message" in event and event["message"]["role"] == "user":
                break
        await stream.aclose()
        reach("peeked")
        return "peeked"

    script = [call("peek"), "Done."]
    crash("peeked@1", root(script, [peek]))
    agent = root(script, [peek])
    agent("Go")
    assert told(agent) == ["peeked"]
    assert amounts() == [5]


# Drift


def test_c62_a_changed_child_is_drift() -> None:
    prompt = ["Old."]

    @tool
    def use() -> str:
        """Have an agent do it."""
        return str(child(TWICE, system_prompt=prompt[0])("Go")).strip()

    script = [call("use"), "Done."]
    crash("model.start:after@3", root(script, [use]))
    prompt[0] = "New."
    with pytest.raises(DriftError, match="system prompt"):
        root(script, [use])("Go")
    assert amounts() == [5]


def test_c62_a_child_with_another_input_than_before_pays_nothing_again() -> None:
    now = itertools.count(1)

    @tool
    def use() -> str:
        """Have an agent do it, today."""
        return str(child(TWICE)(f"It is day {next(now)}")).strip()

    script = [call("use"), "Done."]
    crash("model.start:after@3", root(script, [use]))
    with pytest.raises(DriftError) as caught:
        root(script, [use])("Go")
    assert "It is day 1" in str(caught.value)
    assert "It is day 2" in str(caught.value)
    assert amounts() == [5]
    agent = root(script, [use], on_drift="warn")
    agent("Go")
    assert amounts() == [5, 5, 7]


def test_c62_a_child_with_another_input_that_had_paid_nothing_continues() -> None:
    now = itertools.count(1)

    @tool
    def use() -> str:
        """Have an agent do it, today."""
        return str(child(TWICE)(f"It is day {next(now)}")).strip()

    script = [call("use"), "Done."]
    crash("model.start:after@2", root(script, [use]))
    agent = root(script, [use])
    agent("Go")
    assert amounts() == [5, 7]


# What is not attached


def test_c62_a_tool_can_opt_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "strands_durable")

    @tool
    def use() -> str:
        """Have an agent do it, as one step."""
        step = current_step()
        assert step is not None
        agent = child([call("look"), "Seen."], [look])
        return str(agent("Go")).strip()

    seen: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        step = current_step()
        assert step is not None
        seen.append(step.name)
        return "seen"

    agent = root([call("use"), "Done."], [use], tool_policies={"use": ToolPolicy(opaque=True)})
    agent("Go")
    assert told(agent) == ["Seen."]
    assert seen == ["use"]
    assert not caplog.records


def test_c62_a_tool_opts_out_by_its_decorator_and_is_in_doubt_as_a_whole() -> None:
    @policy(opaque=True, in_doubt="fail")
    @tool
    def use() -> str:
        """Have an agent do it, as one step."""
        reach("used")
        return str(child(["Never."], [])("Go"))

    script = [call("use"), "Done."]
    crash("used@1", root(script, [use]))
    agent = root(script, [use])
    agent("Go")
    assert "outcome of use is unknown" in told(agent)[0]


def test_c62_opaque_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="opaque"):
        ToolPolicy(opaque="yes")  # type: ignore[arg-type]


class Exotic(Agent):
    """An agent that takes no middleware of others."""

    def add_middleware(self, stage: Any, handler: Any) -> Any:
        if handler.__module__.startswith("strands_durable"):
            raise TypeError("no middleware")
        return super().add_middleware(stage, handler)


@pytest.mark.parametrize("why", ["background", "prompt", "exotic"])
def test_c62_a_child_that_cannot_be_attached_is_part_of_the_step(why: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "strands_durable")

    @tool
    def use() -> str:
        """Have agents do it."""
        found = []
        for _ in range(2):
            if why == "exotic":
                found.append(str(Exotic(model=Model(["Done inside."]), callback_handler=None)("Go")).strip())
            elif why == "background":
                agent = Agent(model=Model(["Done inside."]), callback_handler=None, background_tasks=True)
                found.append(str(agent("Go")).strip())
            else:
                agent = Agent(model=Model(["Done inside."]), callback_handler=None)
                found.append(str(agent([{"text": "Go", "mark": object()}])).strip())
        return " ".join(found)

    agent = root([call("use"), "Done."], [use])
    agent("Go")
    assert told(agent) == ["Done inside. Done inside."]
    found = [record.getMessage() for record in caplog.records]
    assert len([text for text in found if "part of the step" in text]) == 1, found


def test_c62_a_tool_that_calls_agents_in_a_pool_of_threads_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "strands_durable")
    from strands_tools import workflow

    agent = root(["Done.", "Done."], [workflow])
    agent("Go")
    agent("And again")
    found = [record.getMessage() for record in caplog.records if "in threads of its own" in record.getMessage()]
    assert len(found) == 1
    assert "workflow" in found[0]


def test_c62_a_durability_of_the_childs_own_gives_way_to_the_enclosing_execution() -> None:
    @tool
    def use() -> str:
        """Have an agent do it."""
        return str(child(TWICE, plugins=[Durability("other.db", execution_id="mine")])("Go")).strip()

    script = [call("use"), "Done."]
    crash("model.start:after@3", root(script, [use]))
    root(script, [use])("Go")
    assert amounts() == [5, 7]


# Strands' own tools that delegate


def test_c62_a_subagent_is_never_in_doubt_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "strands_durable")
    tools = [pay, make_subagent()]

    def script(turn: int, messages: list[Any]) -> Any:
        if "Pay." in str(messages[0]["content"]):
            return TWICE[turn]
        return [call("subagent", task="Pay."), "Done."][turn]

    crash("model.start:after@3", root(script, tools, tool_policies={"subagent": ToolPolicy(in_doubt="ask")}))
    agent = root(script, tools, tool_policies={"subagent": ToolPolicy(in_doubt="ask")})
    agent("Go")
    assert amounts() == [5, 7]
    assert told(agent) == ["Paid."]
    assert not [record for record in caplog.records if "doubt" in record.getMessage()]


def test_c62_a_users_own_tool_keeps_its_policy() -> None:
    script = [call("delegate", what="it"), "Done."]
    policies = {"delegate": ToolPolicy(in_doubt="fail")}
    crash("model.start:after@3", root(script, [delegate], tool_policies=policies))
    agent = root(script, [delegate], tool_policies=policies)
    agent("Go")
    assert "unknown" in told(agent)[0]
    assert amounts() == [5]


# Questions


def _answer(agent: Agent, result: Any, text: str = "yes") -> Any:
    return agent([{"interruptResponse": {"interruptId": found.id, "response": text}} for found in result.interrupts])


PAY_AND_ASK = [call("pay", amount=5), call("ask", what="more"), call("pay", amount=7), "All paid."]


def _subagents() -> list[Any]:
    return [pay, ask, make_subagent()]


def _by_subagent(turn: int, messages: list[Any]) -> Any:
    if "Pay." in str(messages[0]["content"]):
        return PAY_AND_ASK[turn]
    return [call("subagent", task="Pay."), "Done."][turn]


def _by_swarm(turn: int, messages: list[Any]) -> Any:
    if "User Request: Pay." in str(messages[0]["content"]):
        return PAY_AND_ASK[turn]
    agents = [{"name": "payer", "instructions": "Pay."}]
    return [call("swarm", task="Pay.", agents=agents), "Done."][turn]


@tool(context=True)
def own(tool_context: ToolContext) -> str:
    """Have an agent do it, and ask in its place."""
    result = child(PAY_AND_ASK, [pay, ask])("Pay.")
    while result.stop_reason == "interrupt":
        for found in result.interrupts or ():
            tool_context.interrupt(found.id, reason=found.reason)
        raise AssertionError("it was answered, and asks again")
    return str(result).strip()


@pytest.mark.parametrize(
    ("how", "is_new"), [("subagent", True), ("subagent", False), ("swarm", True), ("swarm", False), ("own", True)]
)
def test_c62_a_question_inside_is_answered_in_any_process(how: str, is_new: bool) -> None:
    scripts = {"subagent": _by_subagent, "swarm": _by_swarm, "own": [call("own"), "Done."]}
    tools: dict[str, Any] = {"subagent": _subagents, "swarm": lambda: [pay, ask, make_swarm()], "own": lambda: [own]}

    def build() -> Agent:
        return root(scripts[how], tools[how]())

    agent = build()
    result = agent("Go")
    assert result.stop_reason == "interrupt"
    assert amounts() == [5]
    agent = build() if is_new else agent
    result = _answer(agent, result)
    assert result.stop_reason == "end_turn", result.stop_reason
    assert str(result).strip() == "Done."
    assert amounts() == [5, 7]
    assert "All paid." in told(agent)[-1]
    assert str(build()("Go")).strip() == "Done."
    assert amounts() == [5, 7]


@pytest.mark.parametrize("how", ["subagent", "swarm"])
def test_c62_a_question_is_answered_after_a_kill_between_the_end_of_the_child_and_that_of_its_tool(how: str) -> None:
    scripts = {"subagent": _by_subagent, "swarm": _by_swarm}
    tools: dict[str, Any] = {"subagent": _subagents, "swarm": lambda: [pay, ask, make_swarm()]}
    points = CrashPoints()
    with points.recording():
        root(scripts[how], tools[how]())("Go")
    last = [point for point in points.reached if point.startswith("call.end:after")][-2]
    Path("runs.db").unlink()
    paid.clear()
    crash(last, root(scripts[how], tools[how]()))
    agent = root(scripts[how], tools[how]())
    result = agent("Go")
    assert result.stop_reason == "interrupt"
    result = _answer(agent, result)
    assert result.stop_reason == "end_turn", result.stop_reason
    assert amounts() == [5, 7]


def test_c62_questions_two_levels_down_are_answered_in_a_new_process() -> None:
    def script(turn: int, messages: list[Any]) -> Any:
        text = str(messages[0]["content"])
        if "Pay." in text:
            return PAY_AND_ASK[turn]
        return [call("subagent", task="Pay." if "Delegate." in text else "Delegate."), "Done."][turn]

    def build() -> Agent:
        return root(script, [pay, ask, make_subagent(max_depth=3)])

    result = build()("Go")
    assert result.stop_reason == "interrupt"
    result = _answer(build(), result)
    assert str(result).strip() == "Done."
    assert amounts() == [5, 7]


@pytest.mark.parametrize("how", ["subagent", "swarm"])
def test_c62_two_questions_inside_are_answered_one_by_one_in_new_processes(how: str) -> None:
    def script(turn: int, messages: list[Any]) -> Any:
        if "Pay." in str(messages[0]["content"]):
            asks = [call("ask", "a1", what="one"), call("ask", "a2", what="two")]
            return [call("pay", amount=5), asks, call("pay", amount=7), "All paid."][turn]
        agents = [{"name": "payer", "instructions": "Work."}]
        asks = call("subagent", task="Pay.") if how == "subagent" else call("swarm", task="Pay.", agents=agents)
        return [asks, "Done."][turn]

    def build() -> Agent:
        return root(script, [*_subagents(), make_swarm()])

    result, rounds = build()("Go"), 0
    while result.interrupts:
        found = result.interrupts[0]
        rounds += 1
        assert rounds < 4, found
        result = build()([{"interruptResponse": {"interruptId": found.id, "response": "yes"}}])
    assert rounds == 2
    assert str(result).strip() == "Done."
    assert amounts() == [5, 7]
