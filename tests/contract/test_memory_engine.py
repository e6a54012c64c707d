"""What the kit gives an engine, on the smallest one: lost workers, fences, owners, sleeps, limits and compaction."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ModelRetryStrategy, tool
from strands.types.exceptions import ModelThrottledException

from strands_durable import (
    DurableAgent,
    ExecutionHandle,
    ExecutionStatus,
    connect,
    durable,
    durable_agent,
    errors,
    policy,
)
from strands_durable._dispatch.requests import Requests
from strands_durable._dispatch.runner import ExecutionRunner
from strands_durable._enginekit.agent_loop import AgentLoop
from strands_durable._enginekit.driver import Driver
from strands_durable._enginekit.log import StaleError
from strands_durable._enginekit.payloads import PayloadLimits, PayloadStore
from strands_durable._enginekit.replica import Replica
from strands_durable._enginekit.session import SessionPool
from strands_durable._journal.owner import Owner
from strands_durable._records.change_sets import pack
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.agents import contract_agent
from strands_durable.testing.memory import MemoryBackend
from tests import threads
from tests.waiting import until

S = ExecutionStatus
PATIENCE_SECONDS = 20.0
done: list[str] = []
gates: dict[str, threading.Event] = {}


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()
    gates.clear()
    gates.update({name: threading.Event() for name in ("slow", "once")})


@tool
def quick(city: str) -> str:
    """Book at once."""
    done.append(f"quick {city}")
    return f"booked {city}"


@tool
def slow(city: str) -> str:
    """Book when the test lets it."""
    done.append(f"slow {city}")
    assert gates["slow"].wait(PATIENCE_SECONDS)
    return f"booked {city}"


@policy(in_doubt="fail")
@tool
def once(city: str) -> str:
    """Book never twice."""
    done.append(f"once {city}")
    assert gates["once"].wait(PATIENCE_SECONDS)
    return f"booked {city}"


@tool
async def nap(seconds: float) -> str:
    """Sleep, between two effects."""
    await durable.step("before", lambda: done.append("before"))
    await durable.sleep(seconds)
    await durable.step("after", lambda: done.append("after"))
    return "slept"


class Throttled(ScriptedModel):
    """Refuses every call."""

    async def stream(self, *args: Any, **given: Any) -> Any:
        done.append("model")
        raise ModelThrottledException("slow down")
        yield


@durable_agent
def booker(script: list[Any]) -> Agent:
    """Say what it is given, with these tools."""
    turns = [[call(name, **given) for name, given in turn] if isinstance(turn, list) else turn for turn in script]
    return Agent(model=ScriptedModel(turns), tools=[quick, slow, once, nap], callback_handler=None)


@durable_agent
def refused(max_attempts: int, initial_delay: int) -> Agent:
    """Ask a model that is throttled for ever."""
    strategy = ModelRetryStrategy(max_attempts=max_attempts, initial_delay=initial_delay, max_delay=2)
    return Agent(model=Throttled([]), retry_strategy=strategy, callback_handler=None)


class Bench:
    """A backend in memory, and workers in threads."""

    def __init__(self) -> None:
        self.backend = connect(f"memory://{uuid.uuid4().hex}")
        assert isinstance(self.backend, MemoryBackend)
        self.memory: MemoryBackend = self.backend

    def dispatch(self, agent: DurableAgent, **given: Any) -> ExecutionHandle:
        return asyncio.run(self.backend.dispatch(agent.spec_with(**given), "Go", execution_id="run"))

    def result(self, handle: ExecutionHandle) -> str:
        return str(asyncio.run(handle.result(PATIENCE_SECONDS))).strip()

    def tools(self, handle: ExecutionHandle) -> list[tuple[str, int, str]]:
        steps = asyncio.run(handle.steps())
        return [(step.name, step.attempt, step.status) for step in steps if step.kind == "tool"]

    @contextmanager
    def worker(self) -> Iterator[None]:
        with threads.worker(lambda stop: self.backend.work(stop=stop, drain_seconds=5)):
            yield


@pytest.fixture
def bench() -> Bench:
    return Bench()


def has_done(what: str, times: int = 1) -> Callable[[], bool]:
    return lambda: done.count(what) >= times


BOTH = [[["quick", {"city": "Rome"}], ["slow", {"city": "Oslo"}]], "Done."]


def test_a_result_is_on_record_while_its_sibling_runs_and_is_not_run_again(bench: Bench) -> None:
    handle = bench.dispatch(booker, script=BOTH)
    with bench.worker():
        until(lambda: ("quick", 1, "done") in bench.tools(handle) and has_done("slow Oslo")())
        bench.memory.lose_workers()
        with bench.worker():
            until(has_done("slow Oslo", 2))
            gates["slow"].set()
            assert bench.result(handle) == "Done."
    assert done.count("quick Rome") == 1
    assert sorted(bench.tools(handle))[1:] == [("slow", 1, "started"), ("slow", 2, "done")]


def test_what_a_lost_worker_still_does_is_no_part_of_the_execution(bench: Bench) -> None:
    handle = bench.dispatch(booker, script=[[["once", {"city": "Oslo"}]], "Done."])
    with bench.worker():
        until(has_done("once Oslo"))
        bench.memory.lose_workers()
        with bench.worker():
            assert bench.result(handle) == "Done."  # its policy has told the model that the outcome is unknown
        entries = len(bench.memory._service.entries["run"])
        gates["once"].set()
    assert len(bench.memory._service.entries["run"]) == entries
    assert done == ["once Oslo"]


def test_two_writers_at_one_position_cannot_both_append(bench: Bench) -> None:
    bench.dispatch(booker, script=["Hi."])

    async def race() -> list[str]:
        one, other = await bench.memory.read("run"), await bench.memory.read("run")
        pools = [SessionPool(bench.memory.log, name) for name in ("one", "other")]
        ends = await asyncio.gather(pools[0].run(one), pools[1].run(other), return_exceptions=True)
        for pool in pools:
            pool.close()
        return sorted(type(end).__name__ for end in ends)

    assert asyncio.run(race()) == ["RunEnd", "StaleError"]
    with pytest.raises(StaleError):
        asyncio.run(bench.memory.log.append("run", None, {}))


def test_deaths_are_counted_of_owners_that_only_the_engine_tells_apart(bench: Bench) -> None:
    handle = bench.dispatch(booker, script=BOTH)

    async def quick_is_recorded() -> bool:  # a step that ends in a later run would clear the execution
        return any(step.name == "quick" and step.status == "done" for step in await handle.steps())

    async def killed(number: int) -> None:
        pool = SessionPool(bench.memory.log, f"worker {number}")
        task = asyncio.create_task(pool.run(await bench.memory.read("run")))
        while not ((has_done("slow Oslo", number + 1)() and await quick_is_recorded()) or task.done()):
            await asyncio.sleep(0.01)
        task.cancel()  # as with a process that is killed: nothing more is appended
        await asyncio.gather(task, return_exceptions=True)

    for number in range(10):
        asyncio.run(killed(number))
        if asyncio.run(handle.status()) is S.FAILED:
            break
    gates["slow"].set()
    with pytest.raises(errors.ExecutionFailedError) as caught:
        bench.result(handle)
    assert isinstance(caught.value.__cause__, errors.WorkerLostError)
    assert number == 4, "one that was not alone, then three that were, and the one that fails it"


def test_an_execution_that_is_cleared_stays_where_it_is(bench: Bench) -> None:
    handle = bench.dispatch(booker, script=BOTH)
    with bench.worker():
        until(has_done("slow Oslo"))
        bench.memory.lose_workers()
        with bench.worker():
            until(has_done("slow Oslo", 2))
            gates["slow"].set()
            assert bench.result(handle) == "Done."
    fence = asyncio.run(bench.memory.read("run")).replica.read("SELECT fence FROM executions")
    assert fence == [(2,)], "two claims: it was not left once it was cleared"


class Engine:
    """Drives one execution by hand."""

    def __init__(self, agent: DurableAgent, replica: Replica | None = None, name: str = "one", **given: Any) -> None:
        if replica is None:
            replica = Replica.new("new")
            Requests(replica).dispatch(agent.spec_with(**given), "Go", "run", None, None)
        self.replica, self._news, self._loop = replica, threading.Event(), AgentLoop()
        self.driver = Driver(
            replica, ExecutionRunner(1e9), on_notify=self._news.set, owner=Owner.me().within(name), reports_claim=True
        )
        self._loop.run(self.driver)

    def until(self, condition: Callable[[], object]) -> None:
        """Let steps run, each at its time, until something is so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            self._news.wait(0.01)
            self._news.clear()
            if self.driver.is_quiescent:
                self.driver.batch()
                for ticket_id, ticket in self.driver.waiting().items():
                    if ticket.until <= time.time():
                        self.driver.open(ticket_id)

    def until_over(self) -> None:
        self.until(lambda: self.driver.is_over and self.driver.is_quiescent)
        self._loop.stop()

    def next(self, name: str) -> Engine:
        """Go on in another process, as far as anybody can tell."""
        other = Replica(f"run-{name}")
        other.apply(self.replica.export())
        return Engine(booker, other, name)


