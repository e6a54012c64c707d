"""C64: a tool gets its own copy of its input: what it does to that changes no recorded message."""

from __future__ import annotations

import copy
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent
from strands.middleware import ExecuteToolStage, ToolResultEvent
from strands.tools import PythonAgentTool
from strands.types.tools import AgentTool, ToolSpec

from strands_durable import Durability, ToolPolicy
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process, reach

GIVEN = {"trip": {"cities": ["Rome", {"name": "Oslo"}], "days": 3}}
got: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_was_got() -> None:
    got.clear()


def spoil(given: Any) -> None:
    """Note what a tool was given, and change all of it in place."""
    got.append(copy.deepcopy(given))
    given["trip"]["cities"][1]["name"] = "spoiled"
    given["trip"]["cities"].append("spoiled")
    given["trip"].pop("days")
    given["more"] = "spoiled"


@tool(context=True)
def decorated(trip: Any, tool_context: ToolContext) -> str:
    """Spoil the input."""
    spoil(tool_context.tool_use["input"])
    trip["cities"] = "spoiled"
    reach("spoiled")
    return "spoiled"


@tool(context=True)
async def waiting(trip: Any, tool_context: ToolContext) -> str:
    """Spoil the input, on the event loop."""
    spoil(tool_context.tool_use["input"])
    reach("spoiled")
    return "spoiled"


def _spec(name: str) -> ToolSpec:
    schema = {"json": {"type": "object", "properties": {"trip": {"type": "object"}}}}
    return {"name": name, "description": "Spoil the input.", "inputSchema": schema}


def _result(tool_use: Any) -> Any:
    return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": "spoiled"}]}


def _module_tool(tool_use: Any, **state: Any) -> Any:
    spoil(tool_use["input"])
    reach("spoiled")
    return _result(tool_use)


class ClassTool(AgentTool):
    """A tool that is a class."""

    @property
    def tool_name(self) -> str:
        return "classy"

    @property
    def tool_spec(self) -> ToolSpec:
        return _spec("classy")

    @property
    def tool_type(self) -> str:
        return "class"

    async def stream(self, tool_use: Any, invocation_state: Any, **more: Any) -> AsyncGenerator[Any, None]:
        spoil(tool_use["input"])
        reach("spoiled")
        yield ToolResultEvent(_result(tool_use))


TOOLS: dict[str, Any] = {
    "decorated": decorated,
    "waiting": waiting,
    "module": PythonAgentTool("module", _spec("module"), _module_tool),
    "classy": ClassTool(),
}


def agent_of(name: str = "decorated", *, policy: ToolPolicy | None = None, **options: Any) -> Agent:
    plugins = [Durability("runs.db", execution_id="trip", tool_policies={} if policy is None else {name: policy})]
    script = [[call(name, **copy.deepcopy(GIVEN))], "Done."]
    return Agent(
        model=ScriptedModel(script), tools=[TOOLS[name]], plugins=plugins, callback_handler=None, **options,
    )  # fmt: skip


def inputs(agent: Agent) -> list[Any]:
    """Return the inputs of tools that the conversation has."""
    return [
        block["toolUse"]["input"] for message in agent.messages for block in message["content"] if "toolUse" in block
    ]


def recorded_inputs() -> list[Any]:
    """Return them as another process reads them."""
    forget_process()
    agent = agent_of()
    agent("Go")
    return inputs(agent)


@pytest.mark.parametrize("name", TOOLS)
def test_c64_a_tool_that_changes_its_input_changes_no_message(name: str) -> None:
    agent = agent_of(name)
    agent("Go")
    assert got == [GIVEN]
    assert inputs(agent) == [GIVEN]
    forget_process()
    again = agent_of(name)
    again("Go")
    assert (inputs(again), len(got)) == ([GIVEN], 1)


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("point", ["spoiled@1", "tool.done:after@1"])
def test_c64_a_killed_run_has_the_messages_of_one_that_was_not(name: str, point: str) -> None:
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent_of(name)("Go")
    forget_process()
    resumed = agent_of(name)
    resumed("Go")
    assert inputs(resumed) == [GIVEN]
    assert got == [GIVEN] * (2 if point == "spoiled@1" else 1), "a further attempt gets the original"


def test_c64_each_retry_in_the_same_process_gets_the_original() -> None:
    def fail_twice(context: Any, next_fn: Any) -> Any:
        if len(got) >= 2:
            return next_fn(context)

        async def failing() -> Any:
            async for event in next_fn(context):
                if isinstance(event, ToolResultEvent):
                    event = ToolResultEvent({**event.tool_result, "status": "error"})
                yield event

        return failing()

    agent = agent_of(policy=ToolPolicy(retries=3))
    agent.add_middleware(ExecuteToolStage, fail_twice)
    agent("Go")
    assert (got, inputs(agent)) == ([GIVEN] * 3, [GIVEN])


def test_c64_hooks_see_the_original_before_and_after() -> None:
    before: list[Any] = []

    def look(event: BeforeToolCallEvent) -> None:
        before.append(event.tool_use["input"])

    def look_again(event: AfterToolCallEvent) -> None:
        got.append((event.tool_use["input"] is before[-1], event.tool_use["input"] == GIVEN))

    agent = agent_of()
    agent.add_hook(look, BeforeToolCallEvent)
    agent.add_hook(look_again, AfterToolCallEvent)
    agent("Go")
    assert before[0] is inputs(agent)[0]
    assert got == [GIVEN, (True, True)]


@pytest.mark.parametrize("name", TOOLS)
def test_c64_what_a_hook_puts_in_place_of_the_input_is_what_the_tool_gets(name: str) -> None:
    other = {"trip": {"cities": ["Bern", {"name": "Zug"}], "days": 1}}

    def put(event: BeforeToolCallEvent) -> None:
        event.tool_use["input"] = copy.deepcopy(other)

    agent = agent_of(name)
    agent.add_hook(put, BeforeToolCallEvent)
    agent("Go")
    assert (got, inputs(agent)) == ([other], [other])
    again = agent_of(name)
    forget_process()
    again("Go")
    assert inputs(again) == [other], "what the hook said is on record, not what the tool made of it"


def test_c64_what_has_no_copy_is_given_to_the_tool_as_it_is() -> None:
    client = threading.Lock()

    def put(event: BeforeToolCallEvent) -> None:
        event.tool_use = {
            **event.tool_use,
            "input": {**event.tool_use["input"], "trip": {"client": client, "list": []}},
        }

    @tool(context=True)
    def use(trip: Any, tool_context: ToolContext) -> str:
        """Use a client that a hook has put into the input."""
        given = tool_context.tool_use["input"]["trip"]
        given["list"].append("spoiled")
        got.append(given["client"])
        return "used"

    agent = Agent(
        model=ScriptedModel([[call("use", trip={})], "Done."]), tools=[use], hooks=[put], callback_handler=None,
        plugins=[Durability("runs.db", execution_id="trip")],
    )  # fmt: skip
    agent("Go")
    assert got[0] is client


def test_c64_a_repeated_call_of_a_finished_tool_changes_no_message_either() -> None:
    def build() -> Agent:
        return agent_of(policy=ToolPolicy(on_resume="rerun"))

    with pytest.raises(SimulatedCrash), CrashPoints().crashing("model.start:before@2", "raise"):
        build()("Go")
    forget_process()
    resumed = build()
    resumed("Go")
    assert (got, inputs(resumed)) == ([GIVEN] * 2, [GIVEN])
    assert recorded_inputs() == [GIVEN]
