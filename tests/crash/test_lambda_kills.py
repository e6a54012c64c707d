"""On AWS Lambda, the process of an invocation is killed: the next one resumes, and it ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from strands_durable import ExecutionHandle, ExecutionStatus, errors
from tests.crash import crew, mined
from tests.crash.aws import LambdaSite
from tests.crash.site import audit
from tests.features.harness import _DULL, EVERY_POINT
from tests.waiting import until

PARTS, SAMPLE = (12, 1) if EVERY_POINT else (2, 5)
SEEDS, KILLS, AT_ONCE = 3, 70, 3
"""Campaigns of random kills, kills in each, and executions at a time."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[str]]:
    """Return the outcome of an undisturbed run, and the points where it can be disturbed."""
    with LambdaSite(tmp_path_factory.mktemp("whole")) as site:
        handle = site.dispatch("whole", agent=crew.traveller)
        return site.seen(handle), mined.reached(site.folder, "whole")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_whose_process_was_killed_ends_as_if_it_had_not_been(
    tmp_path: Path, whole: tuple[Any, list[str]], part: int, record_property: Any
) -> None:
    expected, reached = whole
    points = [point for point in reached if EVERY_POINT or not _DULL.match(point)][::SAMPLE][part::PARTS]
    assert len(points) > 3
    with LambdaSite(tmp_path) as site:
        for number, point in enumerate(points):
            mined.lay(tmp_path, f"run-{number}", point)
        handles = [site.dispatch(f"run-{number}", agent=crew.traveller) for number in range(len(points))]
        for handle, point in zip(handles, points, strict=True):
            assert site.seen(handle) == expected, f"killed at {point}"
            audit(site, handle, 2)
        missed = [
            point
            for handle, point in zip(handles, points, strict=True)
            if not mined.has_blown(tmp_path, handle.execution_id)
        ]
    assert all(point.startswith("operation:") for point in missed), (
        "tools that end together may be one operation or two"
    )
    record_property("kills", len(points) - len(missed))


SCRIPT = [
    [{"tool": "book", "city": "Paris"}, {"tool": "rest", "seconds": 0.15}, {"tool": "pay", "amount": 3}],
    [{"tool": "rest", "seconds": 0.1}, {"tool": "book", "city": "Rome"}],
    {"tool": "wait", "path": "go"},
    [{"tool": "book", "city": "Oslo"}, {"tool": "book", "city": "Bern"}, {"tool": "rest", "seconds": 0.1}],
    "All is booked.",
]
"""Tools at the same time; ``wait`` must not run twice, whatever happens."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_kills_with_parallel_tools_in_flight(tmp_path: Path, seed: int, record_property: Any) -> None:
    chance = random.Random(seed)
    (tmp_path / "go").touch()
    kills = 0
    with LambdaSite(tmp_path) as site:
        handles: dict[str, ExecutionHandle] = {}
        live: list[ExecutionHandle] = []
        while kills < KILLS:
            live = [each for each in live if site.run(each.status()).value in ("PENDING", "RUNNING")]
            while len(live) < AT_ONCE:
                name = f"run-{len(handles)}"
                handles[name] = site.dispatch(name, *SCRIPT, in_doubt="fail")
                live.append(handles[name])
            time.sleep(chance.uniform(0.0, 0.3))  # the moment of a kill is the chance
            running = site.invocations()
            for victim in chance.sample(running, k=min(1, len(running))):
                with suppress(psutil.NoSuchProcess):
                    victim.send_signal(signal.SIGKILL)
                    kills += 1
        for handle in handles.values():
            _finish(site, handle)
            audit(site, handle, KILLS)
            waits = site.ledger(execution_id=handle.execution_id, what="wait")
            assert len(waits) <= 1, "a tool that must not run twice did"
    record_property("kills", kills)
    print(f"seed {seed}: {kills} kills in {len(handles)} executions")


def _finish(site: LambdaSite, handle: ExecutionHandle) -> None:
    """See an execution to its end; one that died three times at the same place has failed, and is resumed."""
    for _ in range(5):
        until(lambda: site.run(handle.status()).value not in ("PENDING", "RUNNING"), 120)
        if site.run(handle.status()) is not ExecutionStatus.FAILED:
            break
        site.run(handle.resume())
    result = site.result(handle)
    assert str(result).strip() == "All is booked."
    state = result.state
    assert {name for name in state if name.startswith("booked")} == {
        f"booked {city}" for city in ("Paris", "Rome", "Oslo", "Bern")
    }


def test_c11_a_model_call_in_doubt_is_made_again(tmp_path: Path) -> None:
    with LambdaSite(tmp_path) as site:
        handle = site.dispatch("run", "Done.", waits_for="go")
        until(lambda: site.ledger(what="model"))
        for invocation in site.invocations():
            invocation.kill()
        (tmp_path / "go").touch()
        assert str(site.result(handle)).strip() == "Done."
        assert [entry["attempt"] for entry in site.ledger(what="model")] == [1, 2]


def test_c34_an_execution_that_kills_its_process_again_and_again_fails(tmp_path: Path) -> None:
    with LambdaSite(tmp_path) as site:
        handle = site.dispatch("deadly", agent=crew.deadly)
        with pytest.raises(errors.ExecutionFailedError) as caught:
            site.result(handle)
        assert isinstance(caught.value.__cause__, errors.WorkerLostError)


@pytest.mark.timeout(300)
def test_c12_a_step_that_must_not_run_twice_is_in_doubt_only_if_it_had_begun(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    script = [{"tool": "wait", "path": "go"}, "All is well."]
    with LambdaSite(tmp_path) as site:
        site.result(site.dispatch("whole", *script, in_doubt="fail"))
        points = [point for point in mined.reached(tmp_path, "whole") if point.startswith("operation:")]
        assert len(points) >= 8
        for number, point in enumerate(points):
            mined.lay(tmp_path, f"run-{number}", point)
        handles = [site.dispatch(f"run-{number}", *script, in_doubt="fail") for number in range(len(points))]
        unknown: list[str] = []
        for handle, point in zip(handles, points, strict=True):
            assert str(site.result(handle)).strip() == "All is well.", point
            assert mined.has_blown(tmp_path, handle.execution_id), point
            waits = [entry["attempt"] for entry in site.ledger(execution_id=handle.execution_id, what="wait")]
            (step,) = [
                step for step in site.run(handle.steps()) if step.name == "wait" and step.status in ("done", "error")
            ]
            unknown.extend([point] if "it is there" not in str(step.result) else [])
            assert waits == ([] if point in unknown else [1]), f"{point}: none of them is inside the tool"
        (begun,) = unknown
        assert begun.startswith("operation:before"), "the operation had begun, so its step may have, too"
