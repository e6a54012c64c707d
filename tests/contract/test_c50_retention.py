"""C50 to C52: what retention removes and what it leaves, contents that go before the record, and executions that are held."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import (
    Durability,
    DurableBackend,
    ExecutionStatus,
    Pruned,
    Retention,
    connect,
    durable_agent,
    errors,
)
from strands_durable._dispatch import retention as workers
from strands_durable._records.counters import counts
from strands_durable._records.retention import RetentionRules
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.open_files import stores
from strands_durable._sqlite.upkeep.retention import Pruner, totals
from strands_durable._sqlite.verification import verified
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, call, forget_process
from tests.commands import cli
from tests.processes import run
from tests.script import answers
from tests.waiting import until

URL = "sqlite:///runs.db?worker=off"
SECRET = "peanut-butter"
PICTURE = {"image": {"format": "png", "source": {"bytes": os.urandom(9_000)}}}
DAY = 86_400.0
OLD = Retention(completed=0, failed=0, cancelled=0)


@tool(context=True)
def remember(what: str, tool_context: ToolContext) -> str:
    """Remember something, and ask about it."""
    tool_context.agent.state.set("secret", what)
    with open("ran", "a") as file:
        file.write("ran\n")
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def agent_of(execution_id: str, *script: Any) -> Agent:
    return Agent(
        model=ScriptedModel([*script]),
        tools=[remember],
        plugins=[Durability("runs.db", execution_id=execution_id)],
        callback_handler=None,
    )


def completed(execution_id: str = "done", words: int = 1) -> Agent:
    agent = agent_of(execution_id, call("remember", what=SECRET), f"It is {SECRET}. " * words)
    result: Any = agent([{"text": f"Remember {SECRET}"}, PICTURE])
    agent(answers(result, SECRET))  # type: ignore[arg-type]
    forget_process()
    return agent


def failed(execution_id: str = "bad") -> None:
    with pytest.raises(ValueError, match="out of order"):
        agent_of(execution_id, Answer(errors=[ValueError(f"{SECRET} is out of order")]))(SECRET)
    forget_process()


def waiting(execution_id: str = "open") -> None:
    agent_of(execution_id, call("remember", what="x"))("Ask")
    forget_process()


def backend() -> DurableBackend:
    return connect(URL)


def prune(retention: Retention | None = None, **options: Any) -> Pruned:
    return backend().sync.prune(retention or OLD, **options)


def statuses() -> dict[str, str]:
    return {record.execution_id: record.status.value for record in Catalog("runs.db").executions()}


def aged(**days: float) -> None:
    """Let executions have changed some days ago."""
    store = stores.open(Path("runs.db").resolve())[0]
    with store.transaction("test") as connection:
        for execution_id, age in days.items():
            connection.update("executions", {"updated_at": time.time() - age * DAY}, "execution_id = ?", execution_id)


def is_sound() -> bool:
    found = verified(Path("runs.db").resolve())
    assert found.problems == ()
    return found.is_sound


def read_bytes() -> bytes:
    stores.close()
    return b"".join(Path(name).read_bytes() for name in os.listdir() if name.startswith("runs.db"))


# C50


def test_c50_what_ended_long_ago_is_removed_and_what_has_not_ended_stays() -> None:
    completed("old"), completed("young"), failed("bad"), waiting("open")
    aged(old=31, young=29, bad=31, open=400)
    found = prune(Retention(completed="30d", failed="90d"))
    assert (found.removed, found.emptied, found.held) == (1, 0, 0)
    assert statuses() == {"young": "COMPLETED", "bad": "FAILED", "open": "SUSPENDED"}
    with pytest.raises(errors.ExecutionNotFoundError):
        backend().sync.get("old")
    assert prune(Retention(completed="30d", failed=timedelta(days=30))).removed == 1
    assert prune().removed == 1
    assert statuses() == {"open": "SUSPENDED"}
    assert is_sound()
    assert totals(stores.open(Path("runs.db").resolve())[0]) == (3, 0)


def test_c50_the_text_and_the_bytes_are_gone_and_the_file_is_smaller() -> None:
    for number in range(8):
        completed(f"run-{number}", words=3_000)
    before = len(read_bytes())
    assert SECRET.encode() in read_bytes()
    counted = counts["pruned", "executions", ""]
    found = prune()
    assert (found.removed, found.freed_bytes > 8 * 8192) == (8, True)
    assert counts["pruned", "executions", ""] == counted + 8
    after = read_bytes()
    assert SECRET.encode() not in after
    assert len(after) < before / 2, (len(after), before)
    assert is_sound()


@pytest.mark.long
def test_c50_what_was_given_back_is_what_the_file_loses_once_no_reader_is_in_the_way() -> None:
    for number in range(8):
        completed(f"run-{number}", words=3_000)
    stores.close()
    before = os.stat("runs.db").st_size
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM executions").fetchone()
        found = prune()
        assert os.stat("runs.db").st_size == before
    assert found.freed_bytes > 0
    stores.close()
    assert before - os.stat("runs.db").st_size == found.freed_bytes


def test_c50_a_file_of_an_earlier_format_becomes_smaller_when_it_is_rebuilt() -> None:
    stored = Path(__file__).parents[1] / "stores" / "format_7.sqlite"
    Path("runs.db").write_bytes(stored.read_bytes())
    for number in range(4):
        completed(f"run-{number}", words=3_000)
    found = prune()
    assert (found.removed, found.freed_bytes) == (6, 0)
    size = os.stat("runs.db").st_size
    assert cli("prune", "--completed", "1s", "--rebuild", "--backend", "runs.db").exit_code == 0
    stores.close()
    assert os.stat("runs.db").st_size < size
    with closing(sqlite3.connect("runs.db")) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert is_sound()


def test_c50_an_agent_may_have_its_own_retention() -> None:
    completed("one")
    aged(one=10)
    assert prune(Retention(completed="5d"), agents={"default": Retention(completed="20d")}, dry_run=True).removed == 0
    assert prune(Retention(), agents={"default": Retention(completed="5d")}, dry_run=True).removed_ids == ("one",)
    rules = RetentionRules.of(["completed=5d", "default:completed=20d,contents=1d"])
    assert rules.of_agent("default") == Retention(completed="20d", contents="1d")
    assert rules.of_agent("other") == Retention(completed="5d")

    @durable_agent(name="c50-own", retention=Retention(completed="1h"))
    def own() -> Agent:
        return Agent(model=ScriptedModel(["Hi."]), callback_handler=None)

    assert workers.with_agents(rules).of_agent("c50-own") == Retention(completed="1h")
    assert own.on(URL).retention == Retention(completed="1h")


@pytest.mark.parametrize("text", ["completed", "done=3d", "completed=3", "completed=1d,completed=2d", "contents=-1d"])
def test_c50_a_rule_that_is_none_is_refused(text: str) -> None:
    completed()
    assert cli("prune", "--retention", text, "--backend", "runs.db").exit_code == 2
    with pytest.raises(ValueError, match=r"duration|rule"):
        Retention.of(text)
    assert cli("prune", "--backend", "runs.db").exit_code == 2


def test_c50_rules_that_are_given_apart_add_up_and_two_for_one_thing_are_refused() -> None:
    rules = RetentionRules.of(["completed=30d", "failed=90d", "planner:completed=7d", "planner:contents=1d"])
    assert rules.default == Retention(completed="30d", failed="90d")
    assert rules.agents == {"planner": Retention(completed="7d", contents="1d")}
    for twice in (["completed=30d", "completed=90d"], ["planner:failed=1d", "failed=2d", "planner:failed=3d"]):
        with pytest.raises(ValueError, match="is a second rule for"):
            RetentionRules.of(twice)
    completed("one"), failed("two")
    asked = ["--retention", "completed=0s", "--retention", "failed=0s", "--dry-run", "--json", "--backend", "runs.db"]
    assert json.loads(cli("prune", *asked).stdout)["removed_ids"] == ["one", "two"]
    assert cli("prune", "--retention", "completed=0s", *asked).exit_code == 2


def test_c50_a_dry_run_names_what_would_be_removed_and_changes_nothing() -> None:
    completed("one"), failed("two"), waiting("three")
    before = read_bytes()
    found = cli("prune", "--completed", "0s", "--contents", "0s", "--dry-run", "--json", "--backend", "runs.db")
    assert json.loads(found.stdout) == {
        "dry_run": True, "removed": 1, "emptied": 1, "held": 0, "failed": 0, "freed_bytes": 0,
        "removed_ids": ["one"], "emptied_ids": ["two"],
    }  # fmt: skip
    assert read_bytes() == before
    done = cli("prune", "--completed", "0s", "--contents", "0s", "--backend", "runs.db")
    assert done.stdout.startswith("Removed 1 executions, and the contents of 1; ")
    assert done.stdout.endswith(" MB of free pages were given back.\n")


def test_c50_one_process_at_a_time_makes_a_pass() -> None:
    completed()
    store = stores.open(Path("runs.db").resolve())[0]
    pruner = Pruner(store, RetentionRules(default=OLD))
    assert pruner._claimed(0.0)
    assert Pruner(store, RetentionRules(default=OLD)).run() is None
    with pytest.raises(errors.BackendUnavailableError, match="another process is applying retention"):
        prune()
    pruner._release()
    assert Pruner(store, RetentionRules(default=OLD)).run(3_600) is None  # one was made a moment ago
    assert prune().removed == 1


def test_c50_a_worker_applies_the_rules_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    completed("old"), completed("young")
    aged(old=31)

    async def work() -> None:
        found, stop = connect(URL), asyncio.Event()
        found.retain(Retention(completed="30d"))
        worker = asyncio.create_task(found.work(stop=stop))
        while len(statuses()) == 2:
            await asyncio.sleep(0.01)
        stop.set()
        await worker

    with caplog.at_level(logging.INFO):
        asyncio.run(work())
    assert statuses() == {"young": "COMPLETED"}
    until(lambda: "removed=<1>" in caplog.text)
    workers.retentions.set(Path("runs.db").resolve(), RetentionRules())


def test_c50_one_that_changes_before_its_turn_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    completed("one"), completed("two")
    store = stores.open(Path("runs.db").resolve())[0]
    pruner = Pruner(store, RetentionRules(default=OLD))
    (batch,) = list(pruner._batches())
    backend().sync.get("one").hold()
    aged(two=-1)
    assert pruner._marked(batch) == (0, 0)
    assert set(statuses()) == {"one", "two"}


def test_c50_a_damaged_execution_is_left_and_counted() -> None:
    completed("one"), completed("two")
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        connection.execute("UPDATE executions SET kind = 'x' WHERE execution_id = 'one'")
    found = prune()
    assert (found.removed, found.failed) == (1, 1)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("temporal://localhost:7233", "retention period of the namespace"),
        ("lambda://function:live", "RetentionPeriodInDays"),
        ("dapr://127.0.0.1:50001", "rm --older-than"),
    ],
    ids=["temporal", "lambda", "dapr"],
)
def test_c50_on_other_engines_the_error_says_what_does_it(url: str, what: str) -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match=what):
        asyncio.run(connect(url).prune(OLD))
    with pytest.raises(errors.UnsupportedFeatureError, match=what):
        connect(url).retain(OLD)


# Kills


def _pass(folder: str, point: str | None) -> list[str]:
    os.chdir(folder)
    points = CrashPoints()
    with points.recording() if point is None else points.crashing(point):
        prune(Retention(completed=0, contents=0))
    return points.reached


@pytest.mark.long
def test_c50_a_kill_inside_a_pass_leaves_every_execution_whole_or_gone() -> None:
    completed("run"), failed("bad")
    stores.close()
    whole = Path("runs.db").read_bytes()
    reached = run(_pass, os.getcwd(), None).checked()
    assert {point.split(":")[0] for point in reached} >= {"retention", "remove.piece", "contents.piece", "shrink"}
    for point in (each for each in reached if "claim" not in each and "end" not in each):
        for name in os.listdir():
            if name.startswith("runs.db"):
                os.unlink(name)
        Path("runs.db").write_bytes(whole)
        assert run(_pass, os.getcwd(), point).exitcode == -signal.SIGKILL, point
        assert is_sound(), point
        for execution_id in statuses():
            record = Catalog("runs.db").execution(execution_id).execution
            assert record.unreadable is None
        found = run(_pass, os.getcwd(), None)
        assert found.exitcode == 0, found.error
        assert statuses() == {"bad": "FAILED"}
        assert is_sound()
        assert SECRET.encode() not in read_bytes(), point


# C51


def test_c51_contents_go_and_the_record_stays() -> None:
    completed()
    before = Catalog("runs.db").execution("done")
    assert prune(Retention(contents=0)).emptied == 1
    after = Catalog("runs.db").execution("done")
    assert SECRET.encode() not in read_bytes()
    assert after.execution.contents_removed_at is not None
    for name in ("status", "steps", "calls", "created_at", "updated_at", "tokens", "duration_seconds", "tags", "agent"):
        assert getattr(after.execution, name) == getattr(before.execution, name), name
    assert [(step.key, step.status, step.usage) for step in after.steps] == [
        (step.key, step.status, step.usage) for step in before.steps
    ]
    assert {step.result for step in after.steps} == {None}
    assert is_sound()
    assert prune(Retention(contents=0)).emptied == 0
    assert "removed by retention" in cli("show", "done", "--backend", "runs.db").stdout
    assert prune().removed == 1
    assert statuses() == {}
    assert is_sound()


def test_c51_a_repeated_call_says_so_and_runs_nothing() -> None:
    completed()
    ran = Path("ran").read_text()
    prune(Retention(contents=0))
    forget_process()
    for given in ([{"text": f"Remember {SECRET}"}, PICTURE], "Another", None):
        with pytest.raises(errors.ContentsRemovedError, match="It was not run again"):
            agent_of("done", call("remember", what=SECRET), "Again.")(given)
        forget_process()
    assert Path("ran").read_text() == ran
    assert statuses() == {"done": "COMPLETED"}


@durable_agent(name="c51-greeter")
def greeter() -> Agent:
    return Agent(model=ScriptedModel(["Hello."]), callback_handler=None)


@durable_agent(name="c51-failing")
def failing() -> Agent:
    return Agent(model=ScriptedModel([Answer(errors=[ValueError("out of order")])]), callback_handler=None)


def test_c51_a_handle_and_a_repeated_dispatch_say_so() -> None:
    async def dispatched() -> None:
        found, stop = connect(URL), asyncio.Event()
        worker = asyncio.create_task(found.work(stop=stop))
        handle = await greeter.on(found).dispatch_async("Hi", execution_id="hi")
        await handle.result(20)
        bad = await failing.on(found).dispatch_async("Hi", execution_id="bad")
        with pytest.raises(errors.ExecutionFailedError):
            await bad.result(20)
        await found.prune(Retention(contents=0))
        for one in (handle, bad):
            for asked in (one.result(5), one.resume(), one.interrupts(), one.respond({"x": 1}), anext(one.stream())):
                with pytest.raises(errors.ContentsRemovedError):
                    await asked
            with pytest.raises(errors.ContentsRemovedError):
                await greeter.on(found).dispatch_async("Hi", execution_id=one.execution_id)
        assert await handle.status() is ExecutionStatus.COMPLETED
        assert await bad.status() is ExecutionStatus.FAILED
        stop.set()
        await worker

    asyncio.run(dispatched())
    assert is_sound()
    assert cli("resume", "bad", "--backend", "runs.db").exit_code == 1
    assert b"Hello." not in read_bytes()


# C52


def test_c52_what_is_held_is_not_removed_by_retention_or_rm() -> None:
    completed("kept"), completed("other")
    assert cli("hold", "kept", "--backend", "runs.db").stdout == "kept is held.\n"
    assert cli("hold", "kept", "--backend", "runs.db").exit_code == 0
    found = prune(Retention(completed=0, contents=0))
    assert (found.removed, found.emptied, found.held) == (1, 0, 1)
    with pytest.raises(errors.ExecutionHeldError, match="strands-durable release kept"):
        backend().sync.remove("kept")
    refused = cli("rm", "--status", "completed", "--yes", "--json", "--backend", "runs.db")
    report = json.loads(refused.stdout)
    assert (refused.exit_code, report["removed"], report["failed"][0]["execution_id"]) == (1, [], "kept")
    (listed,) = json.loads(cli("ls", "--json", "--backend", "runs.db").stdout)
    assert (listed["is_held"], listed["contents_removed_at"]) == (True, None)
    assert "neither retention nor rm removes it" in cli("show", "kept", "--backend", "runs.db").stdout
    assert cli("release", "kept", "--backend", "runs.db").stdout == "kept is no longer held.\n"
    assert prune().removed == 1


def test_c52_an_id_that_is_unknown_cannot_be_held() -> None:
    completed()
    assert cli("hold", "unknown", "--backend", "runs.db").exit_code == 3
    with pytest.raises(errors.UnsupportedFeatureError, match="Holding"):
        asyncio.run(_hold_in_memory())


async def _hold_in_memory() -> None:
    found = connect("memory://c52")
    handle = await greeter.on(found).dispatch_async("Hi", execution_id="hi")
    await handle.hold()
