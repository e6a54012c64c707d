"""C8: an engine with a step gate may reclaim an execution at any moment; no moment leaves a step in doubt.

The engine here is the smallest possible one on `Driver`: it keeps batches in a list, and lets every step run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import current_step, durable, durable_agent
from strands_durable._calls.control import ExecutionReleasedError
from strands_durable._dispatch.requests import Requests
from strands_durable._dispatch.runner import ExecutionRunner
from strands_durable._enginekit.agent_loop import AgentLoop
from strands_durable._enginekit.driver import Driver
from strands_durable._enginekit.replica import Replica
from strands_durable._records import crash_points
from strands_durable._records.change_sets import ChangeSet
from strands_durable._records.executions import ExecutionStatus
from strands_durable.testing import ScriptedModel, call
from tests import threads

done: list[tuple[str, int]] = []
"""What was really done, and in which attempt."""


def note(what: str) -> None:
    step = current_step()
    assert step is not None
    done.append((what, step.attempt))


class Billed(ScriptedModel):
    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        note(f"model {len(messages)}")
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


@tool
def book(city: str) -> str:
    """Book a hotel, in a thread."""
    note(f"book {city}")
    return f"booked {city}"


@tool
async def pay(amount: int) -> str:
    """Pay in a recorded step."""
    note(f"pay {amount}")
    return await durable.step("charge", lambda: note(f"charge {amount}") or f"charged {amount}")


@durable_agent
def turner() -> Agent:
    """Two tools at the same time, one of them with a step inside."""
    script = [[call("book", city="Rome"), call("pay", amount=3)], call("book", city="Oslo"), "All is booked."]
    return Agent(model=Billed(script), tools=[book, pay], callback_handler=None)


class Engine:
    """Keeps the reported batches of one execution, and lets every step run."""

    def __init__(self) -> None:
        replica = Replica.new("new")
        Requests(replica).dispatch(turner.spec_with(), "Go", "run", None, None)
        self._batches: list[ChangeSet] = [replica.changes()]
        self._loop = AgentLoop()
        self.points: list[str] = []

    def close(self) -> None:
        self._loop.stop()

    def status(self) -> ExecutionStatus:
        """Have a driver carry the execution as far as it goes."""
        return self.drained_at(None)

    def drained_at(self, point: str | None, *, cancelled: bool = False) -> ExecutionStatus:
        """Have a driver carry the execution, and want it back when it reaches a point; or have it cancelled, then."""
        replica, news, points = Replica("run"), threading.Event(), []
        replica.apply(*self._batches)
        driver = Driver(replica, ExecutionRunner(1e9), alone=False, on_notify=news.set)

        def reached(name: str) -> None:
            points.append(f"{name}@{sum(each.startswith(f'{name}@') for each in points) + 1}")
            if points[-1] == point:
                drain = threading.Thread(target=driver.halt, args=(ExecutionReleasedError(),), kwargs={"gently": True})
                drain.start()  # it is always another thread that wants it back
                threads.join(drain)
                if cancelled:
                    driver.halt()

        before = crash_points.listen(reached)
        try:
            self._loop.run(driver)
            while not (driver.is_over and driver.is_quiescent):
                assert news.wait(30), f"nothing more happens; drained at {point}"
                news.clear()
                if driver.is_quiescent and driver.has_unreported:
                    batch = driver.batch()
                    self._batches.append(batch.rows)
                    for turn_id in batch.tickets:
                        driver.open(turn_id)
        finally:
            crash_points.listen(before)
        self._batches.append(driver.batch().rows)
        self.points = points
        return driver.ended().status


@pytest.fixture
def engine() -> Iterator[Engine]:
    done.clear()
    found = Engine()
    yield found
    found.close()


def test_c08_an_execution_that_is_wanted_back_at_any_moment_has_no_step_in_doubt(engine: Engine) -> None:
    assert engine.status() is ExecutionStatus.COMPLETED
    expected, points = sorted(done), engine.points
    assert len(expected) == 7
    assert len(points) > 30
    for point in points:
        done.clear()
        other = Engine()
        try:
            first = other.drained_at(point)
            assert first is ExecutionStatus.COMPLETED or other.status() is ExecutionStatus.COMPLETED
        finally:
            other.close()
        assert sorted(done) == expected, f"drained at {point}"


def test_c03_what_is_wanted_back_can_still_be_cancelled(engine: Engine) -> None:
    assert engine.drained_at("tool.start:after@1", cancelled=True) is ExecutionStatus.CANCELLED
