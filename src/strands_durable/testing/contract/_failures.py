"""C27, C36, C44: what is recorded of an exception, how such runs are found, and what a wait for a person adds to the time."""

from __future__ import annotations

import json
import time
from typing import Any

from ... import ExecutionHandle, errors
from ..agents import NOWHERE
from ._bench import Bench, S
from ._exports import exported, imported

RAISES = {"tool": "book", "city": NOWHERE}
ASKS = {"tool": "approve", "what": "the trip"}
_WAIT_SECONDS = 1.5
_CAUSE = "The above exception was the direct cause of the following exception:"


class FailuresContract:
    """Exceptions of tools and models."""

    def test_c27_a_tool_that_raised_keeps_its_traceback_and_no_values_of_variables(self, bench: Bench) -> None:
        handle = bench.dispatch(RAISES, "No hotel there.")
        bench.result(handle)
        asked, booked, said = bench.run(handle.steps())
        assert booked.traceback is not None
        lines = booked.traceback.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-1] == f"LookupError: no hotel in {NOWHERE}, api_key=***"
        assert lines.index(f"KeyError: '{NOWHERE}'") < lines.index(_CAUSE)
        assert [line.rpartition(" ")[2] for line in lines if line.startswith("  File")] == [
            "_search",
            "book",
            "_search",
        ]
        assert "the account of a customer" not in booked.traceback
        assert "sk-live" not in booked.traceback
        assert (asked.traceback, said.traceback) == (None, None)

    def test_c27_a_model_that_raised_keeps_its_traceback_with_the_step_and_the_call(self, bench: Bench) -> None:
        handle = bench.dispatch({"fails_until": "fixed"})
        bench.fails(handle, errors.ExecutionFailedError)
        detail = bench.run(handle.detail())
        (step,), (failure,) = detail.steps, detail.calls[0].failures
        for found in (step.traceback, failure.traceback):
            assert found is not None
            assert 'raise ValueError("the model is out of order")' in found
            assert "ValueError: the model is out of order" in found

    def test_c27_a_traceback_is_neither_in_a_result_nor_in_a_message(self, bench: Bench) -> None:
        handle = bench.dispatch(RAISES, "No hotel there.")
        bench.result(handle)
        rows = exported(bench, handle)["rows"]
        assert "most recent call last" in json.dumps([step.get("error") for step in rows["steps"]])
        others = {table: found for table, found in rows.items() if table != "steps"}
        results = [{name: cell for name, cell in step.items() if name != "error"} for step in rows["steps"]]
        assert "most recent call last" not in json.dumps([others, results])

    def test_c44_a_traceback_is_in_an_export_with_contents_only(self, bench: Bench) -> None:
        handle = bench.dispatch(RAISES, "No hotel there.")
        bench.result(handle)
        traceback = bench.run(handle.steps())[1].traceback
        whole = exported(bench, handle)
        redacted = exported(bench, handle, contents=False)["rows"]["steps"][1]["error"]
        assert redacted["type"] == "builtins:LookupError"
        assert len(redacted) == len(whole["rows"]["steps"][1]["error"]) - 1
        assert "traceback" not in redacted
        moved = imported(bench, whole)
        if moved is not None:
            assert bench.run(moved.steps())[1].traceback == traceback
        assert whole["rows"]["steps"][1]["error"]["traceback"] == traceback

    def test_c36_executions_with_a_failed_tool_call_are_listed(self, bench: Bench) -> None:
        rome, nowhere = {"tool": "book", "city": "Rome"}, RAISES
        scripts: dict[str, list[Any]] = {
            "fine": [rome, "Done."],
            "one": [nowhere, "Sorry."],
            "two": [[nowhere, rome, nowhere], "Sorry."],
        }
        for name, script in scripts.items():
            bench.result(bench.dispatch(*script, execution_id=name))
        bench.result(bench.dispatch(RAISES, ASKS, "Sorry.", execution_id="asks"))
        bench.until(lambda: len(_ids(bench, status=[S.COMPLETED, S.SUSPENDED])) == 4)  # a list may lag behind
        assert _ids(bench, with_errors=True) == ["asks", "two", "one"]
        assert _ids(bench, with_errors=True, status=S.COMPLETED) == ["two", "one"]
        assert _ids(bench, with_errors=True, status=S.FAILED) == []
        (first,) = bench.run(bench.backend.list(with_errors=True, status=S.COMPLETED, limit=1))
        assert (first.execution_id, first.tool_errors) == ("two", 2)
        assert _ids(bench, with_errors=True, status=S.COMPLETED, before=first.cursor) == ["one"]
        records = {record.execution_id: record.tool_errors for record in bench.run(bench.backend.list())}
        assert records == {"fine": 0, "one": 1, "two": 2, "asks": 1}

    def test_c27_a_tool_that_raised_has_one_status_everywhere(self, bench: Bench) -> None:
        handle = bench.dispatch(RAISES, "No hotel there.")
        bench.result(handle)
        step = bench.run(handle.steps())[1]
        events = [event for event in bench.run(_followed(handle)) if event["recorded"]]
        rows = exported(bench, handle)["rows"]["steps"]
        redacted = exported(bench, handle, contents=False)["rows"]["steps"]
        assert {step.status, step.state, events[1]["status"], rows[1]["status"], redacted[1]["status"]} == {"error"}
        moved = imported(bench, exported(bench, handle))
        if moved is not None:
            assert [step.status for step in bench.run(moved.steps())] == ["done", "error", "done"]
            assert bench.result(moved).message == bench.result(handle).message

    def test_c36_a_wait_for_a_person_is_not_part_of_the_time_that_a_run_took(self, bench: Bench) -> None:
        handle = bench.dispatch(ASKS, ASKS, "Done.")
        for _ in range(2):
            (question,) = bench.result(handle).interrupts
            asked_at = time.time()
            bench.until(lambda since=asked_at: time.time() - since > _WAIT_SECONDS)  # type: ignore[misc]
            waiting = bench.run(handle.detail()).execution
            assert waiting.waited_until(time.time()) > waiting.waited_seconds + _WAIT_SECONDS - 0.1
            bench.run(handle.respond({question.interrupt_id: "yes"}))
        assert str(bench.result(handle)) == "Done.\n"
        detail = bench.run(handle.detail())
        (call,), record = detail.calls, detail.execution
        assert call.ended_at is not None
        assert record.duration_seconds is not None
        assert 2 * _WAIT_SECONDS <= record.waited_seconds < call.ended_at - call.started_at
        assert abs(record.duration_seconds + record.waited_seconds - (call.ended_at - call.started_at)) < 0.01
        bench.until(lambda: _ids(bench, status=S.COMPLETED) == ["trip"])
        (listed,) = bench.run(bench.backend.list())
        assert (listed.duration_seconds, listed.waited_seconds) == (record.duration_seconds, record.waited_seconds)


def _ids(bench: Bench, **wanted: Any) -> list[str]:
    return [record.execution_id for record in bench.run(bench.backend.list(**wanted))]


async def _followed(handle: ExecutionHandle) -> list[Any]:
    return [event async for event in handle.stream()]
