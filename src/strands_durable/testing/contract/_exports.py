"""C43 to C46: an execution as a file: exported, without its contents, imported, and replayed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ... import DurableAgent, ExecutionHandle, errors
from .. import agents, assert_replays
from ._bench import BOOK, WAIT, Bench, S

_ASK = {"tool": "approve", "what": "the yacht"}
_HANDOFF = {"tool": "handoff_to_agent", "agent_name": "second", "message": "over to you"}


def exported(bench: Bench, handle: ExecutionHandle, **options: Any) -> dict[str, Any]:
    """Return the export of an execution, after a round trip through text."""
    found: dict[str, Any] = json.loads(json.dumps(bench.run(handle.export(**options))))
    return found


def imported(bench: Bench, found: dict[str, Any]) -> ExecutionHandle | None:
    """Import an execution under another id; None if the engine refuses it by name, and records nothing."""
    try:
        handle: ExecutionHandle = bench.run(bench.backend.import_execution(found, execution_id="trip-2"))
    except errors.UnsupportedFeatureError:
        with pytest.raises(errors.ExecutionNotFoundError):
            bench.run(bench.backend.get("trip-2"))
        return None
    return handle


class ExportsContract:
    """What an execution is outside of its engine."""

    def test_c43_an_export_holds_all_that_is_recorded_and_nothing_of_the_store(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, "Booked.", prompt="Book the Ritz", tags={"tenant": "acme"})
        bench.result(handle)
        found = exported(bench, handle)
        assert (found["strands_durable_export"], found["execution_id"], found["contents"]) == (1, "trip", True)
        rows = found["rows"]
        assert [step["name"] for step in rows["steps"]] == ["contract-agent", "book", "contract-agent"]
        assert rows["calls"][0]["input"] == '"Book the Ritz"'
        assert rows["tags"][0]["value"] == "acme"
        assert [row["value"] for row in rows["state"]] == [["Paris"]]
        assert "secrets" not in rows
        assert "input_hash" not in rows["calls"][0]
        assert not {"owner", "fence", "lease_until"} & rows["executions"][0].keys()

    def test_c43_an_execution_that_waits_is_exported_with_its_question(self, bench: Bench) -> None:
        handle = bench.dispatch(_ASK, "Done.")
        bench.result(handle)
        found = exported(bench, handle)
        assert found["rows"]["executions"][0]["status"] == "SUSPENDED"
        assert "approve the yacht" in json.dumps(found["rows"]["calls"])

    def test_c43_an_execution_that_is_unknown_has_no_export(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, "Booked.")
        bench.result(handle)
        handle.execution_id = "unknown"
        with pytest.raises(errors.ExecutionNotFoundError):
            bench.run(handle.export())

    def test_c44_without_contents_an_export_has_no_text_of_the_run(self, bench: Bench) -> None:
        city, said = "Samarkand", "A confidential farewell."
        handle = bench.dispatch(
            {"tool": "book", "city": city}, said, prompt="A confidential wish", tags={"tenant": "confidential-tenant"}
        )
        bench.result(handle)
        text = json.dumps(exported(bench, handle, contents=False))
        assert not [part for part in (city, "onfidential", "booked") if part in text]
        assert '"book"' in text
        assert '"tenant"' in text

    def test_c45_an_export_is_imported_under_another_id_or_refused_by_name(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, "Booked.")
        result = bench.result(handle)
        found = exported(bench, handle)
        moved = imported(bench, found)
        if moved is None:
            return
        again = bench.result(moved)
        assert (str(again), again.state, again.usage) == (str(result), result.state, result.usage)
        assert _comparable(exported(bench, moved)) == _comparable(found)
        with pytest.raises(errors.ExecutionExistsError):
            bench.run(bench.backend.import_execution(found))
        assert bench.booked() == ["Paris"]

    def test_c45_an_imported_execution_that_waits_is_answered_and_resumes(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, _ASK, "Done.")
        bench.result(handle)
        found = exported(bench, handle)
        moved = imported(bench, found)
        if moved is None:
            return
        (question,) = bench.run(moved.interrupts())
        bench.run(moved.respond({question.id: "yes"}))
        bench.until(lambda: bench.status(moved) is S.COMPLETED)
        assert bench.status(handle) is S.SUSPENDED
        assert str(bench.result(moved)).strip() == "Done."
        assert bench.booked() == ["Paris"]

    def test_c45_an_imported_execution_that_runs_resumes_and_repeats_no_finished_step(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, WAIT, "Done.")
        bench.until_waiting()
        found = exported(bench, handle)
        moved = imported(bench, found)
        bench.touch()
        if moved is None:
            return
        results = [str(bench.result(each)).strip() for each in (handle, moved)]
        assert (results, bench.booked()) == (["Done.", "Done."], ["Paris"])
        record = bench.run(moved.detail()).execution
        assert record.imported is not None
        assert record.imported.execution_id == "trip"

    @pytest.mark.parametrize("kind", ["agent", "graph", "swarm"])
    def test_c46_a_run_replays_from_its_export_without_a_model_or_a_tool(self, bench: Bench, kind: str) -> None:
        agent, script = _program(kind)
        handle = bench.dispatch(*script, agent=agent)
        bench.result(handle)
        found, marks = exported(bench, handle), agents.marks(bench.folder)
        assert assert_replays(found, agent) >= len(script)
        assert agents.marks(bench.folder) == marks

    def test_c46_answers_of_people_are_played_too(self, bench: Bench) -> None:
        handle = bench.dispatch(_ASK, "Done.")
        bench.result(handle)
        (question,) = bench.run(handle.interrupts())
        bench.run(handle.respond({question.id: "yes"}))
        bench.until(lambda: bench.status(handle) is S.COMPLETED)
        found, began = exported(bench, handle), time.monotonic()
        assert assert_replays(found, agents.contract_agent) >= 3
        assert time.monotonic() - began < bench.patience_seconds


def _program(kind: str) -> tuple[DurableAgent, list[Any]]:
    return {
        "agent": (agents.contract_agent, [BOOK, "Booked."]),
        "graph": (agents.contract_graph, [BOOK, "Booked."]),
        "swarm": (agents.contract_swarm, [_HANDOFF, "I handed over."]),
    }[kind]


def _comparable(export: dict[str, Any]) -> Any:
    """Return the rows of an export without numbers of rows, which belong to a store, and without what an engine may forget."""
    kept = ("calls", "steps", "state", "messages")
    gone = {"id", "call", "execution", "lineage", "parent", "config", "data", "version"}
    return {
        table: [{name: cell for name, cell in row.items() if name not in gone} for row in export["rows"].get(table, ())]
        for table in kept
    }
