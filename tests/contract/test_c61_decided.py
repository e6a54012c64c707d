"""C61: what is on record was decided: no hook, wrap or cancel that changes its mind on resume repeats or denies it."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import (
    AfterToolCallEvent,
    AfterToolsEvent,
    BeforeNodeCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
)
from strands.middleware import ExecuteToolStage
from strands.multiagent import GraphBuilder
from strands.tools.executors import SequentialToolExecutor
from strands.types._events import ToolResultEvent
from strands.types.exceptions import EventLoopException

from strands_durable import Durability, ToolPolicy, current_step, durable
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach

paid: list[tuple[int, str]] = []


@pytest.fixture(autouse=True)
def nothing_is_paid() -> None:
    paid.clear()


@tool
def pay(amount: int) -> str:
    """Pay."""
    step = current_step()
    assert step is not None
    paid.append((amount, step.idempotency_key))
    reach(f"paid {amount}")
    return f"paid {amount}"


@tool
def slow() -> str:
    """Take long."""
    reach("slow")
    return "slept"


@tool(context=True)
def ask(tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("sure"))


TWO: list[Any] = [[call("pay", "p", amount=5), call("slow", "s")], "Done."]


def agent_of(
    script: Any = None, *, hooks: Any = (), wraps: Any = (), tools: Any = (pay, slow, ask), executor: Any = None,
    **options: Any,
) -> Agent:  # fmt: skip
    """Build an agent; ``wraps`` are middlewares registered before ours."""

    agent = Agent(
        agent_id="clerk", model=ScriptedModel(script or TWO), tools=list(tools), hooks=list(hooks),
        tool_executor=executor or SequentialToolExecutor(), callback_handler=None,
    )  # fmt: skip
    for wrap in wraps:
        agent.add_middleware(ExecuteToolStage, wrap)
    durability = Durability("runs.db", execution_id="trip", **options)
    durability.init_agent(agent)  # after the wraps: they are outside
    return agent


def crash(point: str, agent: Agent, prompt: Any = "Go", **given: Any) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent(prompt, **given)
    forget_process()


def results(agent: Agent) -> dict[str, str]:
    """Return the text that the model was given for each tool use."""
    blocks = [
        block["toolResult"] for message in agent.messages for block in message["content"] if "toolResult" in block
    ]
    return {block["toolUseId"]: str(block["content"][0].get("text")) for block in blocks}


# (a) Before hooks


def deny(event: BeforeToolCallEvent) -> None:
    event.cancel_tool = "closed"


def deny_all(event: BeforeToolsEvent) -> None:
    event.cancel = "closed"


def question(event: Any) -> None:
    if event.interrupt("approve", reason="may I?") == "no":
        raise AssertionError("nobody was to be asked")


@tool
def other(amount: int) -> str:
    """Do something else."""
    paid.append((-amount, "other"))
    return "other"


def swap(event: BeforeToolCallEvent) -> None:
    event.selected_tool = other
    event.tool_use = {**event.tool_use, "name": "other"}


@pytest.mark.parametrize("hook", [deny, deny_all, swap])
@pytest.mark.parametrize("point", ["tool.done:after@1", "slow@1"])
def test_c61_a_hook_that_changes_its_mind_does_not_cancel_what_is_done(
    hook: Any, point: str, caplog: pytest.LogCaptureFixture
) -> None:
    crash(point, agent_of())
    agent = agent_of(hooks=[hook])
    with caplog.at_level(logging.WARNING):
        agent("Go")
    assert [amount for amount, _ in paid if amount > 0] == [5]
    assert results(agent)["p"] == "paid 5"
    if hook is not swap and point != "slow@1":
        assert results(agent)["s"] == "closed"
    if hook is not swap:
        assert "trip" in caplog.text
        assert "is on record" in caplog.text


@pytest.mark.parametrize("hook", [deny, deny_all])
def test_c61_a_tool_in_doubt_is_left_to_its_policy(hook: Any) -> None:
    script = [call("pay", "p", amount=5), "Done."]
    for in_doubt, text, times in (("retry", "paid 5", 2), ("fail", "The outcome of pay is unknown", 1)):
        paid.clear()
        options = {"tool_policies": {"pay": ToolPolicy(in_doubt=in_doubt)}}  # type: ignore[arg-type]
        durability = {"execution_id": f"trip-{in_doubt}"}
        first, second = (
            Agent(
                model=ScriptedModel(script), tools=[pay], hooks=hooks, callback_handler=None,
                plugins=[Durability("runs.db", **durability, **options)],  # type: ignore[arg-type]
            )
            for hooks in ([], [hook])
        )  # fmt: skip
        crash("paid 5@1", first)
        second("Go")
        assert results(second)["p"].startswith(text)
        assert len(paid) == times
        assert len(set(paid)) == 1


@pytest.mark.parametrize("kind", [BeforeToolCallEvent, BeforeToolsEvent])
def test_c61_no_person_is_asked_about_what_is_done(kind: Any) -> None:
    crash("model.start:before@2", agent_of())
    agent = agent_of()
    agent.add_hook(question, kind)
    result = agent("Go")
    assert result.stop_reason == "end_turn"
    assert [amount for amount, _ in paid] == [5]
    assert not agent._interrupt_state.interrupts


@pytest.mark.parametrize("kind", [BeforeToolCallEvent, BeforeToolsEvent])
@pytest.mark.parametrize("executor", [SequentialToolExecutor, None])
def test_c61_a_question_stands_for_the_calls_with_nothing_on_record(kind: Any, executor: Any) -> None:
    script = [[call("pay", "p", amount=5), call("pay", "q", amount=6), call("pay", "r", amount=7)], "Done."]
    crash("tool.done:after@1", agent_of(script))
    assert [amount for amount, _ in paid] == [5]
    agent = agent_of(script)
    asked: list[str] = []

    def approve(event: Any) -> None:
        name = "all" if isinstance(event, BeforeToolsEvent) else event.tool_use["toolUseId"]
        asked.append(event.interrupt(name))

    agent.add_hook(approve, kind)
    result = agent("Go")
    for _ in range(3):
        if result.stop_reason != "interrupt":
            break
        assert paid[0][0] == 5
        names = [found.name for found in result.interrupts]
        assert len(names) == len(set(names))
        assert "p" not in names
        answers = [{"interruptResponse": {"interruptId": found.id, "response": "yes"}} for found in result.interrupts]
        forget_process()
        agent = agent_of(script)
        agent.add_hook(approve, kind)
        result = agent(answers)
    assert result.stop_reason == "end_turn"
    assert [amount for amount, _ in paid] == [5, 6, 7]
    assert "yes" in asked


def test_c61_a_hook_that_was_there_from_the_start_decides_as_before() -> None:
    """A hook whose answer is recorded as an effect, and that says no before anything of the call is on record, is followed."""

    async def judge(event: BeforeToolCallEvent) -> None:
        if not await durable.step("judge", lambda: False):
            event.cancel_tool = "denied"

    script = [call("pay", "p", amount=5), "Done."]
    for point in ("effect.done:after@1", "model.start:before@2"):
        paid.clear()
        agents = [
            Agent(
                model=ScriptedModel(script), tools=[pay], hooks=[judge], callback_handler=None,
                plugins=[Durability("runs.db", execution_id=point.replace(":", "-").replace("@", "-"))],
            )
            for _ in range(2)
        ]  # fmt: skip
        crash(point, agents[0])
        agents[1]("Go")
        assert results(agents[1]) == {"p": "denied"}
        assert paid == []


def test_c61_an_agent_as_tool_is_on_record_once_its_call_is() -> None:
    def build(hooks: Any = ()) -> Agent:
        helper = Agent(
            name="helper", model=ScriptedModel([call("pay", "p", amount=5), "Helped."]), tools=[pay],
            callback_handler=None,
        )  # fmt: skip
        return agent_of([call("helper", "h", input="Pay"), "Done."], tools=[helper], hooks=hooks)

    crash("model 1:chunk 0@2", build())
    assert [amount for amount, _ in paid] == [5]
    agent = build([deny])
    agent("Go")
    assert [amount for amount, _ in paid] == [5]
    assert results(agent)["h"].startswith("Helped.")


def test_c61_an_effect_of_a_tool_without_an_intent_counts() -> None:
    made: list[str] = []

    @tool
    async def effective() -> str:
        """Have an effect."""
        await durable.step("effect", lambda: made.append("made"))
        reach("effective")
        return "effective"

    def build(hooks: Any = ()) -> Agent:
        policies = {"effective": ToolPolicy(inline=True)}
        return agent_of([call("effective", "e"), "Done."], tools=[effective], hooks=hooks, tool_policies=policies)

    crash("effective@1", build())
    agent = build([deny])
    agent("Go")
    assert (made, results(agent)) == (["made"], {"e": "effective"})


# (a) Cancel signals and wraps


@pytest.mark.parametrize("executor", [SequentialToolExecutor, None])
def test_c61_a_cancel_signal_acts_on_the_calls_with_nothing_on_record(executor: Any) -> None:
    build = lambda: agent_of(executor=executor and executor())  # noqa: E731
    crash("tool.done:after@1", agent_of())
    signal = threading.Event()
    signal.set()
    agent = build()
    result = agent("Go", cancel_signal=signal)
    assert result.stop_reason == "cancelled"
    assert [amount for amount, _ in paid] == [5]
    assert results(agent) == {"p": "paid 5", "s": "Tool execution cancelled"}


async def answering(context: Any, next_fn: Any) -> Any:
    result = {"toolUseId": context.tool_use["toolUseId"], "status": "error", "content": [{"text": "not today"}]}
    yield ToolResultEvent(result)


async def asking(context: Any, next_fn: Any) -> Any:
    context.interrupt("really")
    async for event in next_fn(context):
        yield event


async def raising(context: Any, next_fn: Any) -> Any:
    raise ValueError("not today")
    yield


@pytest.mark.parametrize("wrap", [answering, asking, raising])
def test_c61_a_wrap_outside_ours_does_not_replace_what_is_done(wrap: Any, caplog: pytest.LogCaptureFixture) -> None:
    crash("model.start:before@2", agent_of())
    agent = agent_of(wraps=[wrap])
    with caplog.at_level(logging.WARNING):
        assert agent("Go").stop_reason == "end_turn"
    assert [amount for amount, _ in paid] == [5]
    assert results(agent) == {"p": "paid 5", "s": "slept"}
    assert not agent._interrupt_state.interrupts
    assert "is on record" in caplog.text


def test_c61_a_wrap_outside_ours_that_changes_a_result_still_does() -> None:
    seen: list[str] = []

    async def masking(context: Any, next_fn: Any) -> Any:
        async for event in next_fn(context):
            if isinstance(event, ToolResultEvent):
                seen.append(context.tool_use["toolUseId"])
                text = event.tool_result["content"][0]["text"].replace("5", "*")
                event = ToolResultEvent({**event.tool_result, "content": [{"text": text}]})
            yield event

    crash("tool.done:after@1", agent_of(wraps=[masking]))
    agent = agent_of(wraps=[masking])
    agent("Go")
    assert results(agent) == {"p": "paid *", "s": "slept"}
    assert seen == ["p", "s"]


# (b) After hooks


def again(event: AfterToolCallEvent) -> None:
    event.retry = event.tool_use["name"] == "pay"


def rewrite(event: AfterToolCallEvent) -> None:
    event.result = {**event.result, "content": [{"text": "rewritten"}]}


def rewrite_in_place(event: AfterToolCallEvent) -> None:
    event.result["content"][0]["text"] = "rewritten"


def nothing(event: AfterToolCallEvent) -> None:
    """Decide nothing."""


def broken(event: AfterToolCallEvent) -> None:
    if event.tool_use["name"] == "pay":
        raise ValueError("broken")


@pytest.mark.parametrize("before", [(), (nothing,)])
@pytest.mark.parametrize("hook", [again, rewrite, rewrite_in_place, broken])
def test_c61_what_after_hooks_left_is_what_they_leave_again(before: Any, hook: Any) -> None:
    crash("slow@1", agent_of(hooks=before))
    agent = agent_of(hooks=[hook])
    agent("Go")
    assert [amount for amount, _ in paid] == [5]
    assert results(agent)["p"] == "paid 5"


def once_more(event: AfterToolCallEvent) -> None:
    event.retry = len(paid) == 1


@pytest.mark.parametrize("hook", [once_more, rewrite])
def test_c61_a_hook_that_a_deploy_adds_decides_nothing_about_a_call_that_was_alone(hook: Any) -> None:
    def fail(event: AfterToolsEvent) -> None:
        raise ValueError("not reachable")

    script = [call("pay", "p", amount=5), "Done."]
    with pytest.raises(EventLoopException, match="not reachable"):
        agent_of(script, hooks=[fail])("Go")
    forget_process()
    agent = agent_of(script, hooks=[hook])
    agent("Go")
    assert [amount for amount, _ in paid] == [5]
    assert results(agent) == {"p": "paid 5"}


@pytest.mark.parametrize("hook", [rewrite, rewrite_in_place])
@pytest.mark.parametrize("later", [(), (nothing,), (again,)])
def test_c61_a_result_that_after_hooks_changed_stays_changed(hook: Any, later: Any) -> None:
    crash("slow@1", agent_of(hooks=[hook]))
    agent = agent_of(hooks=later)
    agent("Go")
    assert [amount for amount, _ in paid] == [5]
    assert results(agent)["p"] == "rewritten"


def test_c61_before_their_record_after_hooks_decide_as_in_a_run_that_was_never_killed() -> None:
    crash("tool.done:after@1", agent_of(hooks=[rewrite]))
    agent = agent_of(hooks=[rewrite])
    agent("Go")
    assert results(agent) == {"p": "rewritten", "s": "rewritten"}
    assert len(paid) == 1


@pytest.mark.parametrize("point", ["tool.after:after@1", "tool.start:before@2", "paid 5@2", "slow@1"])
def test_c61_a_retry_that_was_decided_is_made_and_the_last_try_is_the_call(point: str) -> None:
    def once(event: AfterToolCallEvent) -> None:
        event.retry = event.tool_use["name"] == "pay" and len(paid) == 1

    crash(point, agent_of(hooks=[once]))
    agent = agent_of()  # nobody wants a retry any more
    agent("Go")
    keys = [key for _, key in paid]
    assert len(set(keys)) == 2
    assert len(keys) == (3 if point == "paid 5@2" else 2)
    assert results(agent) == {"p": "paid 5", "s": "slept"}


def test_c61_a_wish_that_is_not_followed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    crash("slow@1", agent_of(hooks=[nothing]))
    with caplog.at_level(logging.WARNING):
        agent_of(hooks=[again, deny])("Go")
    told = [record.getMessage() for record in caplog.records if "is on record" in record.getMessage()]
    assert sum("retry" in text and "<pay>" in text for text in told) == 1
    assert sum("cancel_tool" in text and "<pay>" in text for text in told) == 1


# (c) Nodes


def graph_of(hooks: Any = ()) -> Any:
    builder = GraphBuilder()
    worker = Agent(
        name="worker", model=ScriptedModel([call("pay", "p", amount=5), "Paid."]), tools=[pay], callback_handler=None
    )
    builder.add_node(worker, "worker")
    builder.set_entry_point("worker")
    graph = builder.build()
    for hook in hooks:
        graph.hooks.add_callback(BeforeNodeCallEvent, hook)
    Durability("runs.db", execution_id="trip").init_multi_agent(graph)
    return graph


def deny_node(event: BeforeNodeCallEvent) -> None:
    event.cancel_node = "closed"


@pytest.mark.parametrize("hook", [deny_node, question])
def test_c61_a_node_whose_call_is_on_record_is_not_cancelled(hook: Any, caplog: pytest.LogCaptureFixture) -> None:
    crash("model 1:chunk 0@1", graph_of())
    graph = graph_of([hook])
    with caplog.at_level(logging.WARNING):
        result = graph("Go")
    assert result.status.value == "completed"
    assert [amount for amount, _ in paid] == [5]
    assert "is on record" in caplog.text


def test_c61_a_node_with_nothing_on_record_is_cancelled() -> None:
    crash("node.start:after@1", graph_of())
    with pytest.raises(RuntimeError, match="closed"):
        graph_of([deny_node])("Go")
    assert paid == []
