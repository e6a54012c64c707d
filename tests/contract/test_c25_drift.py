"""C25: a call that resumes with another prompt, tools, model or messages is noticed, with a readable difference."""

from __future__ import annotations

import logging
import os
import sqlite3
from enum import Enum
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, errors
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.processes import run

MADE: list[str] = []


@tool
def search(text: str) -> str:
    """Search."""
    MADE.append(text)
    return f"found {text}"


@tool
def fetch(text: str) -> str:
    """Fetch."""
    return f"fetched {text}"


SCRIPT = [call("search", text="a"), call("search", text="b"), "Done."]


def agent_of(
    tools: Any = (search,), script: Any = SCRIPT, *, model_id: str = "one", prompt: str = "Be good.", **options: Any
) -> Agent:
    messages = options.pop("messages", None)
    return Agent(
        model=ScriptedModel(script, model_id=model_id),
        tools=list(tools),
        system_prompt=prompt,
        messages=messages,
        plugins=[Durability("runs.db", execution_id="trip", **options)],
        callback_handler=None,
    )


def crash_at(point: str, agent: Agent) -> None:
    MADE.clear()
    with pytest.raises(SimulatedCrash), CrashPoints().crashing(point, "raise"):
        agent("Go")
    forget_process()


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "system prompt": ({"prompt": "Be very good."}, r"(?s)-Be good\..*\+Be very good\."),
    "tool gone": ({"tools": [fetch]}, "tool 'search' was there, now it is gone"),
    "tool new": ({"tools": [search, fetch]}, "tool 'fetch' is new"),
    "model": ({"model_id": "two"}, "the model was 'one', now it is 'two'"),
    "messages": (
        {"messages": [{"role": "user", "content": [{"text": "New example"}]}]},
        "began with 0 messages in the agent, now there are 1",
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_c25_a_changed_agent_is_stopped_with_a_readable_difference(change: str) -> None:
    options, text = CHANGED[change]
    crash_at("tool.start:after@2", agent_of())
    with pytest.raises(errors.DriftError, match=text) as caught:
        agent_of(**options)("Go")
    assert "step 'model 2'" in str(caught.value) or change == "messages"
    assert 'on_drift="warn"' in str(caught.value)
    forget_process()
    assert str(agent_of()("Go")) == "Done.\n", "nothing was lost"


def test_c25_a_changed_schema_is_shown() -> None:
    crash_at("tool.start:after@1", agent_of())

    def other() -> Any:
        @tool(name="search")
        def changed(text: str, limit: int = 3) -> str:
            """Search."""
            return text

        return changed

    with pytest.raises(errors.DriftError, match=r"(?s)the schema of tool 'search' changed.*limit"):
        agent_of([other()])("Go")


def test_c25_warn_resumes_and_logs_the_change(caplog: pytest.LogCaptureFixture) -> None:
    crash_at("tool.start:after@2", agent_of())
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        assert str(agent_of(prompt="It is Tuesday.", on_drift="warn")("Go")) == "Done.\n"
    assert "agent changed, going on" in caplog.text
    assert MADE == ["a", "b"]


@pytest.mark.parametrize("point", ["model.done:after@2", "tool.start:before@2"])
def test_c25_rerun_gives_up_a_last_answer_of_which_no_tool_has_started(point: str) -> None:
    crash_at(point, agent_of())
    other = [SCRIPT[0], call("fetch", text="c"), "Done otherwise."]
    agent = agent_of([search, fetch], other, on_drift="rerun")
    assert str(agent("Go")) == "Done otherwise.\n"
    assert MADE == ["a"], "a finished tool never runs again"
    statuses = (
        sqlite3.connect("runs.db").execute("SELECT status FROM steps WHERE kind = 'model' ORDER BY id").fetchall()
    )
    assert statuses == [("done",), ("discarded",), ("done",), ("done",)]


def test_c25_rerun_keeps_an_answer_of_which_a_tool_has_started() -> None:
    crash_at("tool.start:after@2", agent_of())
    agent = agent_of([search, fetch], on_drift="rerun")
    assert str(agent("Go")) == "Done.\n"
    assert MADE == ["a", "b"]


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def test_c25_a_changed_agent_is_noticed_when_an_answer_resumes_it_and_the_answer_is_kept() -> None:
    script = [call("approve", what="a"), "Done."]
    (question,) = agent_of([approve], script)("Go").interrupts
    answer: Any = [{"interruptResponse": {"interruptId": question.id, "response": "yes"}}]
    forget_process()
    with pytest.raises(errors.DriftError, match="tool 'fetch' is new"):
        agent_of([approve, fetch], script)(answer)
    forget_process()
    assert str(agent_of([approve], script)("Go")) == "Done.\n"


def test_c25_an_agent_that_is_answered_where_it_asked_may_have_changed() -> None:
    agent = agent_of([approve], [call("approve", what="a"), "Done."])
    (question,) = agent("Go").interrupts
    agent.system_prompt = "Be better."
    assert str(agent([{"interruptResponse": {"interruptId": question.id, "response": "yes"}}])) == "Done.\n"


def test_c25_finished_calls_are_not_checked() -> None:
    agent_of()("Go")
    forget_process()
    assert str(agent_of([fetch], prompt="Other.", model_id="two")("Go")) == "Done.\n"


def _with_sets(folder: str, point: str | None) -> str:
    os.chdir(folder)

    @tool
    def choose(options: set[str], mode: str = "x") -> str:
        """Choose."""
        return ",".join(sorted(options))

    agent = agent_of([choose, search, fetch], [call("choose", options=["a", "b", "c"]), "Done."])
    points = CrashPoints()
    with points.recording() if point is None else points.crashing(point):
        return str(agent("Go"))


def test_c25_no_false_alarm_from_random_ids_order_of_sets_or_hash_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests.contract.test_c25_drift import _with_sets; "
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    for seed, point in (("1", "'tool.done:before@1'"), ("2", "'model.done:after@2'"), ("3", "None")):
        ended = subprocess.run(
            [sys.executable, "-c", code + f"print(_with_sets('.', {point}))", root],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.stdout.strip() == "Done.", ended.stderr


def test_c25_a_new_process_sees_the_same_agent() -> None:
    assert run(_with_sets, os.getcwd(), "tool.done:before@1").exitcode == -9
    assert run(_with_sets, os.getcwd(), None).checked() == "Done.\n"


def test_c25_a_prompt_that_extends_str_is_compared_by_its_text() -> None:
    class Prompt(str, Enum):
        GOOD = "Be good."
        BETTER = "Be better."

    crash_at("tool.done:after@1", agent_of(prompt=Prompt.GOOD, model_id=Prompt.GOOD))
    with pytest.raises(errors.DriftError, match=r"(?s)-Be good\..*\+Be better\."):
        agent_of(prompt=Prompt.BETTER, model_id=Prompt.GOOD)("Go")
    forget_process()
    assert str(agent_of(prompt="Be good.", model_id="Be good.")("Go")) == "Done.\n"
