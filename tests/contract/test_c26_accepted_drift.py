"""C26: a run whose agent has changed is no dead end: the difference is shown and can be accepted, a version can be declared."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import BeforeInvocationEvent

from strands_durable import durable_agent, errors
from strands_durable._dispatch import registry
from strands_durable._dispatch.worker import Worker
from strands_durable._sqlite.catalog import Catalog
from tests.commands import cli
from tests.dispatched import agent_of, ask_to_stop, backend, kill, result, status, stop, version, worker
from tests.script import ledger
from tests.waiting import until

ENV = {"STRANDS_DURABLE_BACKEND": "runs.db"}


def note_of(execution_id: str = "run") -> str | None:
    return Catalog("runs.db").execution(execution_id).execution.note


def runs_of(name: str) -> int:
    return len([entry for entry in ledger.read() if entry.get("name") == name])


def tool_attempts(handle: Any) -> list[tuple[str, int]]:
    return [(step.name, step.attempt) for step in asyncio.run(handle.steps()) if step.kind == "tool"]


def dispatched(agent: Any, execution_id: str = "run") -> Any:
    return asyncio.run(backend().dispatch(agent.spec, "Go", execution_id=execution_id))


def work_until(done: Any) -> None:
    """Work in this process until ``done``."""

    async def main() -> None:
        ends = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve()).run(ends, 5.0))
        while not done():
            await asyncio.sleep(0.01)
        ends.set()
        await working

    asyncio.run(asyncio.wait_for(main(), 30))


def is_over() -> bool:
    return Catalog("runs.db").execution("run").execution.status.value in ("COMPLETED", "FAILED")


def test_c26_what_changed_in_the_agent_is_shown_in_every_view(caplog: pytest.LogCaptureFixture) -> None:
    handle = dispatched(version("Be good."))
    version("Be very good.")
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        work_until(note_of)
    assert "the system prompt changed: @@ -1 +1 @@ -Be good. +Be very good." in caplog.text
    for command in (("show", "run"), ("ls", "--waiting")):
        text = cli(*command, env=ENV).stdout
        assert "- the system prompt changed:" in text
        assert "-Be good.\n" in text
        assert "+Be very good.\n" in text
        assert "strands-durable resume run --accept-drift" in text
    assert "waits for a worker with its version of the agent" in cli("ls", "--waiting", env=ENV).stdout
    assert json.loads(cli("ls", "--waiting", "--json", env=ENV).stdout)[0]["waits_for"] == "version"
    assert len(cli("ls", env=ENV).stdout.splitlines()) == 4, "one line for the note"
    with pytest.raises(TimeoutError, match=r"(?s)is still PENDING after 0\.1 s; agent 'versioned'.*\+Be very good\."):
        result(handle, 0.1)


def test_c26_accepted_drift_runs_no_finished_tool_again_and_belongs_to_the_version_that_took_it() -> None:
    handle = dispatched(version("one"))
    one = worker(version="one")
    until(Path("waiting").exists)
    ask_to_stop(one)
    Path("go").touch()
    one.join().checked()
    two = worker(version="two")
    until(note_of)
    assert status("run") == "RUNNING"
    assert cli("resume", "run", "--accept-drift", env=ENV).stdout.startswith("Requested. Next: ")
    assert str(result(handle)) == "two!\n"
    stop(two)
    assert tool_attempts(handle) == [("wait_for", 1)]
    adopted = backend().store.read("SELECT fingerprint FROM dispatches")
    assert adopted == [(version("two").spec.fingerprint,)]


def test_c26_accepting_drift_for_all_takes_what_waits_for_it_and_what_failed() -> None:
    for name in ("run", "run-2"):
        dispatched(version("one"), name)
    other = version("two")
    work_until(lambda: note_of("run") and note_of("run-2"))
    dispatched(other, "waits-for-a-worker")
    without = cli("resume", "--since", "1h", "--dry-run", "--json", env=ENV)
    assert json.loads(without.stdout) == []
    shown = json.loads(cli("resume", "--accept-drift", "--since", "1h", "--dry-run", "--json", env=ENV).stdout)
    assert {record["execution_id"] for record in shown} == {"run", "run-2"}
    Path("go").touch()
    done = json.loads(cli("resume", "--accept-drift", "--since", "1h", "--yes", "--json", env=ENV).stdout)
    assert (sorted(done["resumed"]), done["skipped"], done["failed"]) == (["run", "run-2"], [], [])


def test_c26_a_worker_that_dies_after_drift_was_accepted_is_replaced_by_its_own_version_only() -> None:
    handle = dispatched(version("one"))
    version("two")
    work_until(note_of)
    asyncio.run(handle.resume(accept_drift=True))
    two = worker(version="two")
    until(Path("waiting").exists)
    kill(two)
    three = worker(version="three")
    until(note_of)
    assert "two" in str(note_of())
    Path("go").touch()
    again = worker(version="two")
    assert str(result(handle)) == "two!\n"
    stop(three, again)


@tool
def extra() -> str:
    """A tool that comes with a server."""
    return "extra"


def changing(on_drift: Any = None) -> Any:
    """Register an agent whose tools change without a change of its spec, as those of a server do."""

    @durable_agent(name="changing", on_drift=on_drift)
    def factory() -> Agent:
        agent = agent_of([{"tool": "book", "city": "Paris"}, {"tool": "approve", "what": "trip"}, "Done."])

        def grow(event: BeforeInvocationEvent) -> None:
            if Path("grown").exists():
                agent.tool_registry.process_tools([extra])

        agent.add_hook(grow, BeforeInvocationEvent)
        return agent

    return factory


def test_c26_a_run_that_failed_of_drift_is_resumed_where_it_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    handle = dispatched(changing())
    work_until(lambda: Catalog("runs.db").execution("run").execution.status.value == "SUSPENDED")
    (question,) = asyncio.run(handle.interrupts())
    asyncio.run(handle.respond({question.interrupt_id: "yes"}))
    Path("grown").touch()
    for _ in range(2):
        work_until(is_over)
        with pytest.raises(errors.ExecutionFailedError, match="tool 'extra' is new") as caught:
            result(handle)
        assert isinstance(caught.value.__cause__, errors.DriftError)
        assert "--accept-drift" in str(caught.value.__cause__)
        asyncio.run(handle.resume())
    asyncio.run(handle.resume(accept_drift=True))
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        work_until(is_over)
    assert str(result(handle)) == "Done.\n"
    assert runs_of("book") == 1
    assert "tool 'extra' is new" in caplog.text


def test_c26_an_agent_that_is_something_else_now_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = dispatched(version("one"))
    monkeypatch.delitem(registry.agents, "versioned")

    @durable_agent(name="versioned")
    def versioned() -> Any:
        from strands.multiagent import GraphBuilder

        builder = GraphBuilder()
        builder.add_node(agent_of(["Hi."]), "only")
        return builder.build()

    asyncio.run(handle.resume(accept_drift=True))
    work_until(is_over)
    with pytest.raises(errors.ExecutionFailedError, match="it was a agent, now it is a graph"):
        result(handle)


def test_c26_drift_of_an_inline_execution_is_for_its_script_to_accept() -> None:
    from tests.script import in_new_process

    in_new_process(["Hi."], ["Go"]).checked()
    refused = cli("resume", "trip", "--accept-drift", env=ENV)
    assert refused.exit_code == 1
    assert 'Durability(..., on_drift="warn")' in refused.stderr


# version=


def test_c26_what_was_edited_under_the_same_version_resumes_the_run_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handle = dispatched(version("one", version="7"))
    one = worker(version="one", declared="7")
    until(Path("waiting").exists)
    ask_to_stop(one)
    Path("go").touch()
    one.join().checked()
    assert version("two", version="7").spec.fingerprint == version("one", version="7").spec.fingerprint
    version("two", version="7")
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        work_until(is_over)
    assert str(result(handle)) == "two!\n"
    assert tool_attempts(handle) == [("wait_for", 1)]
    assert "agent changed, resuming" in caplog.text
    assert "-one +two" in caplog.text


def test_c26_another_declared_version_is_left_to_a_worker_that_has_it() -> None:
    dispatched(version("one", version="7"))
    version("one", version="8")
    work_until(note_of)
    assert "was dispatched as version '7', here it is version '8'" in str(note_of())
    assert "the parts that are recorded are the same" in str(note_of())


def test_c26_a_declared_version_with_on_drift_raise_stops_at_an_edit() -> None:
    handle = dispatched(version("one", version="7"))
    one = worker(version="one", declared="7")
    until(Path("waiting").exists)
    ask_to_stop(one)
    Path("go").touch()
    one.join().checked()
    version("two", version="7", on_drift="raise")
    work_until(is_over)
    with pytest.raises(errors.ExecutionFailedError, match="system prompt changed"):
        result(handle)


@pytest.mark.parametrize("wrong", ["", " ", 7, ["7"]])
def test_c26_a_version_is_a_text(wrong: Any) -> None:
    with pytest.raises(TypeError, match="version of agent 'versioned' must be a string"):
        version("one", version=wrong)


def test_c26_a_worker_says_how_each_run_ended_and_failures_also_when_quiet(caplog: pytest.LogCaptureFixture) -> None:
    from tests.dispatched import scripted

    scripts: dict[str, list[Any]] = {
        "done": ["Hi."],
        "asks": [{"tool": "approve", "what": "a\n2026-01-01 | ERROR | forged"}, "Done."],
        "broken": [],
    }
    for name, script in scripts.items():
        asyncio.run(backend().dispatch(scripted.spec_with(script=script), "Go", execution_id=name))
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        work_until(
            lambda: (
                {record.status.value for record in Catalog("runs.db").executions()}
                == {"COMPLETED", "SUSPENDED", "FAILED"}
            )
        )
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "execution_id=<done> | execution completed") in found
    assert ("INFO", "execution_id=<asks>, questions=<approval> | execution suspended, waits for answers") in found
    (failed,) = [text for level, text in found if level == "ERROR"]
    assert failed.startswith("execution_id=<broken>, error=<")
    assert failed.endswith("| execution failed")
    assert os.linesep not in failed