def test_steps_that_wait_and_run_can_be_looked_at_without_telling_of_them() -> None:
    engine = Engine(booker, script=BOTH)
    engine.until(has_done("slow Oslo"))
    engine.until(lambda: len(engine.driver.running()) == 1)
    (ticket,) = engine.driver.running().values()
    assert (ticket.name, ticket.may_repeat) == ("slow", True)
    assert engine.driver.waiting() == {}
    gates["slow"].set()
    until(lambda: engine.driver.waiting())
    assert engine.driver.has_results
    (ticket,) = engine.driver.waiting().values()
    assert (ticket.kind, ticket.until) == ("model", 0.0)
    assert engine.driver.waiting(), "to look is not to tell"
    engine.until_over()
    assert engine.driver.ended().status is S.COMPLETED


def test_a_step_does_not_start_before_a_batch_has_reported_its_intent() -> None:
    engine = Engine(booker, script=[[["quick", {"city": "Rome"}]], "Done."])
    until(lambda: engine.driver.waiting())
    (ticket_id,) = engine.driver.waiting()
    assert not engine.driver.open(ticket_id), "its intent is in no batch"
    assert ticket_id in engine.driver.waiting(), "it still waits for its turn"
    assert list(engine.driver.batch().tickets) == [ticket_id]
    assert engine.driver.open(ticket_id)
    engine.until_over()
    assert done == ["quick Rome"]


