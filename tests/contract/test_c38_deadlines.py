"""C38: what happens at the deadline of a question, on a file: with workers that are killed, and in scripts."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, ExecutionHandle, ExecutionStatus, OpenQuestion, connect, durable_agent
from strands_durable._dispatch.deadlines import DeadlineKeeper, expiring
from strands_durable._records.questions import default_answer, expires_in
from strands_durable._records.views import Question
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.journal import Journal
from strands_durable.errors import BackendUnavailableError, UnreadableError
from strands_durable.testing import CrashPoints, ScriptedModel, call, forget_process
from strands_durable.testing.memory import MemoryBackend
from tests.commands import cli
from tests.processes import Child, run
from tests.waiting import until

URL = "sqlite:///runs.db"
OFF = f"{URL}?worker=off"


@tool(context=True)
def ask(what: str, seconds: float, tool_context: ToolContext) -> str:
    """Ask a person, for a limited time."""
    answer = tool_context.interrupt(what, reason={"expires_in": seconds, "default": f"no {what}"})
    with open("answers", "a") as file:
        file.write(f"{answer}\n")
    return str(answer)


@durable_agent(name="c38-asker")
def asker(questions: dict[str, float]) -> Agent:
    calls = [call("ask", what=what, seconds=seconds) for what, seconds in questions.items()]
    return Agent(model=ScriptedModel([calls, "Done."]), tools=[ask], callback_handler=None)


def answers() -> list[str]:
    return Path("answers").read_text().splitlines() if Path("answers").exists() else []


def dispatch(**questions: float) -> None:
    asyncio.run(asker.on(OFF).dispatch_async("Go", execution_id="trip", questions=questions))


def recorded() -> list[tuple[Any, str | None]]:
    (found,) = Catalog("runs.db").execution("trip").calls
    return [(answer.answer, answer.by) for answer in found.answers]


def status() -> str:
    return Catalog("runs.db").executions()[0].status.value


def work(folder: str, point: str | None = None) -> None:
    """Be a worker until the file ``stop`` exists, or until a point."""
    os.chdir(folder)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        working = asyncio.ensure_future(connect(URL).work(stop=stop))
        while not Path("stop").exists():
            await asyncio.sleep(0.01)
        stop.set()
        await working

    points = CrashPoints()
    with points.recording() if point is None else points.crashing(point):
        asyncio.run(until_stopped())


@pytest.mark.parametrize("point", ["deadline:before@1", "reply:before@1", "reply:after@1", "deadline:after@1"])
def test_c38_a_worker_killed_at_the_deadline_has_the_question_answered_once(point: str) -> None:
    dispatch(trip=0.2)
    assert run(work, os.getcwd(), point).exitcode == -signal.SIGKILL
    last = Child(work, os.getcwd())
    until(lambda: status() == "COMPLETED")
    Path("stop").touch()
    last.join().checked()
    assert recorded() == [("no trip", "deadline")]
    assert answers() == ["no trip"]


def test_c38_the_deadline_is_shown_and_then_who_answered() -> None:
    dispatch(trip=3600)
    worker = Child(work, os.getcwd())
    until(lambda: status() == "SUSPENDED")
    text = cli("show", "trip", "--store", "runs.db").stdout
    assert "answered with no trip in 60.0 min" in text
    Path("stop").touch()
    worker.join().checked()


def test_c38_a_question_that_stays_open_keeps_its_first_deadline() -> None:
    dispatch(flight=3600, hotel=3600)
    worker = Child(work, os.getcwd())
    until(lambda: status() == "SUSPENDED")
    first = {each.question.name: each.question for each in Catalog("runs.db").questions()}
    asyncio.run(_respond({first["flight"].interrupt_id: "yes"}))
    until(lambda: [each.question.name for each in Catalog("runs.db").questions()] == ["hotel"])
    Path("stop").touch()
    worker.join().checked()
    (hotel,) = Catalog("runs.db").questions()
    assert hotel.question.expires_at == first["hotel"].expires_at
    assert hotel.asked_at > 0


async def _respond(given: dict[str, Any]) -> None:
    await (await connect(OFF).get("trip")).respond(given)


# Scripts


def script(folder: str, point: str | None = None) -> str:
    os.chdir(folder)
    plugin = Durability("runs.db", execution_id="trip")
    model = ScriptedModel([call("ask", what="trip", seconds=0.05), "Done."])
    agent = Agent(model=model, tools=[ask], plugins=[plugin], callback_handler=None)
    points = CrashPoints()
    with points.recording() if point is None else points.crashing(point):
        return str(agent("Go").stop_reason)


@pytest.mark.parametrize("point", [None, "question.expired:before@1", "question.expired:after@1"])
def test_c38_the_next_run_of_a_script_applies_the_deadline_once(point: str | None) -> None:
    assert run(script, os.getcwd()).checked() == "interrupt"
    (found,) = Catalog("runs.db").questions()
    until(lambda: (found.question.expires_at or 0.0) < time.time())
    if point is not None:
        assert run(script, os.getcwd(), point).exitcode == -signal.SIGKILL
    assert run(script, os.getcwd()).checked() == "end_turn"
    assert run(script, os.getcwd()).checked() == "end_turn"
    assert recorded() == [("no trip", "deadline")]
    assert answers() == ["no trip"]


def test_c38_before_the_deadline_a_script_that_runs_again_gets_the_question() -> None:
    plugin = Durability("runs.db", execution_id="trip")
    for _ in range(2):
        model = ScriptedModel([call("ask", what="trip", seconds=3600), "Done."])
        agent = Agent(model=model, tools=[ask], plugins=[plugin], callback_handler=None)
        result: Any = agent("Go")
        assert result.stop_reason == "interrupt"
        forget_process()
    assert answers() == []


def test_c38_two_workers_that_answer_at_once_record_one_answer() -> None:
    assert run(script, os.getcwd()).checked() == "interrupt"
    (found,) = Catalog("runs.db").questions()
    until(lambda: (found.question.expires_at or 0.0) < time.time())

    async def both() -> list[int]:
        return list(await asyncio.gather(*(DeadlineKeeper(connect(OFF)).look() for _ in range(2))))

    assert sum(asyncio.run(both())) >= 1
    assert recorded() == [("no trip", "deadline")]
    assert connect(OFF).sync.expire_questions() == 0


def test_c38_a_keeper_reads_only_what_has_changed_since() -> None:
    asked: list[float | None] = []

    class Backend:
        async def questions(self, *, since: float | None = None) -> list[OpenQuestion]:
            asked.append(since)
            return await connect(OFF).questions(since=since)

    plugin = Durability("runs.db", execution_id="trip")
    model = ScriptedModel([call("ask", what="trip", seconds=3600), "Done."])
    Agent(model=model, tools=[ask], plugins=[plugin], callback_handler=None)("Go")
    keeper = DeadlineKeeper(Backend())  # type: ignore[arg-type]
    for _ in range(2):
        assert asyncio.run(keeper.look()) == 0
    assert asked[0] is None
    assert asked[1] is not None


@pytest.mark.parametrize("wrong", ["soon", True, -1, float("inf"), None])
def test_c38_what_is_no_number_of_seconds_is_no_deadline(wrong: Any) -> None:
    assert expires_in({"expires_in": wrong}) is None
    assert expires_in("a text") is None
    assert expires_in({"expires_in": 0}) == 0.0
    assert default_answer({"default": None}) is default_answer("a text") is False


def test_c38_more_seconds_than_can_be_shown_are_no_deadline_and_fail_no_run() -> None:
    for seconds in (10**400, 1e300, 1e12):
        assert expires_in({"expires_in": seconds}) is None
    assert expires_in({"expires_in": 86_400 * 365}) == 86_400 * 365


def test_c38_a_person_who_answers_while_a_script_looks_at_the_deadline_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(script, os.getcwd()).checked() == "interrupt"
    (found,) = Catalog("runs.db").questions()
    until(lambda: (found.question.expires_at or 0.0) < time.time())
    transaction = Journal.transaction

    def answered_first(self: Journal, label: str, **given: Any) -> Any:
        if label == "question.expired":
            asyncio.run_coroutine_threadsafe(_respond({found.question.interrupt_id: "yes"}), loop).result()
        return transaction(self, label, **given)

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    monkeypatch.setattr(Journal, "transaction", answered_first)
    assert script(os.getcwd()) == "end_turn"
    loop.call_soon_threadsafe(loop.stop)
    assert answers() == ["yes"]


class Unavailable:
    """A backend whose store cannot be written to for a while."""

    def __init__(self) -> None:
        self.failures = 1
        self.asked: list[float | None] = []
        self.found: list[OpenQuestion] = []

    async def questions(self, *, since: float | None = None) -> list[OpenQuestion]:
        self.asked.append(since)
        return [each for each in self.found if since is None or each.asked_at >= since]

    async def get(self, execution_id: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise BackendUnavailableError("runs.db", "another process has held its lock")
        return self

    async def respond(self, given: dict[str, Any], by: str) -> None:
        self.found.clear()


def asked(at: float) -> OpenQuestion:
    question = Question(interrupt_id="1", name="trip", reason=None, answers=None, expires_at=time.time() - 1)
    return OpenQuestion(execution_id="trip", agent=None, question=question, asked_at=at)


def test_c38_a_deadline_that_could_not_be_recorded_is_applied_at_the_next_look() -> None:
    backend = Unavailable()
    backend.found = [asked(time.time() - 7200), asked(time.time())]
    keeper = DeadlineKeeper(backend)  # type: ignore[arg-type]
    assert asyncio.run(keeper.look()) == 0
    backend.found = []
    assert asyncio.run(keeper.look()) == 1
    assert asyncio.run(keeper.look()) == 0


def test_c38_a_question_of_a_clock_that_is_ahead_hides_no_later_question() -> None:
    backend = Unavailable()
    backend.failures = 0
    backend.found = [asked(time.time() + 86_400)]
    keeper = DeadlineKeeper(backend)  # type: ignore[arg-type]
    assert asyncio.run(keeper.look()) == 1
    backend.found = [asked(time.time())]
    assert asyncio.run(keeper.look()) == 1


def test_c38_an_execution_that_cannot_be_read_hides_no_question_of_another() -> None:
    class Damaged(MemoryBackend):
        async def get(self, execution_id: str) -> ExecutionHandle:
            if execution_id == "damaged":
                raise UnreadableError("a row of it is damaged")
            return await super().get(execution_id)

    async def asked_in() -> list[str]:
        backend, stop = Damaged("memory://c38-damaged"), asyncio.Event()
        working = asyncio.ensure_future(backend.work(stop=stop))
        for execution_id in ("whole", "damaged"):
            given = {"execution_id": execution_id, "questions": {"trip": 3600}}
            await asker.on(backend).dispatch_async("Go", **given)  # type: ignore[arg-type]
        while len(await backend.list(status=ExecutionStatus.SUSPENDED)) < 2:
            await asyncio.sleep(0.01)
        stop.set()
        await working
        return [each.execution_id for each in await backend.questions()]

    assert asyncio.run(asked_in()) == ["whole"]


def test_c38_thousands_of_open_questions_do_not_slow_the_runs_of_a_worker() -> None:
    """A look that takes long is followed by a long rest, and a run has its turn between two answers."""
    looks: list[float] = []
    turns: list[int] = []

    class Busy(Unavailable):
        async def questions(self, *, since: float | None = None) -> list[OpenQuestion]:
            looks.append(time.monotonic())
            time.sleep(0.02)
            return [replace(asked(time.time()), execution_id=str(number)) for number in range(100)]

        async def respond(self, given: dict[str, Any], by: str) -> None:
            turns.append(0)

    async def worker() -> None:
        backend = Busy()
        backend.failures = 0
        async with expiring(backend, 0.0):  # type: ignore[arg-type]
            while len(looks) < 2:
                if turns:
                    turns[-1] += 1
                await asyncio.sleep(0)

    asyncio.run(worker())
    assert len(turns) == 100
    assert min(turns) >= 1
    assert looks[1] - looks[0] > 20 * 0.02
