"""C1 to C3, C26, C33: what an id means in every state, failures, cancelling, and executions that no worker can run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ... import errors
from .. import agents
from ._bench import BOOK, WAIT, Bench, S

FAILS = {"fails_until": "fixed"}
ASK = {"tool": "approve", "what": "trip"}


class CallsContract:
    """What an id means in every state."""

    # C1, by dispatch

    def test_c01_a_dispatch_starts_what_is_not_there(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, "Booked.")
        assert handle.execution_id == "trip"
        result = bench.result(handle)
        assert (str(result), result.status, result.execution_id) == ("Booked.\n", S.COMPLETED, "trip")
        assert bench.booked() == ["Paris"]
        assert [step.kind for step in bench.run(handle.steps())] == ["model", "tool", "model"]

    def test_c01_a_dispatch_without_an_id_is_a_new_execution(self, bench: Bench) -> None:
        one, other = (bench.dispatch("Hi.", execution_id=None) for _ in range(2))
        assert one.execution_id != other.execution_id
        assert [str(bench.result(handle)) for handle in (one, other)] == ["Hi.\n", "Hi.\n"]

    def test_c01_a_dispatch_attaches_to_one_that_is_pending(self, bench: Bench) -> None:
        handle = bench.dispatch_to_nobody("Hi.")
        again = bench.dispatch_to_nobody("Hi.")
        assert bench.status(handle) is bench.status(again) is S.PENDING
        with pytest.raises(errors.InputMismatchError):
            bench.dispatch_to_nobody("Hi.", prompt="Other")
        bench.until(lambda: len(bench.run(bench.backend.list())) == 1)  # a list may lag behind

    def test_c01_a_dispatch_attaches_to_one_that_runs_and_starts_no_second(self, bench: Bench) -> None:
        first = bench.dispatch(WAIT, "Done.")
        bench.until_waiting()
        assert bench.status(first) is S.RUNNING
        second, without_prompt = bench.dispatch(WAIT, "Done."), bench.dispatch(WAIT, "Done.", prompt=None)
        with pytest.raises(errors.InputMismatchError):
            bench.dispatch(WAIT, "Done.", prompt="Other")
        bench.touch()
        assert [str(bench.result(handle)) for handle in (first, second, without_prompt)] == ["Done.\n"] * 3
        assert len(bench.marks("wait")) == 1
        assert len(bench.marks("model")) == 2

    def test_c01_a_dispatch_attaches_to_one_that_waits_for_a_person(self, bench: Bench) -> None:
        first = bench.result(bench.dispatch(ASK, "Done."))
        assert (first.status, first.stop_reason) == (S.SUSPENDED, "interrupt")
        again = bench.result(bench.dispatch(ASK, "Done."))
        assert again == first
        with pytest.raises(errors.InputMismatchError):
            bench.dispatch(ASK, "Done.", prompt="Other")
        assert (len(bench.marks("approve")), len(bench.marks("model"))) == (1, 1)

    def test_c01_a_dispatch_gives_the_result_of_one_that_has_completed(self, bench: Bench) -> None:
        first = bench.result(bench.dispatch(BOOK, "Booked."))
        again, without_prompt = bench.dispatch(BOOK, "Booked."), bench.dispatch(BOOK, "Booked.", prompt=None)
        assert bench.result(again) == bench.result(without_prompt) == first
        with pytest.raises(errors.InputMismatchError):
            bench.dispatch(BOOK, "Booked.", prompt="Other")
        assert bench.booked() == ["Paris"]
        assert len(bench.marks("model")) == 2

    def test_c01_a_dispatch_raises_for_one_that_has_failed(self, bench: Bench) -> None:
        bench.fails(bench.dispatch(FAILS), errors.ExecutionFailedError)
        with pytest.raises(errors.ExecutionFailedError, match="the model is out of order"):
            bench.dispatch(FAILS)
        with pytest.raises(errors.InputMismatchError):
            bench.dispatch(FAILS, prompt="Other")
        assert len(bench.marks("model")) == 1

    def test_c01_a_dispatch_raises_for_one_that_was_cancelled(self, bench: Bench) -> None:
        handle = bench.dispatch_to_nobody("Hi.")
        bench.run(handle.cancel())
        for prompt in ("Go", "Other", None):
            with pytest.raises(errors.ExecutionCancelledError):
                bench.dispatch_to_nobody("Hi.", prompt=prompt)

    def test_c01_another_agent_or_other_arguments_are_another_input(self, bench: Bench) -> None:
        bench.result(bench.dispatch("Hi."))
        with pytest.raises(errors.InputMismatchError):
            bench.dispatch("Hello.")
        with pytest.raises(errors.InputMismatchError):
            bench.dispatch("Hi.", agent=agents.contract_structured)

    def test_c01_an_id_that_is_none_is_refused(self, bench: Bench) -> None:
        for bad in ("", "a b", "../x", "a" * 201):
            with pytest.raises(errors.DurableError, match="is not a valid execution_id"):
                bench.dispatch("Hi.", execution_id=bad)

    def test_c01_a_handle_is_had_by_its_id_and_an_unknown_one_is_an_error(self, bench: Bench) -> None:
        with pytest.raises(errors.ExecutionNotFoundError):
            bench.run(bench.backend.get("unknown"))
        assert bench.run(bench.backend.list()) == []
        bench.dispatch("Hi.")
        assert str(bench.result(bench.run(bench.backend.get("trip")))) == "Hi.\n"
        with pytest.raises(errors.ExecutionNotFoundError):
            bench.run(bench.backend.get("unknown"))

    def test_c01_executions_are_listed_by_status_and_agent(self, bench: Bench) -> None:
        bench.result(bench.dispatch("Hi.", execution_id="done"))
        bench.result(bench.dispatch(ASK, "Done.", execution_id="asks"))
        bench.dispatch_to_nobody("Hi.", execution_id="waits")

        def ids(**wanted: Any) -> set[str]:
            return {record.execution_id for record in bench.run(bench.backend.list(**wanted))}

        bench.until(lambda: ids() == {"done", "asks", "waits"})  # a list may lag behind
        bench.until(lambda: ids(status=S.SUSPENDED) == {"asks"})
        assert ids(status=S.SUSPENDED) == {"asks"}
        assert ids(status=[S.PENDING, S.COMPLETED]) == {"done", "waits"}
        assert ids(agent="contract_agent") == {"done", "asks", "waits"}
        assert ids(agent="contract_graph") == ids(since=4e9) == set()
        assert len(bench.run(bench.backend.list(limit=2))) == 2

    # C2 and C33

    def test_c02_a_failure_stays_on_record_and_resume_is_a_new_attempt_beside_it(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, FAILS)
        bench.fails(handle, errors.ExecutionFailedError)
        assert bench.status(handle) is S.FAILED
        bench.run(handle.resume())
        bench.fails(handle, errors.ExecutionFailedError)
        bench.touch("fixed")
        bench.run(handle.resume())
        assert str(bench.result(handle)) == "Fixed.\n"
        assert bench.booked() == ["Paris"], "a finished step does not run again"
        (call,) = bench.run(handle.detail()).calls
        assert (call.attempt, [failure.attempt for failure in call.failures]) == (3, [1, 2])
        assert [step.status for step in call.steps if step.number == "2"] == ["failed", "failed", "done"]

    def test_c33_resume_does_nothing_where_there_is_nothing_to_resume(self, bench: Bench) -> None:
        waiting = bench.dispatch_to_nobody("Hi.", execution_id="pending")
        bench.run(waiting.resume())
        assert bench.status(waiting) is S.PENDING
        asks = bench.dispatch(ASK, "Done.", execution_id="asks")
        first = bench.result(asks)
        bench.run(asks.resume())
        assert bench.result(asks) == first
        done = bench.dispatch("Hi.", execution_id="done")
        ended = bench.result(done)
        bench.run(done.resume())
        assert bench.result(done) == ended
        assert len(bench.marks("model")) == 2

    def test_c33_a_failed_execution_may_be_resumed_at_once_and_often(self, bench: Bench) -> None:
        handle = bench.dispatch(FAILS)
        for _ in range(10):
            bench.fails(handle, errors.ExecutionFailedError)
            bench.run(handle.resume())
        bench.fails(handle, errors.ExecutionFailedError)
        assert len(bench.marks("model")) == 11
        (call,) = bench.run(handle.detail()).calls
        assert (call.attempt, len(call.failures)) == (11, 11)

    def test_c33_a_cancelled_execution_is_not_resumed(self, bench: Bench) -> None:
        handle = bench.dispatch_to_nobody("Hi.")
        bench.run(handle.cancel())
        with pytest.raises(errors.ExecutionCancelledError):
            bench.run(handle.resume())

    def test_c33_resume_of_a_graph_runs_the_failed_node_and_no_finished_one(self, bench: Bench) -> None:
        handle = bench.dispatch(FAILS, agent=agents.contract_graph)
        bench.fails(handle, errors.ExecutionFailedError)
        before = len(bench.marks("model"))
        bench.touch("fixed")
        bench.run(handle.resume())
        result = bench.result(handle)
        assert {name: node.text for name, node in result.nodes.items()} == {
            "slow": "Slowly.\n",
            "quick": "Fixed.\n",
            "last": "All in one.\n",
        }
        slow = [step for step in bench.run(handle.steps()) if step.kind == "node" and step.name == "slow"]
        assert [step.status for step in slow].count("done") == 1
        assert len(bench.marks("model")) <= before + 3

    # C3

    def test_c03_a_running_tool_sees_its_cancel_signal_and_what_is_recorded_stays(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, WAIT, BOOK, "Done.")
        bench.until_waiting()
        bench.run(handle.cancel())
        bench.fails(handle, errors.ExecutionCancelledError)
        assert bench.status(handle) is S.CANCELLED
        bench.until(
            lambda: bench.marks("cancel seen")
        )  # an engine may end the execution before its process hears of it
        assert bench.booked() == ["Paris"]
        assert len(bench.marks("cancel seen")) == 1
        done = [step.kind for step in bench.run(handle.steps()) if step.status == "done"]
        assert done[:3] == ["model", "tool", "model"]
        assert len(bench.marks("model")) == 2, "nothing more started"

    def test_c03_a_node_that_runs_sees_the_cancel_signal(self, bench: Bench) -> None:
        handle = bench.dispatch(WAIT, "Done.", agent=agents.contract_graph)
        bench.until_waiting()
        bench.run(handle.cancel())
        bench.fails(handle, errors.ExecutionCancelledError)
        bench.until(lambda: bench.marks("cancel seen"))
        assert len(bench.marks("cancel seen")) == 1
        assert not [step for step in bench.run(handle.steps()) if step.name == "last"]

    def test_c03_what_waits_for_a_worker_or_a_person_is_cancelled_at_once(self, bench: Bench) -> None:
        pending = bench.dispatch_to_nobody("Hi.", execution_id="pending")
        asks = bench.dispatch(ASK, "Done.", execution_id="asks")
        question = bench.result(asks).interrupts[0]
        for handle in (pending, asks):
            bench.run(handle.cancel())
            assert bench.status(handle) is S.CANCELLED
            bench.fails(handle, errors.ExecutionCancelledError)
            assert bench.run(handle.interrupts()) == []
        with pytest.raises(errors.ExecutionCancelledError):
            bench.run(asks.respond({question.id: "yes"}))

    def test_c03_cancelling_what_has_ended_changes_nothing(self, bench: Bench) -> None:
        done = bench.dispatch("Hi.", execution_id="done")
        bench.result(done)
        failed = bench.dispatch(FAILS, execution_id="failed")
        bench.fails(failed, errors.ExecutionFailedError)
        for handle in (done, failed):
            bench.run(handle.cancel())
        assert (bench.status(done), bench.status(failed)) == (S.COMPLETED, S.FAILED)
        bench.touch("fixed")
        bench.run(failed.resume())
        assert str(bench.result(failed)) == "Fixed.\n"

    # C26

    def test_c26_what_no_worker_has_stays_where_it_is_and_the_others_run(self, bench: Bench) -> None:
        other_version = bench.dispatch_to_nobody("Hi.", execution_id="other-version")
        spec = agents.contract_agent.spec_with(folder=bench.folder, script=["Hi."])
        unknown = bench.run(
            bench.backend.dispatch(replace(spec, name="contract_unknown"), "Go", execution_id="unknown")
        )
        for number in range(3):
            assert str(bench.result(bench.dispatch("Hi.", execution_id=f"run-{number}"))) == "Hi.\n"
        assert bench.status(other_version) is bench.status(unknown) is S.PENDING
        assert bench.run(other_version.steps()) == []

    def test_c26_accepted_drift_lets_another_version_resume_it(self, bench: Bench) -> None:
        handle = bench.dispatch_to_nobody(BOOK, "Booked.")
        bench.until(lambda: bench.run(handle.detail()).execution.note)
        note = bench.run(handle.detail()).execution.note
        assert note is not None
        assert "was dispatched as 000000000000, here it is" in note
        assert "strands-durable resume trip --accept-drift" in note
        bench.run(handle.resume())
        assert bench.status(handle) is S.PENDING, "nothing was accepted"
        bench.run(handle.resume(accept_drift=True))
        assert str(bench.result(handle)) == "Booked.\n"
        assert bench.booked() == ["Paris"]
        bench.run(handle.resume(accept_drift=True))
        assert bench.status(handle) is S.COMPLETED, "an ended execution stays ended"
