"""A worker on Temporal is killed inside the steps of many executions: for each of them its policy comes to pass elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strands_durable import ExecutionHandle, errors
from strands_durable.testing.temporal import TemporalServer
from tests.crash import crew
from tests.crash.temporal import HEARTBEAT_SECONDS, PATIENCE_SECONDS, Site
from tests.waiting import until

WAIT = {"tool": "wait", "path": "go"}
TOOLS = {
    "retry": {},
    "fail": {"in_doubt": "fail"},
    "happened": {"in_doubt": "verify"},
    "not-happened": {"in_doubt": "verify"},
    "ask-retry": {"in_doubt": "ask"},
    "ask-fail": {"in_doubt": "ask"},
    "ask-result": {"in_doubt": "ask"},
}
MODELS = {
    "model-retry": {},
    "model-fail": {"model_in_doubt": "fail"},
    "model-ask-retry": {"model_in_doubt": "ask"},
    "model-ask-fail": {"model_in_doubt": "ask"},
}


@dataclass(frozen=True)
class Lost:
    """Executions whose worker was killed, and another one."""

    site: Site
    handles: dict[str, ExecutionHandle]

    def entries(self, name: str, what: str) -> list[dict[str, Any]]:
        return self.site.ledger(execution_id=name, what=what)

    def ends(self, name: str) -> str:
        return str(self.site.result(self.handles[name]))

    def question(self, name: str) -> Any:
        result = self.site.result(self.handles[name])
        assert (result.stop_reason, self.site.status(self.handles[name])) == ("interrupt", "SUSPENDED")
        (found,) = result.interrupts
        return found

    def answer(self, name: str, answer: Any) -> None:
        self.site.run(self.handles[name].respond({self.question(name).id: answer}))

    def conversation(self, name: str) -> str:
        return str(self.site.seen(self.handles[name])["calls"])


@pytest.fixture(scope="module")
def lost(temporal: TemporalServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    with Site(temporal, tmp_path_factory.mktemp("lost")) as site:
        handles = {name: site.dispatch(name, WAIT, "Done.", **given) for name, given in TOOLS.items()}
        handles |= {name: site.dispatch(name, "Done.", waits_for="go", **given) for name, given in MODELS.items()}
        first = site.worker(len(handles))
        until(lambda: {entry["execution_id"] for entry in site.ledger()} == {*handles} and _has_begun(site))
        os.kill(first.pid, signal.SIGKILL)
        site.touch("verified happened")
        site.touch("go")
        site.worker()
        yield Lost(site, handles)


def _has_begun(site: Site) -> bool:
    return len(site.ledger(what="wait")) == len(TOOLS)


def test_c12_retry_runs_a_tool_in_doubt_again_with_the_same_idempotency_key(lost: Lost) -> None:
    assert lost.ends("retry") == "Done.\n"
    first, second = lost.entries("retry", "wait")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["key"] == second["key"]
    assert first["pid"] != second["pid"]


def test_c12_fail_returns_an_unknown_outcome_to_the_model(lost: Lost) -> None:
    assert lost.ends("fail") == "Done.\n"
    assert len(lost.entries("fail", "wait")) == 1
    assert "outcome of wait is unknown" in lost.conversation("fail")


@pytest.mark.parametrize(("name", "times"), [("happened", 1), ("not-happened", 2)])
def test_c12_verify_decides_whether_a_tool_runs_again(lost: Lost, name: str, times: int) -> None:
    assert lost.ends(name) == "Done.\n"
    waits, (verified,) = lost.entries(name, "wait"), lost.entries(name, "verify")
    assert [entry["attempt"] for entry in waits] == [*range(1, times + 1)]
    assert {entry["key"] for entry in waits} == {verified["key"]}
    assert ("it had happened" in lost.conversation(name)) is (times == 1)


@pytest.mark.parametrize(
    ("name", "answer", "times", "text"),
    [
        ("ask-retry", "retry", 2, "it is there"),
        ("ask-fail", "fail", 1, "outcome of wait is unknown"),
        ("ask-result", {"result": "by hand"}, 1, "by hand"),
    ],
)
def test_c12_ask_suspends_with_the_question_and_resumes_with_the_answer(
    lost: Lost, name: str, answer: Any, times: int, text: str
) -> None:
    assert "Did tool 'wait' take effect?" in lost.question(name).reason["question"]
    assert len(lost.entries(name, "wait")) == 1
    lost.answer(name, answer)
    assert lost.ends(name) == "Done.\n"
    waits = lost.entries(name, "wait")
    assert [entry["attempt"] for entry in waits] == [*range(1, times + 1)]
    assert len({entry["key"] for entry in waits}) == 1
    assert text in lost.conversation(name)


def test_c12_a_tool_that_its_worker_never_began_is_not_in_doubt_but_is_once_the_next_one_has(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Site(temporal, tmp_path) as site:
        handle = site.dispatch("run", WAIT, "Done.")
        first = site.worker()
        site.until_logged(what="wait")
        os.kill(first.pid, signal.SIGKILL)
        site.pardon(handle, epoch=1)  # or it would be tried alone, which begins with something else
        second = site.worker(target=crew.serve_deaf)
        until(lambda: site.given_out(handle).count("tool_call") == 2)
        os.kill(second.pid, signal.SIGKILL)
        site.worker(target=crew.serve_books)
        until(lambda: site.given_out(handle).count("run_agent") == 3, PATIENCE_SECONDS)
        shown = [(step.attempt, step.state) for step in site.run(handle.detail()).calls[0].steps if step.name == "wait"]
        assert shown == [(1, "in doubt")], "the second attempt has not begun"
        third = site.worker()
        site.until_logged(2, what="wait")
        os.kill(third.pid, signal.SIGKILL)
        site.touch("go")
        site.worker()
        assert str(site.result(handle)) == "Done.\n"
        assert [entry["attempt"] for entry in site.ledger(what="wait")] == [1, 2, 3]


def test_c12_what_a_lost_worker_says_too_late_undoes_no_step_of_the_next_one(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Site(temporal, tmp_path) as site:
        handle = site.dispatch("run", "Done.", waits_for="said")
        first = site.worker("told:before@1", target=crew.serve_until)
        assert first.join().exitcode == -signal.SIGKILL
        second = site.worker()
        site.until_logged(what="model")
        site.signal_late(handle, epoch=1)
        os.kill(second.pid, signal.SIGKILL)
        site.touch("said")
        site.worker()
        assert str(site.result(handle)) == "Done.\n"
        assert [entry["attempt"] for entry in site.ledger(what="model")] == [1, 2], "the first one was in doubt"


def test_c11_a_model_call_in_doubt_is_made_again(lost: Lost) -> None:
    assert lost.ends("model-retry") == "Done.\n"
    assert [entry["attempt"] for entry in lost.entries("model-retry", "model")] == [1, 2]


def test_c12_a_model_call_in_doubt_is_asked_about(lost: Lost) -> None:
    for name in ("model-ask-retry", "model-ask-fail"):
        assert "May the model be called again?" in lost.question(name).reason["question"]
        assert len(lost.entries(name, "model")) == 1
    lost.answer("model-ask-retry", "retry")
    assert lost.ends("model-ask-retry") == "Done.\n"
    assert [entry["attempt"] for entry in lost.entries("model-ask-retry", "model")] == [1, 2]
    lost.answer("model-ask-fail", "fail")
    _is_in_doubt(lost, "model-ask-fail")


def test_c12_a_model_call_in_doubt_fails_the_execution(lost: Lost) -> None:
    _is_in_doubt(lost, "model-fail")


def _is_in_doubt(lost: Lost, name: str) -> None:
    with pytest.raises(errors.ExecutionFailedError) as caught:
        lost.ends(name)
    assert isinstance(caught.value.__cause__, errors.InDoubtError)
    assert len(lost.entries(name, "model")) == 1


def test_c08_a_tool_and_a_model_that_take_longer_than_a_heartbeat_are_not_given_up(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Site(temporal, tmp_path) as site:
        handle = site.dispatch("run", {"tool": "rest", "seconds": 2 * HEARTBEAT_SECONDS}, "Done.")
        site.worker()
        assert str(site.result(handle)) == "Done.\n"
        assert site.given_out(handle) == ["run_agent", "model_call", "tool_call", "model_call"]


def test_c10_a_tool_that_has_ended_is_reported_during_a_slow_hook_and_does_not_run_again(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Site(temporal, tmp_path) as site:
        handle = site.dispatch("run", {"tool": "book", "city": "Rome"}, "Done.", agent=crew.hesitant)
        first = site.worker()
        site.until_logged(what="hesitate")
        until(lambda: "tool_call" in site.completed(handle))
        os.kill(first.pid, signal.SIGKILL)
        site.touch("go")
        site.worker()
        assert str(site.result(handle)) == "Done.\n"
        assert len(site.ledger(what="book")) == 1
