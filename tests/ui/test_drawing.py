"""Positions and pictures: pure functions of what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from strands_durable import ExecutionStatus
from strands_durable._records.executions import ExecutionRecord
from strands_durable._records.views import CallSummary, ExecutionDetail, StepSummary
from strands_durable.ui import _wording as wording
from strands_durable.ui._content import blocks_of
from strands_durable.ui._node_map import NodeMap, node_map_of
from strands_durable.ui._time_axis import TimeAxis
from strands_durable.ui._timeline import StepRow, timeline_of


def step(key: str, start: float | None, end: float | None, state: str = "done", **more: Any) -> StepSummary:
    given: dict[str, Any] = {
        "number": "1", "kind": "tool", "name": key, "title": "", "input": None, "status": "done", "attempt": 1,
        "usage": None, "result": None, "error": None, **more,
    }  # fmt: skip
    return StepSummary(key=key, started_at=start, ended_at=end, state=state, **given)  # type: ignore[arg-type]


def call(*steps: StepSummary, kind: str = "agent", end: float | None = None) -> CallSummary:
    given: dict[str, Any] = {
        "position": 0, "scope": "a", "member": "a", "depth": 0, "input": None, "is_redacted": False, "phase": "done",
        "attempt": 1, "stop_reason": None, "failures": (), "questions": (), "answers": (), "structured_output": None,
    }  # fmt: skip
    status = ExecutionStatus.COMPLETED
    return CallSummary(kind=kind, status=status, started_at=0.0, ended_at=end, steps=steps, **given)  # type: ignore[arg-type]


def detail(*calls: CallSummary) -> ExecutionDetail:
    execution = ExecutionRecord(
        execution_id="x", kind="dispatched", status=ExecutionStatus.COMPLETED, run=0, calls=1, steps=1, owner=None,
        created_at=0.0, updated_at=0.0,
    )  # fmt: skip
    return ExecutionDetail(execution=execution, run=0, runs=(), calls=calls)


def rows(*steps: StepSummary, now: float = 100.0) -> tuple[StepRow, ...]:
    return timeline_of(detail(call(*steps)), now).lanes[0].rows


def test_time_without_pauses_is_drawn_to_scale() -> None:
    axis = TimeAxis([(10.0, 12.0), (11.0, 15.0), (15.0, 20.0)])
    assert [axis.at(each) for each in (10.0, 12.5, 20.0)] == [0.0, 25.0, 100.0]
    assert axis.pauses == []
    assert [axis.at(each) for each in (0.0, 99.0)] == [0.0, 100.0]


def test_a_night_is_drawn_short() -> None:
    axis = TimeAxis([(0.0, 5.0), (36_000.0, 36_005.0)])
    [pause] = axis.pauses
    assert (pause.start, pause.end) == (5.0, 36_000.0)
    assert pause.width < 10
    assert axis.at(5.0) == pytest.approx(46.7, abs=0.1)
    assert axis.at(36_005.0) == pytest.approx(100.0)


@pytest.mark.parametrize("spans", [[], [(1.0, 1.0)], [(1.0, 1.0), (500.0, 500.0)]])
def test_an_axis_of_nothing_or_of_moments_has_positions(spans: list[tuple[float, float]]) -> None:
    axis = TimeAxis(spans)
    assert all(0.0 <= axis.at(each) <= 100.0 for each in (0.0, 1.0, 200.0, 500.0, 900.0))
    assert all(0.0 <= x <= 100.0 for _, x in axis.ticks())


@pytest.mark.parametrize("length", [0.01, 0.7, 3.0, 59.0, 4000.0, 1e6])
def test_there_are_a_few_ticks_whatever_the_length(length: float) -> None:
    found = TimeAxis([(0.0, length)]).ticks()
    assert 1 <= len(found) <= 6
    assert [x for _, x in found] == sorted(x for _, x in found)


def test_parallel_tools_are_bars_beside_each_other() -> None:
    first, second = rows(step("a", 0.0, 4.0), step("b", 0.0, 2.0))
    assert (first.bars[0].x, first.bars[0].width) == (0.0, 100.0)
    assert (second.bars[0].x, second.bars[0].width) == (0.0, 50.0)


def test_attempts_of_a_step_share_a_row_and_doubt_lasts_until_the_next() -> None:
    [row] = rows(step("a", 0.0, None, "in doubt"), step("a", 4.0, 8.0, attempt=2, usage={"inputTokens": 1}))
    assert [bar.state for bar in row.bars] == ["in-doubt", "done"]
    assert row.bars[0].x + row.bars[0].width == pytest.approx(row.bars[1].x)
    assert (row.attempts, row.state) == (2, "done")


def test_the_wait_for_a_person_is_a_bar_and_a_pause() -> None:
    found = timeline_of(detail(call(step("a", 0.0, 1.0, "answered"), step("a", 3601.0, 3602.0, attempt=2))), 4000.0)
    [row] = found.lanes[0].rows
    assert [bar.state for bar in row.bars] == ["wait", "answered", "done"]
    assert [pause.text for pause in found.pauses] == ["1 h, waiting for a person"]


def test_an_open_question_waits_until_now() -> None:
    found = timeline_of(detail(call(step("a", 0.0, 1.0, "waiting for a person"))), 601.0)
    assert [pause.text for pause in found.pauses] == ["10 min, waiting for a person"]
    assert found.lanes[0].rows[0].bars[0].title == "10 min waiting for a person"


def test_what_runs_lasts_until_now() -> None:
    [row] = rows(step("a", 90.0, None, "running"), now=100.0)
    assert (row.bars[0].width, row.took) == (100.0, "")


def test_a_model_call_that_has_no_start_is_drawn_at_the_end() -> None:
    done, running = rows(step("a", 90.0, 95.0), step("b", None, None, "running"), now=95.0)
    assert running.bars[0].x == pytest.approx(99.5)
    assert done.bars[0].width == 100.0


def places(found: NodeMap) -> dict[str, tuple[int, int]]:
    columns = sorted({box.x for box in found.boxes})
    return {box.full_name: (columns.index(box.x), box.y) for box in found.boxes}


def nodes(*visits: tuple[str, float, float | None]) -> CallSummary:
    steps = [
        step(f"node/{name}#{index}", start, end, kind="node", name=name)
        for index, (name, start, end) in enumerate(visits)
    ]
    return call(*steps, kind="graph")


def test_nodes_stand_after_those_that_lead_to_them() -> None:
    found = node_map_of(
        nodes(("a", 0, 2), ("b", 0, 1), ("c", 2, 3)), ["a", "b", "c", "d"], ["a -> c", "b -> c", "c -> d if"]
    )
    assert found is not None
    assert {name: column for name, (column, _) in places(found).items()} == {"a": 0, "b": 0, "c": 1, "d": 2}
    assert [box.state for box in found.boxes] == ["done", "done", "done", "not run"]
    assert [arrow.is_conditional for arrow in found.arrows] == [False, False, True]
    assert not found.is_order


def test_a_loop_between_nodes_is_drawn() -> None:
    found = node_map_of(nodes(("a", 0, 1), ("b", 1, 2), ("a", 2, 3)), [], ["a -> b", "b -> a", "a -> a"])
    assert found is not None
    assert {name: column for name, (column, _) in places(found).items()} == {"a": 0, "b": 1}
    assert len(found.arrows) == 2
    assert found.boxes[0].state == "done, 2 visits"


def test_without_edges_the_order_of_the_run_is_drawn() -> None:
    found = node_map_of(nodes(("a", 0, 2), ("b", 0, 1), ("c", 2, 3), ("d", 3, None)))
    assert found is not None
    assert found.is_order
    assert {name: column for name, (column, _) in places(found).items()} == {"a": 0, "b": 0, "c": 1, "d": 2}
    assert len(found.arrows) == 3


def test_an_agent_has_no_nodes() -> None:
    assert node_map_of(call(step("a", 0, 1))) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0 ms"), (0.0123, "12 ms"), (0.5, "0.5 s"), (12.3, "12 s"), (59.96, "1 min"), (125, "2 min 5 s"), (7200, "2 h"),
     (93_784, "1 d 2 h"), (None, "")],
)  # fmt: skip
def test_durations_are_short(seconds: float | None, said: str) -> None:
    assert wording.took(seconds) == said


def test_a_value_that_no_browser_could_show_is_cut() -> None:
    for shown in (wording.written, wording.text):
        found = shown("x" * (wording.MOST_CHARACTERS + 5))
        assert found.endswith("x\n… This is its beginning: strands-durable show prints all of it.")


@pytest.mark.parametrize("wrong", [None, True, 5, "x", ["a"], {"bytes": 1}, {"text": 1}])
@pytest.mark.parametrize("kind", ["text", "toolUse", "toolResult", "reasoningContent", "image", "json"])
def test_a_block_of_another_shape_is_shown_as_it_is(kind: str, wrong: Any) -> None:
    inside = {"format": wrong, "source": wrong, "reasoningText": wrong, "content": wrong, "name": wrong}
    for block in ({kind: wrong}, {kind: inside}):
        assert all(isinstance(found.text, str) for found in blocks_of([block]))
