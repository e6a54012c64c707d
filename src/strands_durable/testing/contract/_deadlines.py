"""C38: questions with a deadline."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ... import ExecutionHandle, errors
from .. import agents
from ._bench import Bench, S

_SOON, _LATE = 0.3, 3600


def _asking(bench: Bench, seconds: float, **more: Any) -> ExecutionHandle:
    ask = {"tool": "ask_until", "what": "trip", "seconds": seconds, **more}
    return bench.dispatch(ask, "Done.", agent=agents.contract_deadline)


def _until_answered(bench: Bench, handle: ExecutionHandle) -> Any:
    """Wait until a worker has answered at the deadline and the execution has completed; without workers, answer here."""

    def is_over() -> bool:
        if bench.backend.invoker is not None:
            bench.run(bench.backend.expire_questions())
        return bench.status(handle) is S.COMPLETED

    bench.until(is_over)
    (call,) = bench.run(handle.detail()).calls
    (answer,) = call.answers
    return answer


class DeadlinesContract:
    """What happens to a question that gets no answer."""

    def test_c38_a_question_is_answered_with_its_default_at_its_deadline(self, bench: Bench) -> None:
        began = time.time()
        handle = _asking(bench, _SOON, default="no")
        answer = _until_answered(bench, handle)
        assert (answer.answer, answer.by, answer.is_taken) == ("no", "deadline", True)
        assert answer.at >= began + _SOON
        assert str(bench.result(handle)) == "Done.\n"
        assert [mark["answer"] for mark in bench.marks("answered")] == ["no"]

    def test_c38_without_a_default_the_answer_is_false(self, bench: Bench) -> None:
        assert _until_answered(bench, _asking(bench, _SOON)).answer is False
        assert [mark["answer"] for mark in bench.marks("answered")] == [False]

    def test_c38_an_answer_before_the_deadline_wins(self, bench: Bench) -> None:
        handle = _asking(bench, _LATE, default="no")
        (question,) = bench.result(handle).interrupts
        bench.run(handle.respond({question.interrupt_id: "yes"}, by="ann"))
        assert str(bench.result(handle)) == "Done.\n"
        assert bench.run(bench.backend.expire_questions()) == 0
        assert [mark["answer"] for mark in bench.marks("answered")] == ["yes"]

    def test_c38_after_the_deadline_another_answer_is_refused(self, bench: Bench) -> None:
        handle = _asking(bench, _SOON, default="no")
        question = _until_answered(bench, handle)
        with pytest.raises(errors.InputMismatchError):
            bench.run(handle.respond({question.interrupt_id: "yes"}))

    def test_c38_the_deadline_of_an_open_question_is_shown(self, bench: Bench) -> None:
        before = time.time()
        bench.result(_asking(bench, _LATE, default={"approve": False}))
        bench.until(lambda: bench.run(bench.backend.questions()))  # a list may lag behind
        (found,) = bench.run(bench.backend.questions())
        assert found.question.default == {"approve": False}
        assert before + _LATE <= (found.question.expires_at or 0.0) <= time.time() + _LATE
        assert bench.run(bench.backend.expire_questions()) == 0
