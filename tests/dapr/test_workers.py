"""Workers on Dapr: many executions without a thread each, gentle leaving, refusals, long histories and logs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from strands_durable import ExecutionStatus, errors
from strands_durable._enginekit.key_value.head import Head
from strands_durable._enginekit.key_value.log import KeyValueLog
from strands_durable._enginekit.key_value.worker import KeyValueWorker
from strands_durable.backends.dapr import _step_events
from strands_durable.testing import agents
from strands_durable.testing.contract._bench import BOOK, WAIT
from tests.dapr.running import DaprBench

S = ExecutionStatus
ASK = {"tool": "approve", "what": "trip"}
MANY = 200


def head(bench: DaprBench, execution_id: str = "trip") -> Head:
    found: Head = bench.run(bench.backend.head(execution_id))
    return found


def together(bench: DaprBench, asking: list[Any]) -> list[Any]:
    """Wait for many answers, some at a time."""
    gate = asyncio.Semaphore(20)

    async def one(each: Any) -> Any:
        async with gate:
            return await each

    async def every() -> list[Any]:
        return list(await asyncio.gather(*(one(each) for each in asking)))

    found: list[Any] = bench.run(every())
    return found


def test_hundreds_of_executions_run_at_a_time_on_one_worker_without_a_thread_each(bench: DaprBench) -> None:
    script: list[Any] = [{"tool": "approve", "what": "all"}, "Done."]
    others = threading.active_count()  # of earlier tests
    with bench.worker(concurrency=MANY):
        spec = agents.contract_agent.spec_with(folder=bench.folder, script=script)
        ids = [f"run-{number}" for number in range(MANY)]
        handles = together(bench, [bench.backend.dispatch(spec, "Go", execution_id=each) for each in ids])
        asked = together(bench, [handle.result(120) for handle in handles])
        assert threading.active_count() - others < 60
        answers = [{result.interrupts[0].id: "yes"} for result in asked]
        together(bench, [handle.respond(answer) for handle, answer in zip(handles, answers, strict=True)])
        assert {str(result) for result in together(bench, [handle.result(120) for handle in handles])} == {"Done.\n"}
    assert len(bench.marks("approve")) == 2 * MANY
    assert len(bench.run(bench.backend.list(limit=10))) == 10


def test_more_executions_than_a_worker_may_run_wait_for_a_slot(bench: DaprBench) -> None:
    with bench.worker(concurrency=2):
        handles = [bench.dispatch(WAIT, "Done.", execution_id=f"run-{number}") for number in range(5)]
        bench.until_waiting(2)
        statuses = [bench.status(handle) for handle in handles]
        assert statuses.count(S.RUNNING) == 2
        bench.touch()
        assert [str(bench.result(handle)) for handle in handles] == ["Done.\n"] * 5
    assert len(bench.marks("wait")) == 5


def test_a_worker_that_is_stopped_ends_its_step_and_the_next_one_continues(bench: DaprBench) -> None:
    def start() -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "strands_durable",
            "worker",
            agents.__name__,
            "--backend",
            bench.url(),
            "--quiet",
        ]
        return subprocess.Popen(command)

    worker = start()
    handle = bench.dispatch(WAIT, BOOK, "Done.")
    bench.until_waiting()
    worker.send_signal(signal.SIGTERM)
    bench.touch()
    assert worker.wait(30) == 0
    assert bench.status(handle) in (S.PENDING, S.RUNNING)
    assert head(bench).owner is None, "it was left in order"
    assert bench.booked() == []
    worker = start()
    try:
        assert str(bench.result(handle)) == "Done.\n"
    finally:
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait(30)
    assert len(bench.marks("wait")) == 1


def test_what_a_worker_refuses_is_tried_again_after_longer_and_longer_waits(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch_to_nobody(BOOK, "Booked.")
        bench.until(lambda: '"refusals": 3' in bench.shows())
        assert "was dispatched as 000000000000" in bench.shows()
        assert "was dispatched as 000000000000" in str(bench.run(handle.detail()).execution.note)
        assert len(bench.tools.get_workflow_history("trip")) < 12, "it continues as new"
        assert str(bench.result(bench.dispatch("Hi.", execution_id="other"))) == "Hi.\n"
        bench.run(handle.resume(accept_drift=True))
        assert str(bench.result(handle)) == "Booked.\n"


def test_a_workflow_that_has_heard_of_many_steps_continues_with_a_short_history(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_step_events, "MAX_EVENTS", 2)
    with bench.worker():
        handle = bench.dispatch(*({"tool": "wait", "path": f"go-{number}"} for number in range(200)), "Done.")
        bench.until_waiting()

        def has_left_twice() -> bool:
            bench.touch(f"go-{len(bench.marks('wait')) - 1}")
            return len(head(bench).log) > 3

        bench.until(has_left_twice)
        assert len(bench.tools.get_workflow_history("trip")) < 20
        for number in range(200):
            bench.touch(f"go-{number}")
        assert str(bench.result(handle)) == "Done.\n"
    assert len(bench.marks("wait")) == 200, "it left its worker in order: no step was repeated"


def test_an_execution_with_many_epochs_is_compacted_and_keeps_its_conversation(bench: DaprBench) -> None:
    with bench.worker():
        handle = bench.dispatch(*[{"tool": "approve", "what": f"{number}"} for number in range(14)], "Done.")
        longest = 0
        for _ in range(14):
            (question,) = bench.result(handle).interrupts
            longest = max(longest, len(head(bench).log))
            bench.run(handle.respond({question.id: "yes"}))
        assert str(bench.result(handle)) == "Done.\n"
        assert longest <= 22
        assert len(head(bench).log) < 28, "an answer and a worker are an epoch each"
    assert [step.kind for step in bench.run(handle.steps())].count("tool") >= 14


def test_what_was_removed_is_gone_and_its_id_is_free(bench: DaprBench) -> None:
    with bench.worker():
        asks = bench.dispatch(ASK, "Done.")
        bench.result(asks)
        with pytest.raises(errors.ExecutionBusyError, match="is SUSPENDED"):
            bench.run(bench.backend.remove("trip"))
        bench.run(asks.cancel())
        bench.run(bench.backend.remove("trip"))
        with pytest.raises(errors.ExecutionNotFoundError):
            bench.run(bench.backend.get("trip"))
        with pytest.raises(errors.ExecutionNotFoundError):
            bench.run(asks.status())
        assert bench.run(bench.backend.list()) == []
        assert str(bench.result(bench.dispatch("Hi."))) == "Hi.\n"


def test_a_backend_is_used_from_several_loops_one_after_the_other(bench: DaprBench) -> None:
    with bench.worker():
        assert str(bench.result(bench.dispatch("Hi."))) == "Hi.\n"
        for _ in range(3):
            assert str(bench.backend.sync.get("trip").result()) == "Hi.\n"
        assert str(bench.result(bench.run(bench.backend.get("trip")))) == "Hi.\n"


def test_start_runs_a_worker_in_this_process(bench: DaprBench) -> None:
    bench.backend.start()
    assert str(bench.result(bench.dispatch("Hi."))) == "Hi.\n"


def test_a_cancel_that_a_worker_has_not_seen_when_it_suspends_is_not_lost(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def obey(self: KeyValueWorker) -> None:
        """See nothing."""

    monkeypatch.setattr(KeyValueWorker, "obey", obey)
    with bench.worker():
        handle = bench.dispatch(WAIT, ASK, "Done.")
        bench.until(lambda: bench.marks("wait"))
        bench.run(handle.cancel())
        bench.touch("go")
        bench.until(lambda: bench.status(handle) not in (S.PENDING, S.RUNNING, S.SUSPENDED))
        assert bench.status(handle) is S.CANCELLED


def test_what_an_error_has_ended_in_a_worker_that_lives_is_run_again(
    bench: DaprBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, failures = KeyValueLog.append, [errors.BackendUnavailableError("dapr", "the store is being reloaded")]

    async def failing(log: KeyValueLog, execution_id: str, base: Any, changes: Any) -> Head:
        if base is not None and base.owner is not None and failures:
            raise failures.pop()
        return await append(log, execution_id, base, changes)

    monkeypatch.setattr(KeyValueLog, "append", failing)
    with bench.worker():
        assert str(bench.result(bench.dispatch(BOOK, "Done."))) == "Done.\n"
    assert not failures
