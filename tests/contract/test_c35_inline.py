"""C35: handles on executions that belong to a script; and what dispatching and inline calls are to each other."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionStatus, connect, errors
from strands_durable.testing import call
from tests import dispatched
from tests.dispatched import dispatch, result, stop, worker
from tests.processes import run
from tests.script import in_new_process, ledger, start_process
from tests.waiting import until

ASKS = [call("approve", what="trip"), call("book", city="Rome"), "Approved."]


def held(execution_id: str = "trip") -> Any:
    """Return the handle of an execution, from a process that works on nothing."""
    return asyncio.run(connect(dispatched.OFF).get(execution_id))


def status() -> ExecutionStatus:
    return asyncio.run(held().status())


def effects(name: str) -> int:
    return sum(entry.get("name") == name for entry in ledger.read())


def test_c35_an_answer_to_an_inline_execution_is_recorded_and_the_next_run_resumes_with_it() -> None:
    in_new_process(ASKS, ["Ask"]).checked()
    (question,) = asyncio.run(held().interrupts())
    asyncio.run(held().respond({question.id: "yes"}))
    assert (status(), effects("approve")) == (ExecutionStatus.SUSPENDED, 1), "it only records"
    assert asyncio.run(held().interrupts()) == []
    asyncio.run(held().respond({question.id: "yes"}))
    with pytest.raises(errors.InputMismatchError):
        asyncio.run(held().respond({question.id: "no"}))
    outcome = in_new_process(ASKS, ["Ask"]).checked()[0]
    assert (outcome["stop_reason"], outcome["text"]) == ("end_turn", "Approved.")
    assert (effects("approve"), effects("book")) == (2, 1)
    assert str(result(held())) == "Approved.\n"


def test_c35_a_worker_leaves_an_inline_execution_alone() -> None:
    in_new_process(ASKS, ["Ask"]).checked()
    (question,) = asyncio.run(held().interrupts())
    current = worker()
    asyncio.run(held().respond({question.id: "yes"}))
    assert str(result(dispatch(["Hi."], "other"))) == "Hi.\n"
    stop(current)
    assert (status(), effects("approve")) == (ExecutionStatus.SUSPENDED, 1)


def test_c35_a_partial_answer_from_outside_and_the_rest_from_the_script_are_one() -> None:
    twice = [[call("approve", what="flight"), call("approve", what="hotel")], "Both."]
    in_new_process(twice, ["Ask"]).checked()
    flight, hotel = asyncio.run(held().interrupts())
    asyncio.run(held().respond({flight.id: "yes"}))
    assert asyncio.run(held().interrupts()) == [hotel]
    outcome = in_new_process(twice, ["Ask", ("no",)]).checked()
    assert [found["id"] for found in outcome[0]["interrupts"]] == [hotel.id]
    assert outcome[1]["text"] == "Both."


def test_c35_resume_of_an_inline_execution_changes_nothing_and_the_script_tries_again() -> None:
    script = [call("book", city="Paris"), "Booked."]
    in_new_process(script, ["Book"], model="FailsOnce").checked()
    with pytest.raises(errors.ExecutionFailedError, match="the model is out of order"):
        result(held())
    asyncio.run(held().resume())
    assert status() is ExecutionStatus.FAILED
    assert in_new_process(script, ["Book"], model="FailsOnce").checked()[0]["text"] == "Booked."
    assert effects("book") == 1


def test_c35_cancelling_an_inline_execution_at_work_is_noticed_at_its_next_step() -> None:
    script = [call("wait_for", path="go"), call("book", city="Rome"), "Done."]
    owner = start_process(script, ["Go"])
    until(Path("waiting").exists)
    asyncio.run(held().cancel())
    assert status() is ExecutionStatus.RUNNING
    Path("go").touch()
    outcome = owner.join().checked()[0]
    assert outcome["error"] == "ExecutionCancelledError"
    assert (status(), effects("book")) == (ExecutionStatus.CANCELLED, 0)
    assert in_new_process(script, ["Go"]).checked()[0]["error"] == "ExecutionCancelledError"
    with pytest.raises(errors.ExecutionCancelledError):
        result(held())


def test_c35_an_inline_execution_that_was_killed_or_waits_is_cancelled_at_once() -> None:
    in_new_process([call("book_and_die", city="Rome"), "Done."], ["Go"])
    asyncio.run(held().cancel())
    assert status() is ExecutionStatus.CANCELLED
    assert in_new_process([call("book_and_die", city="Rome"), "Done."], ["Go"]).checked()[0]["error"] == (
        "ExecutionCancelledError"
    )
    assert effects("book_and_die") == 1


def test_c01_a_dispatched_execution_that_waits_is_busy_for_an_inline_agent() -> None:
    dispatch(["Hi."], "trip", prompt="Book")
    script = [call("book", city="Paris"), "Booked."]
    assert in_new_process(script, ["Book"]).checked()[0]["error"] == "ExecutionBusyError"
    assert in_new_process(script, [None]).checked()[0]["error"] == "ExecutionBusyError"
    assert in_new_process(script, ["Other"]).checked()[0]["error"] == "InputMismatchError"
    assert effects("book") == 0
    current = worker()
    assert str(result(held())) == "Hi.\n", "and it still runs"
    stop(current)


def test_c01_a_dispatched_execution_at_work_is_busy_for_an_inline_agent() -> None:
    handle = dispatch([{"tool": "wait_for", "path": "go"}, "Done."], "trip", prompt="Book")
    current = worker()
    until(Path("waiting").exists)
    outcome = in_new_process(["Hi."], ["Book"], {"lease_seconds": 0.5}).checked()[0]
    assert outcome["error"] == "ExecutionBusyError"
    assert f"process {current.pid} on" in outcome["text"]
    assert in_new_process(["Hi."], ["Other"], {"lease_seconds": 0.5}).checked()[0]["error"] == "InputMismatchError"
    Path("go").touch()
    assert str(result(handle)) == "Done.\n"
    stop(current)


def test_c01_a_cancelled_execution_does_not_resume_inline() -> None:
    handle = dispatch(["Hi."], "trip", prompt="Book")
    asyncio.run(handle.cancel())
    for given in ("Book", "Other", None):
        assert in_new_process(["Hi."], [given]).checked()[0]["error"] == "ExecutionCancelledError"


def test_c07_a_claimed_execution_takes_no_inline_call_in_the_same_process() -> None:
    assert run(_inline_beside_a_worker, os.getcwd()).checked() == ("ExecutionBusyError", "Done.\n")


def _inline_beside_a_worker(folder: str) -> tuple[str, str]:
    from tests.script import calls

    os.chdir(folder)
    backend = connect("sqlite:///runs.db")
    spec = dispatched.scripted.spec_with(script=[{"tool": "wait_for", "path": "go"}, "Done."])
    handle = asyncio.run(backend.dispatch(spec, "Go", execution_id="trip"))
    until(Path("waiting").exists)
    outcome = calls(["Hi."], ["Go"])[0]
    Path("go").touch()
    found = str(asyncio.run(handle.result(20)))
    asyncio.run(backend.close())
    return outcome["error"], found


def test_c35_a_dispatch_on_an_inline_execution_whose_script_is_gone_says_what_to_run() -> None:
    in_new_process([call("book_and_die", city="Rome"), "Done."], ["Go"])
    with pytest.raises(errors.ExecutionBusyError, match=r"started inline.*Run that script again"):
        dispatch(["Done."], "trip")
    assert (status(), effects("book_and_die")) == (ExecutionStatus.RUNNING, 1)


def test_c32_limits_are_refused_for_what_has_no_loop_of_its_own() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="only an Agent"):
        asyncio.run(dispatched.backend().dispatch(dispatched.pair.spec, "Go", limits={"turns": 1}))
