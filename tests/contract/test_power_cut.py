"""What a power cut can undo: at most the last answer of a model, and nothing that a tool was started for."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
)
from strands.tools.executors import SequentialToolExecutor

from strands_durable import Durability, policy
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import ScriptedModel, call, forget_process


class Disk:
    """What of a store would be there after a power cut: its content as of the last commit with an fsync."""

    def __init__(self) -> None:
        self.content: sqlite3.Connection | None = None
        self.on_commit: Callable[[str], None] = lambda label: None

    def save(self, connection: sqlite3.Connection) -> None:
        self.content = sqlite3.connect(":memory:", check_same_thread=False)
        connection.backup(self.content)

    @property
    def answers(self) -> int:
        if self.content is None:
            return 0
        found = self.content.execute("SELECT count(*) FROM steps WHERE kind = 'model' AND status = 'done'").fetchone()
        return int(found[0])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found, original = Disk(), Store.transaction

    @contextmanager
    def transaction(store: Store, label: str, fence: Any = None, *, lasting: bool = True) -> Iterator[Any]:
        with original(store, label, fence, lasting=lasting) as connection:
            yield connection
        if lasting:
            found.save(connection)
        found.on_commit(label)

    monkeypatch.setattr(Store, "transaction", transaction)
    return found


def agent_of(script: Any, tools: Any = (), hooks: Any = (), **options: Any) -> Agent:
    plugin = Durability("runs.db", execution_id="trip", **options)
    agent = Agent(model=ScriptedModel(script), tools=list(tools), plugins=[plugin], callback_handler=None)
    for hook, event in hooks:
        agent.add_hook(hook, event)
    return agent


@tool
def work(n: int = 0) -> str:
    """Work."""
    return f"worked {n}"


@pytest.mark.parametrize("chosen", ["recorded", "inline", "put in its place by a hook"])
def test_c10_a_tool_does_not_start_before_its_answer_would_survive_a_power_cut(disk: Disk, chosen: str) -> None:
    seen: list[int] = []

    @tool
    def look() -> str:
        """Look at what is on the disk."""
        seen.append(disk.answers)
        return "seen"

    @policy(inline=True)
    @tool
    def quick() -> str:
        """Look at it without an intent."""
        seen.append(disk.answers)
        return "seen"

    def swap(event: BeforeToolCallEvent) -> None:
        event.selected_tool = quick

    name, hooks = "quick" if chosen == "inline" else "look", [(swap, BeforeToolCallEvent)]
    script = [call(name), [call(name), call(name)], "Done."]
    agent_of(script, [look, quick], hooks if chosen.startswith("put") else [])("Go")
    assert seen == [1, 2, 2]
    assert disk.answers == 3


def send_back_twice(event: AfterModelCallEvent) -> None:
    sent = event.agent.state.get("sent") or 0
    event.retry = sent < 2
    event.agent.state.set("sent", sent + 1)


def cancel_tools(event: BeforeToolsEvent) -> None:
    event.cancel = "not today"


def add_passes(event: AfterInvocationEvent) -> None:
    added = event.agent.state.get("added") or 0
    event.resume = None if added == 3 else f"And {added}?"
    event.agent.state.set("added", added + 1)


def undone(disk: Disk, agent: Agent) -> tuple[int, list[int]]:
    """Run an agent; return how many answers there were, and how many a power cut after each commit would have undone."""
    made, found = [0], []

    def note(label: str) -> None:
        made[0] += label == "model.done"
        found.append(made[0] - disk.answers)

    disk.on_commit = note
    agent("Go")
    return made[0], found


HOOKS = [(send_back_twice, AfterModelCallEvent), (cancel_tools, BeforeToolsEvent), (add_passes, AfterInvocationEvent)]


@pytest.mark.parametrize("hooks", [[], *([hook] for hook in HOOKS)])
def test_c10_a_power_cut_undoes_one_answer_at_most(disk: Disk, hooks: Any) -> None:
    script = [call("work", n=1), call("work", n=2), call("work", n=3), *["Done."] * 6]
    made, found = undone(disk, agent_of(script, [work], hooks))
    assert made >= 4
    assert max(found) == 1
    assert found[-1] == 0


def test_c12_where_a_model_is_not_to_be_asked_again_a_power_cut_undoes_no_answer(disk: Disk) -> None:
    made, found = undone(disk, agent_of([call("work", n=1), "Done."], [work], model_in_doubt="fail"))
    assert (made, max(found)) == (2, 0)


def test_c10_a_run_is_resumed_from_what_a_power_cut_left(disk: Disk) -> None:
    script = [call("work", n=1), call("work", n=2), "Done."]
    left: list[sqlite3.Connection] = []

    def keep(label: str) -> None:
        if disk.content is not None and label == "model.done":
            left.append(disk.content)

    disk.on_commit = keep
    expected = str(agent_of(script, [work])("Go"))
    disk.on_commit = lambda label: None
    assert len(left) == 3
    for content in left:
        forget_process()
        Path("runs.db").unlink()
        with closing(sqlite3.connect("runs.db")) as connection:
            content.backup(connection)
        agent = agent_of(script, [work])
        assert str(agent("Go")) == expected
        assert len(agent.messages) == 6


def test_c10_an_inline_tool_of_a_resumed_call_does_not_start_before_its_answer_would_survive_a_power_cut(
    disk: Disk,
) -> None:
    seen: list[int] = []
    killed = sqlite3.connect(":memory:", check_same_thread=False)

    @policy(inline=True)
    @tool
    def quick() -> str:
        """Look at what is on the disk, without an intent."""
        seen.append(disk.answers)
        return "seen"

    def keep(label: str) -> None:
        if label == "model.done":
            disk.on_commit = lambda label: None
            stores.open(Path("runs.db").resolve())[0].connection.backup(killed)

    disk.on_commit = keep
    agent_of([call("quick"), "Done."], [quick])("Go")
    forget_process()
    Path("runs.db").unlink()
    with closing(sqlite3.connect("runs.db")) as connection:
        killed.backup(connection)
    disk.content = None
    seen.clear()
    assert str(agent_of([call("quick"), "Done."], [quick])("Go")) == "Done.\n"
    assert seen == [1]


@pytest.mark.parametrize(("label", "decides"), [("tool.after", True), ("tool.start", False)])
def test_c61_after_a_power_cut_the_hooks_after_the_last_tool_decide_once_more(
    disk: Disk, label: str, decides: bool
) -> None:
    left: list[sqlite3.Connection] = []

    def keep(committed: str) -> None:
        if "worked 1" in worked and committed == label and disk.content is not None:
            left.append(disk.content)

    def note(event: AfterToolCallEvent) -> None:
        worked.append(str(event.result["content"][0]["text"]))

    def again(event: AfterToolCallEvent) -> None:
        event.result = {**event.result, "content": [{"text": "decided again"}]}

    def build(hook: Any) -> Agent:
        agent = agent_of(
            [[call("work", "a", n=1), call("work", "b", n=2)], "Done."], [work], [(hook, AfterToolCallEvent)]
        )
        agent.tool_executor = SequentialToolExecutor()
        return agent

    worked: list[str] = []
    disk.on_commit = keep
    build(note)("Go")
    disk.on_commit = lambda label: None
    forget_process()
    Path("runs.db").unlink()
    with closing(sqlite3.connect("runs.db")) as connection:
        left[0].backup(connection)
    agent = build(again)
    agent("Go")
    first = agent.messages[2]["content"][0]["toolResult"]["content"][0]["text"]
    assert first == ("decided again" if decides else "worked 1")
