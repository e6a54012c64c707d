"""The plugins, interventions and memory that come with Strands."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from strands import Agent, tool
from strands.memory import MemoryManager
from strands.storage import LocalFileStorage
from strands.vended_interventions.cedar import CedarAuthorization
from strands.vended_interventions.hitl import HumanInTheLoop
from strands.vended_memory_stores.file_memory_store import FileMemoryStore
from strands.vended_memory_stores.test_memory_store import TestMemoryStore as MemoryOfTests
from strands.vended_plugins.context_injector import ContextInjector
from strands.vended_plugins.context_offloader import ContextOffloader, InMemoryStorage
from strands.vended_plugins.goal import GoalLoop, JudgeConfig
from strands.vended_plugins.skills import AgentSkills, Skill
from strands.vended_plugins.steering import Guide, LLMSteeringHandler, Proceed, SteeringHandler

from strands_durable.testing import ScriptedModel, call
from tests.crash.scenarios import Ledger
from tests.public_tools.scenario import Place, agent_of, pay, scenario

PLUGINS, INTERVENTIONS, STORES = (
    "strands.vended_plugins",
    "strands.vended_interventions",
    "strands.vended_memory_stores",
)
_IN_MEMORY = "a warning says so; use `LocalFileStorage`"
PAYS = [call("pay", amount=5), call("pay", amount=7), "Paid."]


# Context


@scenario(f"{PLUGINS}.context_injector")
def injecting(place: Place) -> Agent:
    def script(turn: int, messages: list[Any]) -> Any:
        return PAYS[turn] if turn < 2 else f"Paid {str(messages).count('<paid>')} times."

    def render(context: Any) -> str:
        paid = [block for message in context.messages for block in message["content"] if "toolResult" in block]
        return "<paid>" * len(paid)

    return agent_of(place, script, [pay], plugins=[ContextInjector(render, trigger="everyTurn")])


@tool
def read_all() -> str:
    """Return a long text."""
    return "".join(f"{number}: a city\n" for number in range(2000))


def _offloading(place: Place, storage: Any) -> Agent:
    def script(turn: int, messages: list[Any]) -> Any:
        if turn == 0:
            return call("read_all")
        if turn == 1:
            found = re.search(r"references:\]\n\s*(\S+)", str(messages[-1]).replace("\\n", "\n"))
            assert found is not None, messages[-1]
            given = {"reference": found[1], "line_range": {"start": 1500, "end": 1501}}
            return call("retrieve_offloaded_content", **given)
        return "Done."

    return agent_of(place, script, [read_all], plugins=[ContextOffloader(storage)])


@scenario(f"{PLUGINS}.context_offloader", "in memory, its default", note=_IN_MEMORY)
def offloading_to_memory(place: Place) -> Agent:
    return _offloading(place, None)


@scenario(f"{PLUGINS}.context_offloader", "in `InMemoryStorage`", note=_IN_MEMORY)
def offloading_to_memory_storage(place: Place) -> Agent:
    return _offloading(place, InMemoryStorage())


@scenario(f"{PLUGINS}.context_offloader", "in files")
def offloading_to_files(place: Place) -> Agent:
    return _offloading(place, LocalFileStorage("artifacts"))


# Goals and judges


def _goal(place: Place, goal: Any, script: Any, **options: Any) -> Agent:
    return agent_of(place, script, [pay], plugins=[GoalLoop(goal, max_attempts=3, **options)])


ATTEMPTS = [call("pay", amount=5), "Half.", call("pay", amount=7), "Whole."]


def _judged(turn: int, messages: list[Any]) -> Any:
    passed = "Whole." in str(messages)
    return call("JudgeOutcome", passed=passed, feedback="" if passed else "Pay all of it.")


@scenario(f"{PLUGINS}.goal", "with a function")
def aiming(place: Place) -> Agent:
    return _goal(place, lambda response, agent: "Whole" in str(response), ATTEMPTS)


@scenario(f"{PLUGINS}.goal", "with a judge on `aux_model`", note="the judge's answers are recorded")
def judging(place: Place) -> Agent:
    plugins = [GoalLoop("Pay all of it.", max_attempts=3)]
    return agent_of(place, ATTEMPTS, [pay], plugins=plugins, aux_model=ScriptedModel(_judged))


@scenario(f"{PLUGINS}.goal", "with a judge's own model")
def judging_with_a_model(place: Place) -> Agent:
    return _goal(place, "Pay all of it.", ATTEMPTS, judge=JudgeConfig(model=ScriptedModel(_judged)))


# Skills and steering


@scenario(f"{PLUGINS}.skills")
def skilled(place: Place) -> Agent:
    skill = Skill(name="paying", description="How to pay.", instructions="Pay twice.")
    return agent_of(place, [call("skills", skill_name="paying"), *PAYS], [pay], plugins=[AgentSkills(skill)])


class Frugal(SteeringHandler):
    """Sends the first payment above six back."""

    async def steer_before_tool(self, *, agent: Agent, tool_use: Any, **kwargs: Any) -> Any:
        """Decide by what the conversation has."""
        is_first = "Too much" not in str(agent.messages)
        return Guide(reason="Too much.") if tool_use["input"]["amount"] > 6 and is_first else Proceed(reason="")


@scenario(f"{PLUGINS}.steering", "by a rule", may_fail=True)
def steering(place: Place) -> Agent:
    return agent_of(place, [*PAYS[:2], *PAYS[1:]], [pay], plugins=[Frugal()])


def _steered(decide: Callable[[str], str]) -> ScriptedModel:
    return ScriptedModel(
        lambda turn, messages: call("_LLMSteering", decision=decide(str(messages)), reason="So be it.")
    )


@scenario(f"{PLUGINS}.steering", "by a model of its own")
def steering_by_a_model(place: Place) -> Agent:
    return agent_of(place, PAYS, [pay], plugins=[LLMSteeringHandler("Watch.", model=_steered(lambda asked: "proceed"))])


@scenario(f"{PLUGINS}.steering", "by a model that changes its mind", note="it forbids what it has allowed and is paid")
def steering_by_a_fickle_model(place: Place) -> Agent:
    def decide(asked: str) -> str:
        [amount] = set(re.findall(r"amount\D+(\d)", asked))
        is_paid = any(entry["amount"] == int(amount) for entry in Ledger(place.folder / "ledger.jsonl").read())
        return "guide" if is_paid else "proceed"

    handler = LLMSteeringHandler("Watch.", model=_steered(decide), context_providers=[])
    return agent_of(place, PAYS, [pay], plugins=[handler])


# Interventions


@scenario(f"{INTERVENTIONS}.hitl", answer="y")
def asking(place: Place) -> Agent:
    return agent_of(
        place, [[call("pay", amount=5), call("pay", amount=7)], "Paid."], [pay], interventions=[HumanInTheLoop()]
    )


@scenario(
    f"{INTERVENTIONS}.hitl",
    "with a classifier on `aux_model`",
    answer="y",
    note="the classifier's answers are recorded",
)
def classifying(place: Place) -> Agent:
    def script(turn: int, messages: list[Any]) -> Any:
        return call("_RiskDecision", requires_approval="7" in str(messages[0]), reason="So be it.")

    options = {"interventions": [HumanInTheLoop(classifier=True)], "aux_model": ScriptedModel(script)}
    return agent_of(place, PAYS, [pay], **options)


@scenario(
    f"{INTERVENTIONS}.cedar",
    "with a limit on calls",
    may_fail=True,
    note="its counts of calls are in the agent's state",
)
def authorizing(place: Place) -> Agent:
    policies = 'permit(principal, action == Action::"pay", resource) when { context.session.call_count <= 2 };'
    script = [*PAYS[:2], call("pay", amount=9), "Paid."]
    return agent_of(place, script, [pay], interventions=[CedarAuthorization(policies=policies)])


# Memory


def _memory(place: Place, script: Any, store: Any, **options: Any) -> Agent:
    return agent_of(place, script, [pay], memory_manager=MemoryManager([store], **options))


ADDS = [
    call("add_memory", entries=["Likes Rome."]),
    call("pay", amount=5),
    call("search_memory", query="Rome"),
    "Done.",
]


def _store(place: Place, **options: Any) -> Any:
    return MemoryOfTests(name="facts", path=str(place.folder / "facts.json"), **options)


@scenario("strands.memory", "`search_memory`, and what it injects")
def remembering(place: Place) -> Agent:
    (place.folder / "facts.json").unlink(missing_ok=True)
    return _memory(place, ADDS[1:], _store(place))


@scenario("strands.memory", "`add_memory`", note="the stores of Strands keep equal entries once")
def adding(place: Place) -> Agent:
    return _memory(place, ADDS, _store(place), add_tool_config=True)


@scenario("strands.memory", "`add_memory` with `wait_for_writes=False`", note="a warning says so")
def adding_in_the_background(place: Place) -> Agent:
    return _memory(place, ADDS, _store(place), add_tool_config={"wait_for_writes": False})


@scenario("strands.memory", "extraction", note="a warning says so; use `add_memory`")
def extracting(place: Place) -> Agent:
    class Messages(MemoryOfTests):
        """Keeps whole messages."""

        async def add_messages(self, messages: Any, context: Any = None) -> None:
            """Write them to the file."""
            with (place.folder / "extracted").open("a") as file:
                file.writelines(
                    f"{message['role']}: {sorted(*map(list, message['content']))}\n" for message in messages
                )

    store = Messages(name="facts", path=str(place.folder / "facts.json"), extraction=True)
    return _memory(place, PAYS, store)


@scenario(f"{STORES}.file_memory_store")
def adding_to_files(place: Place) -> Agent:
    return _memory(place, ADDS, FileMemoryStore(name="facts", storage=LocalFileStorage("store")), add_tool_config=True)


@scenario(f"{STORES}.test_memory_store")
def adding_to_a_file(place: Place) -> Agent:
    return _memory(place, ADDS, _store(place), add_tool_config=True)