def test_a_step_that_must_not_be_repeated_says_so() -> None:
    engine = Engine(booker, script=[[["once", {"city": "Oslo"}]], "Done."])
    engine.until(has_done("once Oslo"))
    assert [ticket.may_repeat for ticket in engine.driver.running().values()] == [False]
    gates["once"].set()
    engine.until_over()


def test_a_step_that_is_given_up_at_a_time_limit_fails_the_execution_and_can_record_nothing_more() -> None:
    engine = Engine(booker, script=BOTH)
    engine.until(has_done("slow Oslo"))
    batch = engine.driver.give_up(errors.UnsupportedFeatureError("slow", "it runs longer than the function may"))
    assert engine.driver.ended().status is S.FAILED
    whole = engine.replica.export()
    gates["slow"].set()
    engine.until_over()
    assert batch.rows["tables"]["failures"]
    assert engine.replica.export() == whole
    other = Replica("other")
    other.apply(whole)
    Requests(other).resume("run")
    engine = Engine(booker, other, "two")
    engine.until_over()
    assert engine.driver.ended().status is S.COMPLETED
    assert done.count("quick Rome") == 1


def test_an_execution_can_be_left_while_it_sleeps_and_no_step_is_in_doubt() -> None:
    engine = Engine(booker, script=[[["nap", {"seconds": 2.0}], ["quick", {"city": "Rome"}]], "Done."])
    engine.until(lambda: engine.driver.sleeps_until)
    assert engine.driver.sleeps_until == pytest.approx(time.time() + 2.0, abs=1.5)
    engine.driver.leave_between_steps()
    engine.until_over()
    assert engine.driver.ended().status is S.RUNNING
    states = {step.name: step.status for step in engine.replica.detail().steps if step.kind == "tool"}
    assert states == {"quick": "done"}, "the intent of what sleeps is taken back"
    engine = engine.next("two")
    engine.until_over()
    assert engine.driver.ended().status is S.COMPLETED
    assert sorted(done) == ["after", "before", "quick Rome"], "effects are on record"


