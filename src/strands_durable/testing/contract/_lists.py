"""C36: tags, sums, pages of the list, and the open questions of all executions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ... import errors
from ._bench import BOOK, Bench, S

ASK = {"tool": "approve", "what": "trip"}
ASK_TWICE = [{"tool": "approve", "what": "flight"}, {"tool": "approve", "what": "hotel"}]
ACME = {"tenant": "acme", "order": "A 7/é"}


def _ids(bench: Bench, **wanted: Any) -> list[str]:
    return [record.execution_id for record in bench.run(bench.backend.list(**wanted))]


class ListsContract:
    """How people find executions."""

    def test_c36_tags_are_recorded_with_the_execution_and_find_it(self, bench: Bench) -> None:
        bench.result(bench.dispatch("Hi.", execution_id="one", tags=ACME))
        bench.result(bench.dispatch("Hi.", execution_id="two", tags={"tenant": "acme"}))
        bench.result(bench.dispatch("Hi.", execution_id="three"))
        bench.until(lambda: set(_ids(bench, status=S.COMPLETED)) == {"one", "two", "three"})  # a list may lag behind
        assert set(_ids(bench, tags={"tenant": "acme"})) == {"one", "two"}
        assert _ids(bench, tags=ACME) == ["one"]
        assert _ids(bench, tags={"tenant": "other"}) == _ids(bench, tags={"acme": "tenant"}) == []
        records = {record.execution_id: record.tags for record in bench.run(bench.backend.list())}
        assert records == {"one": ACME, "two": {"tenant": "acme"}, "three": {}}
        handle = bench.run(bench.backend.get("one"))
        assert bench.run(handle.detail()).execution.tags == ACME

    def test_c36_the_same_id_with_other_tags_is_the_same_execution_and_keeps_its_tags(self, bench: Bench) -> None:
        bench.result(bench.dispatch("Hi.", tags=ACME))
        again = bench.dispatch("Hi.", tags={"tenant": "other"})
        assert str(bench.result(again)) == str(bench.result(bench.dispatch("Hi."))) == "Hi.\n"
        assert bench.run(again.detail()).execution.tags == ACME

    def test_c36_tags_survive_a_question_a_failure_and_a_resume(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK, {"fails_until": "fixed"}, tags=ACME)
        (question,) = bench.result(handle).interrupts
        bench.run(handle.respond({question.interrupt_id: "yes"}))
        bench.fails(handle, errors.ExecutionFailedError)
        bench.touch("fixed")
        bench.run(handle.resume())
        bench.result(handle)
        assert bench.run(handle.detail()).execution.tags == ACME
        bench.until(lambda: _ids(bench, status=S.COMPLETED, tags=ACME) == ["trip"])

    @pytest.mark.parametrize(
        "tags",
        [
            {"": "x"}, {"a b": "x"}, {"x" * 64: "x"}, {"x": ""}, {"x": "y" * 201}, {"x": "two\nlines"}, {"x": 7}, ["x"],
            {f"tag{number}": "x" for number in range(21)},
        ],
    )  # fmt: skip
    def test_c36_tags_that_cannot_be_recorded_are_refused_and_nothing_starts(self, bench: Bench, tags: Any) -> None:
        with pytest.raises(errors.InvalidTagError):
            bench.dispatch("Hi.", tags=tags)
        with pytest.raises(errors.InvalidTagError):
            bench.run(bench.backend.list(tags=tags))
        assert _ids(bench) == []

    def test_c36_tokens_and_time_are_summed_per_execution(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, "Booked.")
        usage = bench.result(handle).usage
        (record,) = [bench.run(handle.detail()).execution]
        assert record.tokens is not None
        assert vars(record.tokens) == {
            "input": usage["inputTokens"], "output": usage["outputTokens"], "total": usage["totalTokens"],
        }  # fmt: skip
        assert record.tokens.total > 0
        assert record.duration_seconds is not None
        assert 0 < record.duration_seconds < bench.patience_seconds
        bench.until(lambda: _ids(bench, status=S.COMPLETED) == ["trip"])
        (listed,) = bench.run(bench.backend.list())
        assert (listed.tokens, listed.duration_seconds) == (record.tokens, record.duration_seconds)

    def test_c36_what_has_not_begun_has_no_sums(self, bench: Bench) -> None:
        handle = bench.dispatch_to_nobody("Hi.")
        record = bench.run(handle.detail()).execution
        assert (record.tokens, record.duration_seconds) == (None, None)

    def test_c36_a_search_finds_executions_by_the_beginning_of_their_id(self, bench: Bench) -> None:
        for execution_id in ("order-1", "order-10", "order_1", "other"):
            bench.result(bench.dispatch("Hi.", execution_id=execution_id))
        bench.until(lambda: len(_ids(bench, status=S.COMPLETED)) == 4)
        assert set(_ids(bench, search="order-1")) == {"order-1", "order-10"}
        assert (
            set(_ids(bench, search="o")) == set(_ids(bench, search="")) == {"order-1", "order-10", "order_1", "other"}
        )
        assert _ids(bench, search="rder") == _ids(bench, search="ORDER") == []

    def test_c36_pages_of_the_list_follow_each_other_and_leave_nothing_out(self, bench: Bench) -> None:
        for number in range(5):
            bench.result(bench.dispatch("Hi.", execution_id=f"run-{number}", tags={"half": str(number % 2)}))
        bench.result(bench.dispatch(ASK, "Done.", execution_id="asks"))
        bench.dispatch_to_nobody("Hi.", execution_id="waits")
        bench.until(lambda: len(_ids(bench, status=[S.COMPLETED, S.SUSPENDED])) == 6)
        bench.until(lambda: len(_ids(bench)) == 7)
        whole = _ids(bench)
        assert whole == ["waits", "asks", "run-4", "run-3", "run-2", "run-1", "run-0"]
        assert self._pages(bench, limit=2) == [whole[:2], whole[2:4], whole[4:6], whole[6:]]
        assert self._pages(bench, limit=2, tags={"half": "0"}) == [["run-4", "run-2"], ["run-0"]]
        assert self._pages(bench, limit=3, search="run-", status=S.COMPLETED) == [whole[2:5], whole[5:]]
        with pytest.raises(ValueError, match="not a cursor"):
            _ids(bench, before="run-4")

    def _pages(self, bench: Bench, **wanted: Any) -> list[list[str]]:
        found: list[list[str]] = []
        cursor = None
        while page := bench.run(bench.backend.list(**wanted, before=cursor)):
            found.append([record.execution_id for record in page])
            cursor = page[-1].cursor
        return found

    def test_c36_the_open_questions_of_all_executions_are_found(self, bench: Bench) -> None:
        began = time.time()
        assert bench.run(bench.backend.questions()) == []
        first = bench.dispatch(ASK, "Done.", execution_id="first")
        bench.result(first)
        second = bench.dispatch(ASK_TWICE, "Both.", execution_id="second")
        flight, _ = sorted(bench.result(second).interrupts, key=lambda question: question.name)
        bench.result(bench.dispatch("Hi.", execution_id="done"))
        bench.until(lambda: len(_ids(bench, status=S.SUSPENDED)) == 2)  # a list may lag behind
        found = bench.run(bench.backend.questions())
        assert [each.execution_id for each in found] == ["second", "second", "first"]
        assert {each.question.name for each in found[:2]} == {"approve flight", "approve hotel"}
        assert (found[2].agent, found[2].question.name, found[2].question.reason) == (
            "contract_agent", "approve trip", {"what": "trip"},
        )  # fmt: skip
        assert began <= found[2].asked_at <= found[0].asked_at <= time.time()
        assert bench.run(bench.backend.questions(limit=1)) == found[:1]
        bench.run(second.respond({flight.interrupt_id: "yes"}))
        bench.result(second)
        bench.until(lambda: len(bench.run(bench.backend.questions())) == 2)
        assert [each.question.name for each in bench.run(bench.backend.questions())] == [
            "approve hotel",
            "approve trip",
        ]
