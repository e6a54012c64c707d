"""C46: an exported run as a test: what was recorded is played, nothing runs, and what the agent does differently is shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.hooks import AfterToolCallEvent, BeforeInvocationEvent, BeforeModelCallEvent, BeforeToolCallEvent
from strands.types.exceptions import EventLoopException

from strands_durable import Durability, connect, durable, errors
from strands_durable._enginekit.export_files import text_of
from strands_durable._execution import entry
from strands_durable.testing import ScriptedModel, assert_replays, call, forget_process
from tests.features.harness import Feature, load

FEATURES = {
    name: found
    for name, found in load().items()
    if found.around is None and found.module not in ("processes", "remote", "servers", "clients")
}
"""Programs that need nothing besides their own process."""
QUICK = (
    "several ask at once, answered in parts and backwards",
    "too many tokens, and another call follows",
    "an overflow, and a summary by an agent for it",
    "hooks with effects, clocks and timers",
    "an inline tool with steps of its own, after a direct call",
)
REFUSED = {"a guardrail redacts the prompt": "redacted one of its inputs"}
ran: list[str] = []


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    ran.clear()
    yield tmp_path
    forget_process()


def export(execution_id: str = "trip") -> dict[str, Any]:
    return connect("sqlite:///runs.db?worker=off").sync.get(execution_id).export()


# Every feature


class _Called(BaseException):
    """The program has built its agent, and calls it."""


def _agent_of(found: Feature, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    """Return the agent that a program builds, as it is before its first call, and what it passes to that call."""
    caught: list[Any] = []

    def catch(options: Any, subject: Any, prompt: Any, given: dict[str, Any]) -> Any:
        caught.append((subject.me, given))
        raise _Called

    with monkeypatch.context() as patch:
        patch.setattr(entry, "call", catch)
        with pytest.raises(_Called):
            found.play()
    agent, given = caught[0]
    kept = ("structured_output_model", "limits", "invocation_state")
    return agent, {name: given[name] for name in kept if given.get(name)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in FEATURES]
)
def test_c46_every_feature_replays_from_its_export_and_comes_through_an_import(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FEATURES[name].play()
    forget_process()
    backend = connect("sqlite:///runs.db?worker=off").sync
    execution_id = next((each.execution_id for each in backend.list() if each.execution_id == "trip"), None)
    found = export(execution_id or backend.list()[0].execution_id)
    copied = connect("sqlite:///copy.db?worker=off").sync.import_execution(found).export()
    again = connect("sqlite:///again.db?worker=off").sync.import_execution(copied).export()
    assert again["rows"] == copied["rows"]
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    agent, given = _agent_of(FEATURES[name], monkeypatch)
    before = _ledger()
    if name in REFUSED:
        with pytest.raises(errors.UnsupportedFeatureError, match=REFUSED[name]):
            assert_replays(found, agent, **given)
    else:
        assert assert_replays(copied, agent, **given) > 0
    assert _ledger() == before


def _ledger() -> str:
    path = Path("ledger.jsonl")
    return path.read_text() if path.exists() else ""


# What is different


class Trip(BaseModel):
    """A trip."""

    city: str


@tool(context=True)
def book(city: str, tool_context: ToolContext) -> str:
    """Book a hotel."""
    ran.append(city)
    tool_context.agent.state.set("booked", city)
    return f"booked {city}"


@tool
def cancel(city: str) -> str:
    """Cancel a hotel."""
    return city


def build(*hooks: tuple[Any, Callable[[Any], None]], **options: Any) -> Agent:
    script = options.pop("script", [call("book", city="Paris"), "Booked."])
    plugins = options.pop("plugins", [])
    made = {"tools": [book], "system_prompt": "You book hotels.\nBe brief.", **options}
    agent = Agent(model=ScriptedModel(script), callback_handler=None, plugins=plugins, **made)
    for event, hook in hooks:
        agent.hooks.add_callback(event, hook)
    return agent


def record(*prompts: str, **options: Any) -> dict[str, Any]:
    agent = build(plugins=[Durability("runs.db", execution_id="trip")], **options)
    for prompt in prompts or ("Go",):
        agent(prompt)
    forget_process()
    ran.clear()
    return export()


def difference(found: dict[str, Any], agent: Any, **given: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_replays(found, agent, **given)
    assert ran == []
    return str(caught.value)


def change_result(event: AfterToolCallEvent) -> None:
    event.result["content"] = [{"text": "something else"}]


def change_state(event: BeforeInvocationEvent) -> None:
    event.agent.state.set("mood", "good")


def change_messages(event: BeforeModelCallEvent) -> None:
    event.agent.messages[0]["content"][0]["text"] = "Stop"


def change_input(event: BeforeToolCallEvent) -> None:
    event.tool_use["input"] = {"city": "Rome"}


def go_round_again(event: AfterToolCallEvent) -> None:
    event.retry = True


DIFFERENCES: dict[str, tuple[Callable[[], Agent], list[str]]] = {
    "system prompt": (
        lambda: build(system_prompt="You book hotels.\nBe kind."),
        ["-      Be brief.", "+      Be kind."],
    ),
    "tools": (lambda: build(tools=[book, cancel]), ["+  cancel:"]),
    "a result": (lambda: build((AfterToolCallEvent, change_result)), ["before model call 2", "something else"]),
    "the state": (lambda: build((BeforeInvocationEvent, change_state)), ["state at the end", "+mood: good"]),
    "messages": (lambda: build((BeforeModelCallEvent, change_messages)), ["before model call 1", "Stop"]),
    "the input of a tool": (lambda: build((BeforeToolCallEvent, change_input)), ["tool 'book'", "Rome"]),
    "a step that is not on record": (
        lambda: build((AfterToolCallEvent, go_round_again)),
        ["which the recorded run did not"],
    ),
    "what is in sight": (
        lambda: build(conversation_manager=SlidingWindowConversationManager(window_size=2, per_turn=True)),
        ["in sight at the end"],
    ),
    "structured output": (
        lambda: build(structured_output_model=Trip),
        ["step #0/000003/model~0: the agent calls the model", "structured"],
    ),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_c46_what_an_agent_does_differently_is_a_readable_difference(what: str, folder: Path) -> None:
    make, expected = DIFFERENCES[what]
    told = difference(record(), make)
    assert "does not do what execution 'trip'" in told
    assert [part for part in expected if part not in told] == [], told


def test_c46_the_first_difference_comes_first(folder: Path) -> None:
    hooks = [(AfterToolCallEvent, change_result), (BeforeInvocationEvent, change_state)]
    told = difference(record(), lambda: build(*hooks, system_prompt="Else."))
    places = [told.index(part) for part in ("system prompt and tools", "before model call 2", "state at the end")]
    assert places == sorted(places)
    assert "\n1. call 1: model, system prompt" in told


def test_c46_an_agent_a_factory_and_a_file_will_do(folder: Path) -> None:
    found = record("Go", "Again", script=[call("book", city="Paris"), "Booked.", "Again."])
    Path("run.json").write_text(text_of(found))
    agent = build()
    assert assert_replays("run.json", agent) == assert_replays(Path("run.json"), build) == 4
    assert (ran, agent.state.get("booked")) == ([], "Paris")
    agent.messages.clear()
    agent("Go")  # with its own model and tools again
    assert ran == ["Paris"]
    with pytest.raises(TypeError, match="takes an Agent"):
        assert_replays("run.json", lambda: "no agent")
    with pytest.raises(TypeError, match="one agent"):
        assert_replays("run.json")  # type: ignore[call-overload]


def test_c46_an_agent_that_is_durable_writes_nothing_to_its_own_store(folder: Path) -> None:
    found = record()
    agent = build(plugins=[Durability("own.db", execution_id="other")])
    assert_replays(found, agent)
    assert not Path("own.db").exists()
    assert_replays(found, lambda: build(plugins=[Durability("own.db")]))


def test_c46_an_unfinished_run_replays_as_far_as_it_went(folder: Path) -> None:
    def interrupt(event: BeforeModelCallEvent) -> None:
        if len(event.agent.messages) > 2:
            raise KeyboardInterrupt

    agent = build((BeforeModelCallEvent, interrupt), plugins=[Durability("runs.db", execution_id="trip")])
    with pytest.raises(KeyboardInterrupt):
        agent("Go")
    forget_process()
    ran.clear()
    found = export()
    assert assert_replays(found, build) == 2
    assert "Else." in difference(found, lambda: build(system_prompt="Else."))
    assert "an effect" in difference(found, lambda: build((BeforeModelCallEvent, charge)))


def test_c46_a_failed_run_replays_to_its_failure(folder: Path) -> None:
    def refuse(event: AfterToolCallEvent) -> None:
        raise ValueError("refused")

    with pytest.raises(EventLoopException, match="refused"):
        build((AfterToolCallEvent, refuse), plugins=[Durability("runs.db", execution_id="trip")])("Go")
    forget_process()
    ran.clear()
    assert_replays(export(), lambda: build((AfterToolCallEvent, refuse)))


async def charge(event: BeforeModelCallEvent) -> None:
    await durable.step("charge", lambda: ran.append("charged"))


def test_c46_a_run_that_waits_replays_to_its_question(folder: Path) -> None:
    def ask(event: BeforeToolCallEvent) -> None:
        event.interrupt("approval", reason="Book?")

    build((BeforeToolCallEvent, ask), plugins=[Durability("runs.db", execution_id="trip")])("Go")
    forget_process()
    found = export()
    assert assert_replays(found, lambda: build((BeforeToolCallEvent, ask))) == 1
    assert "which the recorded run did not" in difference(found, build)


def test_c46_what_an_agent_raises_is_a_difference(folder: Path) -> None:
    def refuse(event: AfterToolCallEvent) -> None:
        raise ValueError("refused")

    assert "the agent raised EventLoopException: refused" in difference(
        record(), lambda: build((AfterToolCallEvent, refuse))
    )


def test_c46_an_effect_that_is_not_on_record_does_not_happen(folder: Path) -> None:
    assert "an effect" in difference(record(), lambda: build((BeforeModelCallEvent, charge)))


def test_c46_what_cannot_be_replayed_is_refused_by_name(folder: Path) -> None:
    found = record()
    redacted = connect("sqlite:///runs.db?worker=off").sync.get("trip").export(contents=False)
    with pytest.raises(errors.InvalidExportError, match="without contents"):
        assert_replays(redacted, build)
    with pytest.raises(errors.InvalidExportError, match="No such file"):
        assert_replays(os.fspath(folder / "missing.json"), build)
    _compact(found["rows"])
    with pytest.raises(errors.UnsupportedFeatureError, match="compacted"):
        assert_replays(found, build)


def _compact(rows: dict[str, list[Any]]) -> None:
    """Drop what an engine drops of a call that has only its last message in sight."""
    (head,) = [row["data"] for row in rows["heads"] if row["part"] == "progress"]
    last = rows["messages"][-1]
    rows["messages"], head["ranges"] = [last], [[last["seq"], last["seq"]]]
    for row in rows["steps"]:
        if int(row["key"].partition("/")[0]) < head["ordinal"]:
            row.pop("result")