def test_a_step_that_must_not_be_repeated_is_not_left_in_its_sleep() -> None:
    engine = Engine(booker, script=[[["nap", {"seconds": 1.5}], ["once", {"city": "Rome"}]], "Done."])
    engine.until(lambda: has_done("once Rome")() and has_done("before")())
    engine.until(lambda: engine.driver.waiting())
    assert engine.driver.sleeps_until is None
    gates["once"].set()
    engine.until_over()
    assert sorted(done) == ["after", "before", "once Rome"]


def test_a_throttled_model_is_not_retried_for_ever_though_each_process_meets_it_once() -> None:
    engine, waits = Engine(refused, max_attempts=4, initial_delay=1), []
    for number in range(10):
        engine.until(lambda: engine.driver.is_over or engine.driver.sleeps_until)  # noqa: B023
        if engine.driver.is_over:
            break
        waits.append(round((engine.driver.sleeps_until or 0.0) - time.time(), 1))
        engine.driver.leave_between_steps()
        engine.until_over()
        engine = engine.next(f"worker {number}")
    assert engine.driver.ended().status is S.FAILED
    assert done == ["model"] * 4
    assert waits == [pytest.approx(seconds, abs=0.5) for seconds in (1, 2, 2)]


def test_a_person_who_resumes_a_throttled_execution_gives_it_all_its_retries_again() -> None:
    engine = Engine(refused, max_attempts=1, initial_delay=1)
    engine.until_over()
    assert engine.driver.ended().status is S.FAILED
    Requests(engine.replica).resume("run")
    engine = engine.next("two")
    engine.until_over()
    assert done == ["model"] * 2


def test_limits_of_payloads_are_those_of_the_engine(tmp_path: Any) -> None:
    replica = Replica.new("new")
    Requests(replica).dispatch(booker.spec_with(script=["x" * 3000]), "Go", "run", None, None)
    changes = replica.changes()
    small = PayloadLimits(max_bytes=100, max_text=50, plain_bytes=200, cell_bytes=1000)
    assert PayloadStore(None, small).max_text == 50
    with pytest.raises(errors.PayloadTooLargeError, match="100"):
        PayloadStore(None, small).offload(changes, "What is dispatched")
    parts = PayloadStore(None, small).offload(changes, "", put=lambda packed: {"parts": len(packed)})
    assert parts == {"parts": len(pack(changes))}
    store = PayloadStore(f"file://{tmp_path}", small)
    assert store.load(store.offload(changes, "")) == changes


def test_a_log_is_compacted_and_comes_to_the_same(bench: Bench) -> None:
    script = [*[[["quick", {"city": f"City {number}"}]] for number in range(8)], "Done."]
    handle = bench.dispatch(booker, script=script)

    async def run() -> None:
        pool = SessionPool(bench.memory.log, "one", compact_after=5)
        await pool.run(await bench.memory.read("run"))
        pool.close()

    asyncio.run(run())
    assert len(bench.memory._service.entries["run"]) == 1
    assert bench.result(handle) == "Done."
    assert len(bench.tools(handle)) == 8
    assert [event["number"] for event in asyncio.run(_events(handle))] == list(range(1, 18))


async def _events(handle: ExecutionHandle) -> list[Any]:
    return [event async for event in handle.stream()]


def test_c33_a_failed_execution_is_resumed_although_its_worker_has_not_let_go_of_it_yet(
    bench: Bench, tmp_path: Path
) -> None:
    handle = bench.dispatch(contract_agent, folder=str(tmp_path), script=[{"fails_until": "fixed"}])
    with bench.worker():
        with pytest.raises(errors.ExecutionFailedError):
            bench.result(handle)
        bench.memory._service.owners["run"] = "its worker"  # as for a moment after the failure is on record
        (tmp_path / "fixed").touch()
        asyncio.run(handle.resume())
        del bench.memory._service.owners["run"]
        assert bench.result(handle) == "Fixed."
