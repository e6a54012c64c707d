"""C1: what the same id means in every state, inline, in fresh processes. What was dispatched: test_c35_inline.py."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

from strands_durable.testing import call
from tests.script import in_new_process, ledger, start_process
from tests.waiting import until

BOOK = [call("book", city="Paris"), "Booked."]
DIES = [call("book", city="Paris"), call("book_and_die", city="Rome"), "Booked both."]
ASKS = [call("approve", what="trip"), "Approved."]
FAILS = [call("book", city="Paris"), "Booked."]


def effects() -> list[str]:
    return [entry["name"] for entry in ledger.read() if entry["kind"] == "tool"]


def model_calls() -> int:
    return sum(entry["kind"] == "model" for entry in ledger.read())


def test_c01_nothing_recorded_starts() -> None:
    assert in_new_process(BOOK, ["Book"]).checked()[0]["text"] == "Booked."
    assert effects() == ["book"]


def test_c01_running_with_a_live_owner_is_busy_and_names_it() -> None:
    script = [call("wait_for", path="go"), "Done."]
    owner = start_process(script, ["Wait"], {"lease_seconds": 1.0})
    until(Path("waiting").exists)
    same = in_new_process(script, ["Wait"], {"lease_seconds": 1.0}).checked()[0]
    other = in_new_process(script, ["Something else"], {"lease_seconds": 1.0}).checked()[0]
    Path("go").touch()
    assert owner.join().checked()[0]["text"] == "Done."
    assert same["error"] == "ExecutionBusyError"
    assert f"process {owner.pid} on" in same["text"]
    assert other["error"] == "InputMismatchError"


def test_c01_running_with_a_dead_owner_resumes_at_the_first_step_without_a_result() -> None:
    assert in_new_process(DIES, ["Book"]).exitcode == -signal.SIGKILL
    assert in_new_process(DIES, ["Other"]).checked()[0]["error"] == "InputMismatchError"
    assert in_new_process(DIES, ["Book"]).checked()[0]["text"] == "Booked both."
    assert effects() == ["book", "book_and_die", "book_and_die"]
    assert model_calls() == 3


def test_c01_running_with_a_dead_owner_resumes_without_a_prompt() -> None:
    assert in_new_process(DIES, ["Book"]).exitcode == -signal.SIGKILL
    assert in_new_process(DIES, [None]).checked()[0]["text"] == "Booked both."


def test_c01_suspended_returns_the_open_interrupts_and_runs_nothing() -> None:
    first = in_new_process(ASKS, ["Ask"]).checked()[0]
    assert first["stop_reason"] == "interrupt"
    same, none = (in_new_process(ASKS, [given]).checked()[0] for given in ("Ask", None))
    assert same == first
    assert none == first
    assert effects() == ["approve"]
    assert model_calls() == 1
    assert in_new_process(ASKS, ["Other"]).checked()[0]["error"] == "InputMismatchError"


def test_c01_suspended_resumes_with_answers_in_a_new_process() -> None:
    in_new_process(ASKS, ["Ask"]).checked()
    outcomes = in_new_process(ASKS, ["Ask", ("yes",)]).checked()
    assert outcomes[1]["text"] == "Approved."
    assert outcomes[1]["messages"] == 4


def test_c01_completed_returns_the_recorded_result_and_runs_nothing() -> None:
    first = in_new_process(BOOK, ["Book"]).checked()[0]
    assert in_new_process(BOOK, ["Book"]).checked()[0] == first
    assert in_new_process(BOOK, [None]).checked()[0] == first
    assert in_new_process(BOOK, ["Other"]).checked()[0]["error"] == "InputMismatchError"
    assert effects() == ["book"]
    assert model_calls() == 2


def test_c01_completed_restarts_under_the_same_id_and_keeps_the_old_run() -> None:
    in_new_process(BOOK, ["Book"]).checked()
    restarted = in_new_process(BOOK, ["Book anew"], {"on_completed": "restart"}).checked()[0]
    assert restarted["text"] == "Booked."
    assert effects() == ["book", "book"]
    assert len({entry["idempotency_key"] for entry in ledger.read() if entry["kind"] == "tool"}) == 2
    with sqlite3.connect("runs.db") as connection:
        runs = connection.execute("SELECT run, input, status FROM calls ORDER BY id").fetchall()
    connection.close()
    assert runs == [(0, '"Book"', "COMPLETED"), (1, '"Book anew"', "COMPLETED")]


def test_c01_restart_leaves_a_run_alone_that_has_not_ended() -> None:
    assert in_new_process(DIES, ["Book"], {"on_completed": "restart"}).exitcode == -signal.SIGKILL
    assert in_new_process(DIES, ["Book"], {"on_completed": "restart"}).checked()[0]["text"] == "Booked both."
    assert effects() == ["book", "book_and_die", "book_and_die"]


def test_c01_failed_before_a_later_call_raises_the_recorded_exception_again() -> None:
    script = [*FAILS, "Never mind."]
    first = in_new_process(script, ["Book", "Go on"], model="FailsOnce").checked()
    assert first[0]["error"] == "EventLoopException"
    again = in_new_process(script, ["Book", "Go on"], model="FailsOnce").checked()
    assert again == first
    assert in_new_process(script, ["Other"], model="FailsOnce").checked()[0]["error"] == "InputMismatchError"


def test_c01_the_last_failed_call_is_tried_again_from_the_failed_step() -> None:
    assert in_new_process(FAILS, ["Book"], model="FailsOnce").checked()[0]["error"] == "EventLoopException"
    assert in_new_process(FAILS, ["Other"], model="FailsOnce").checked()[0]["error"] == "InputMismatchError"
    assert in_new_process(FAILS, ["Book"], model="FailsOnce").checked()[0]["text"] == "Booked."
    assert effects() == ["book"]


def test_c01_the_last_failed_call_raises_if_configured() -> None:
    in_new_process(FAILS, ["Book"], model="FailsOnce").checked()
    outcome = in_new_process(FAILS, ["Book"], {"on_failed": "raise"}, model="FailsOnce").checked()[0]
    assert outcome["error"] == "ExecutionFailedError"
    assert "the model is out of order" in outcome["text"]


def test_c01_the_nth_call_of_an_object_is_compared_with_the_nth_recorded_one() -> None:
    script = ["One.", call("book", city="Rome"), "Two.", "Three."]
    first = in_new_process(script, ["a", "b"]).checked()
    again = in_new_process(script, ["a", "b", "c"]).checked()
    assert again[:2] == first
    assert again[2]["text"] == "Three."
    assert effects() == ["book"]
    assert in_new_process(script, ["a", "x"]).checked()[1]["error"] == "InputMismatchError"


def test_c01_what_a_process_gets_does_not_depend_on_how_far_another_has_come() -> None:
    script = ["One.", "Two.", call("book", city="Rome"), "Three."]
    first = start_process(script, ["a", "b", ("when there is", "go"), "c"])
    until(Path("paused").exists)
    second = in_new_process(script, ["a", "b", "c"]).checked()
    Path("go").touch()
    assert [found["text"] for found in second] == ["One.", "Two.", "Three."]
    assert first.join().checked() == second
    assert effects() == ["book"]


def test_c01_an_id_given_with_a_call_names_one_call_in_every_process() -> None:
    def ask(*inputs: str) -> list[str]:
        outcomes = in_new_process(BOOK, list(inputs), {"execution_id": None}, per_call="order-7").checked()
        return [found.get("error", found["text"]) for found in outcomes]

    assert ask("Book", "Book") == ["Booked."] * 2
    assert ask("Book", "Other", "Book") == ["Booked.", "InputMismatchError", "Booked."]
    assert effects() == ["book"]
