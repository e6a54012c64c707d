"""C39 on a file: forks of inline executions, of nested calls and of earlier states, with all that may be changed or refused."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.types.exceptions import EventLoopException

from strands_durable import Durability, ExecutionHandle, connect, current_step, errors
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import CrashPoints, ScriptedModel, call
from strands_durable.testing.agents import contract_agent
from tests.crash.scenarios import Ledger
from tests.processes import run

ledger = Ledger(Path("ledger.jsonl"))
IMAGE = {"image": {"format": "png", "source": {"bytes": bytes(range(256)) * 20}}}


@tool(context=True)
def book(city: str, tool_context: ToolContext) -> Any:
    """Book a hotel."""
    step = current_step()
    assert step is not None
    ledger.write(city=city, key=step.idempotency_key)
    tool_context.agent.state.set("last", city)
    return {"status": "success", "content": [{"text": f"booked {city}"}, IMAGE]}


SCRIPT = [call("book", city="Paris"), call("book", city="Rome"), "Done."]


def agent_of(execution_id: str = "trip", script: Any = SCRIPT, **options: Any) -> Agent:
    tools = options.pop("tools", [book])
    plugin = Durability("runs.db", execution_id=execution_id, **options.pop("durable", {}))
    return Agent(model=ScriptedModel(script), tools=tools, plugins=[plugin], callback_handler=None, **options)


def handle(execution_id: str = "trip") -> ExecutionHandle:
    return asyncio.run(connect("sqlite:///runs.db?worker=off").get(execution_id))


def forked(at: int | None = None, execution_id: str = "fork", of: str = "trip", **changes: Any) -> ExecutionHandle:
    return asyncio.run(handle(of).fork(at=at, execution_id=execution_id, **changes))


def detail(execution_id: str) -> Any:
    return asyncio.run(handle(execution_id).detail())


def booked() -> list[str]:
    return [entry["city"] for entry in ledger.read()]


def rows(sql: str) -> list[Any]:
    with closing(sqlite3.connect("runs.db")) as connection:
        return connection.execute(sql).fetchall()


def test_c39_the_script_runs_the_fork_of_an_inline_execution_under_its_new_id() -> None:
    agent_of()("Go")
    fork = forked(3)
    assert asyncio.run(fork.status()).value == "PENDING"
    agent = agent_of("fork")
    assert str(agent("Go")) == "Done.\n"
    assert booked() == ["Paris", "Rome", "Rome"]
    assert len({entry["key"] for entry in ledger.read()}) == 3, "keys after the fork are new"
    assert agent.state.get("last") == "Rome"
    assert [step.ordinal for step in detail("fork").steps] == [1, 2, 3, 4, 5]


def test_c39_the_time_of_a_fork_counts_from_the_fork_on() -> None:
    now = time.time
    with pytest.MonkeyPatch.context() as patched:  # a run of an hour ago
        patched.setattr(time, "time", lambda: now() - 3600)
        agent_of()("Go")
    forked(3)
    agent_of("fork")("Go")
    assert 0 < detail("fork").execution.duration_seconds < 600
    assert asyncio.run(handle("fork").status()).value == "COMPLETED"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_c39_a_fork_without_a_change_logs_no_drift(at: int, caplog: pytest.LogCaptureFixture) -> None:
    script = [{"tool": "book", "city": "Rome"}, "Done."]
    backend = connect("sqlite:///runs.db")
    spec = contract_agent.spec_with(folder=".", script=script)
    origin = backend.sync.dispatch(spec, "Go", execution_id="trip")
    origin.result(30)
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        assert str(origin.fork(at=at, execution_id="fork").result(30)) == "Done.\n"
    asyncio.run(backend.close())
    assert "execution_id=<fork>" in caplog.text
    assert "drift" not in caplog.text
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [each for each in warnings if "execution_id=<" in each], "workers of other stores may log, too"


def test_c39_a_fork_at_its_end_is_completed_and_returns_what_the_origin_returned() -> None:
    agent_of()("Go")
    forked()
    assert str(agent_of("fork", script=[])("Go")) == "Done.\n"
    assert booked() == ["Paris", "Rome"]


def test_c39_a_fork_of_a_fork_may_go_back_further() -> None:
    agent_of()("Go")
    forked(4)
    forked(1, "third", of="fork")
    agent_of("third")("Go")
    assert booked() == ["Paris", "Rome", "Paris", "Rome"]
    assert detail("third").origin.execution_id == "fork"


def test_c39_large_bytes_are_not_copied_and_outlive_the_origin() -> None:
    agent_of()("Go")
    forked(4)
    assert rows("SELECT count(*) FROM blobs") == [(1,)]
    asyncio.run(connect("sqlite:///runs.db?worker=off").remove("trip"))
    agent = agent_of("fork")
    agent("Go")
    assert agent.messages[2]["content"][0]["toolResult"]["content"][1] == IMAGE
    asyncio.run(connect("sqlite:///runs.db?worker=off").remove("fork"))
    assert rows("SELECT count(*) FROM blobs") == [(0,)]


def test_c39_a_changed_agent_takes_up_a_fork_and_what_changed_is_recorded(caplog: pytest.LogCaptureFixture) -> None:
    agent_of(system_prompt="Be brief.")("Go")
    forked(3)
    with caplog.at_level(logging.WARNING):
        agent_of("fork", system_prompt="Be kind.")("Go")
    assert "agent changed, resuming" in caplog.text
    (change,) = detail("fork").origin.drift
    assert "system prompt" in change
    assert detail("trip").origin is None


def test_c39_after_its_first_step_a_fork_is_an_execution_like_any_other() -> None:
    agent_of(system_prompt="Be brief.")("Go")
    forked(1)
    with pytest.raises(EventLoopException, match="no more"):
        agent_of("fork", system_prompt="Be kind.", script=_failing)("Go")
    with pytest.raises(errors.DriftError):
        agent_of("fork", system_prompt="Be rude.")("Go")


def _failing(turn: int, messages: Any) -> Any:
    if turn == 2:
        raise RuntimeError("no more")
    return SCRIPT[turn]


def test_c39_state_and_messages_are_those_of_the_agent_that_the_step_belongs_to() -> None:
    def inner() -> Agent:
        return Agent(
            name="helper", description="Helps.", model=ScriptedModel([call("book", city="Oslo"), "Helped."]), tools=[book],
            callback_handler=None,
        )  # fmt: skip

    script = [call("helper", input="Help"), "Done."]
    agent_of(script=script, tools=[inner()])("Go")
    steps = detail("trip").steps
    (inside,) = [step.ordinal for step in steps if step.name == "book"]
    point = asyncio.run(handle().fork_point(inside))
    assert point.state == {"last": "Oslo"}
    assert "/" in point.scope, "inside the root call"
    forked(inside, state={"last": "Rome"}, messages=[{"role": "user", "content": [{"text": "Stop."}]}])
    agent_of("fork", script=script, tools=[inner()])("Go")
    assert booked() == ["Oslo", "Oslo"], "the helper begins its conversation again"


def test_c39_a_prompt_at_the_beginning_replaces_the_first_one() -> None:
    agent_of()("Go")
    forked(0, prompt="Go slowly", state={"mood": "calm"})
    agent = agent_of("fork")
    agent("Go slowly")
    assert agent.messages[0]["content"] == [{"text": "Go slowly"}]
    assert agent.state.get("mood") == "calm"
    with pytest.raises(errors.InputMismatchError):
        agent_of("fork")("Go")


def test_c39_a_prompt_after_the_end_is_another_turn_of_the_same_call() -> None:
    agent_of()("Go")
    forked(prompt="And now?")
    agent = agent_of("fork", script=[*SCRIPT, "More."])
    assert str(agent("Go")) == "More.\n"
    assert [message["role"] for message in agent.messages[-3:]] == ["assistant", "user", "assistant"]
    assert booked() == ["Paris", "Rome"]


def test_c39_a_prompt_in_the_middle_is_refused_with_the_steps_that_would_do() -> None:
    agent_of()("Go")
    with pytest.raises(errors.ForkError, match=r"step 3 does not end a turn.*Steps that end one: 5\."):
        forked(3, prompt="And now?")
    assert rows("SELECT count(*) FROM executions") == [(1,)]


@pytest.mark.parametrize(
    "given",
    [
        {"at": "2"},
        {"at": True},
        {"at": 2.0},
        {"state": 5},
        {"state": [["a", 1]]},
        {"state": {1: 2}},
        {"messages": 5},
        {"messages": "text"},
        {"by": 5},
    ],
)
def test_c39_what_has_another_type_is_refused_by_its_name(given: dict[str, Any]) -> None:
    agent_of()("Go")
    (name,) = given
    with pytest.raises(TypeError, match=f"^{name} must be .* not "):
        forked(**{"at": 2, **given})
    with pytest.raises(errors.ForkError, match="no finished step -1"):
        forked(at=-1)
    assert rows("SELECT execution_id FROM executions") == [("trip",)]


def test_c39_earlier_root_calls_are_kept_whole() -> None:
    agent = agent_of(script=[*SCRIPT, "Again.", "Never."])
    agent("Go")
    agent("And again")
    forked(6)
    again = agent_of("fork", script=[*SCRIPT, "Again.", "Third."])
    assert [str(again("Go")), str(again("And again")), str(again("More"))] == ["Done.\n", "Again.\n", "Third.\n"]
    assert booked() == ["Paris", "Rome"]


def test_c39_a_changed_turn_is_followed_by_no_call_that_had_begun_after_it() -> None:
    agent = agent_of(script=[*SCRIPT, "Again."])
    agent("Go")
    agent("And again")
    forked(5, prompt="And now?")
    again = agent_of("fork", script=[*SCRIPT, "More.", "Most."])
    assert [str(again("Go")), str(again("Another"))] == ["More.\n", "Most.\n"]


def test_c39_what_was_cancelled_while_it_asked_asks_the_same_again() -> None:
    @tool(context=True)
    def approve(tool_context: ToolContext) -> str:
        """Ask a person."""
        return str(tool_context.interrupt("approval"))

    def asking(execution_id: str) -> Agent:
        return agent_of(execution_id, script=[call("approve"), "Done."], tools=[approve])

    (asked,) = asking("trip")("Go").interrupts
    asyncio.run(handle().cancel())
    forked()
    agent = asking("fork")
    assert [found.id for found in agent("Go").interrupts] == [asked.id]
    assert str(agent([{"interruptResponse": {"interruptId": asked.id, "response": "yes"}}])) == "Done.\n"


def test_c39_only_the_current_run_is_forked() -> None:
    agent_of()("Go")
    agent_of(durable={"on_completed": "restart"})("Go")
    with pytest.raises(errors.ForkError, match=r"step 3 belongs to an earlier run.*6 to 10; 0 is the beginning"):
        forked(3)
    forked(0)
    agent_of("fork")("Go")
    assert booked() == ["Paris", "Rome"] * 3
    assert detail("fork").origin.run == 1


def test_c39_what_is_no_longer_recorded_is_refused() -> None:
    agent_of()("Go")
    stores.close()
    with closing(sqlite3.connect("runs.db")) as connection:
        connection.execute("DELETE FROM past_heads")
        connection.commit()
    with pytest.raises(errors.ForkError, match="no record of step 3 as a whole"):
        forked(3)
    forked(5)


def test_c39_a_file_of_an_earlier_format_has_no_past_to_fork() -> None:
    agent_of()("Go")
    stores.close()
    with closing(sqlite3.connect("runs.db")) as connection:  # as an upgrade from format 4 leaves it
        connection.executescript("DELETE FROM past_heads; DELETE FROM past_state; UPDATE heads SET version = 0;")
    with pytest.raises(errors.ForkError, match="no record of step 3 as a whole"):
        forked(3)
    forked()


@pytest.mark.parametrize("point", ["fork:before", "fork:after"])
def test_c39_a_fork_that_is_killed_is_there_as_a_whole_or_not_at_all(point: str, tmp_path: Path) -> None:
    run(_run, str(tmp_path)).checked()
    killed = run(_fork_and_die, str(tmp_path), point)
    assert killed.exitcode == -signal.SIGKILL
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        found = connection.execute("SELECT execution_id FROM executions ORDER BY id").fetchall()
        calls = connection.execute("SELECT count(*) FROM calls").fetchone()
    assert (len(found), *calls) == ((1, 1) if point.endswith("before") else (2, 2))
    again = run(_fork, str(tmp_path))
    if point.endswith("before"):
        again.checked()
    else:
        assert again.error is not None
        assert again.error[0] == "ExecutionExistsError"
    assert run(_run, str(tmp_path), "fork").checked() == ["Paris", "Rome", "Rome"]


def _run(folder: str, execution_id: str = "trip") -> list[str]:
    os.chdir(folder)
    agent_of(execution_id)("Go")
    return booked()


def _fork(folder: str) -> None:
    os.chdir(folder)
    forked(3)


def _fork_and_die(folder: str, point: str) -> None:
    with CrashPoints().crashing(f"{point}@1"):
        _fork(folder)
