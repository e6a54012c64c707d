"""C4: answers from outside."""

from __future__ import annotations

import pytest

from ... import errors
from .. import agents
from ._bench import BOOK, WAIT, Bench, S

ASK = {"tool": "approve", "what": "trip"}
ASK_TWICE = [{"tool": "approve", "what": "flight"}, {"tool": "approve", "what": "hotel"}]


class AnswersContract:
    """Answers from outside, in every state."""

    def test_c04_an_answer_resumes_the_execution(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK, BOOK, "Done.")
        (question,) = bench.result(handle).interrupts
        assert bench.run(handle.interrupts()) == [question]
        assert (question.name, question.reason) == ("approve trip", {"what": "trip"})
        bench.run(handle.respond({question.id: {"yes": [1, 2]}}))
        assert str(bench.result(handle)) == "Done.\n"
        assert bench.run(handle.interrupts()) == []
        assert bench.booked() == ["Paris"]

    def test_c04_partial_answers_run_what_they_can_and_it_waits_again(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK_TWICE, "Both.")
        flight, hotel = sorted(bench.result(handle).interrupts, key=lambda question: question.name)
        bench.run(handle.respond({flight.id: "yes"}))
        assert bench.result(handle).interrupts == (hotel,)
        assert bench.run(handle.interrupts()) == [hotel]
        bench.run(handle.respond({hotel.id: "no"}))
        assert str(bench.result(handle)) == "Both.\n"
        assert sorted(mark["what"] for mark in bench.marks("approve")) == ["flight", "flight", "hotel", "hotel"]

    def test_c04_the_same_answer_again_changes_nothing_and_another_is_refused(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK, WAIT, "Done.")
        (question,) = bench.result(handle).interrupts
        bench.run(handle.respond({question.id: "yes"}))
        bench.run(handle.respond({question.id: "yes"}))
        with pytest.raises(errors.InputMismatchError):
            bench.run(handle.respond({question.id: "no"}))
        bench.until_waiting()
        bench.run(handle.respond({question.id: "yes"}))
        with pytest.raises(errors.InputMismatchError):
            bench.run(handle.respond({question.id: "no"}))
        bench.touch()
        assert str(bench.result(handle)) == "Done.\n"
        bench.run(handle.respond({question.id: "yes"}))
        with pytest.raises(errors.InputMismatchError):
            bench.run(handle.respond({question.id: "no"}))
        assert len(bench.marks("approve")) == 2

    def test_c04_who_answered_what_and_when_is_on_record(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK_TWICE, "Both.")
        flight, hotel = sorted(bench.result(handle).interrupts, key=lambda question: question.name)
        bench.run(handle.respond({flight.interrupt_id: {"seat": 3}}, by="ann"))
        assert bench.result(handle).interrupts == (hotel,)
        bench.run(handle.respond({hotel.interrupt_id: "no"}))
        bench.result(handle)
        (call,) = bench.run(handle.detail()).calls
        one, other = call.answers
        assert (one.interrupt_id, one.name, one.answer, one.by) == (
            flight.interrupt_id, "approve flight", {"seat": 3}, "ann",
        )  # fmt: skip
        assert (other.answer, other.is_taken) == ("no", True)
        assert "@" in str(other.by), "user@host if by is not passed"
        assert one.at < other.at

    def test_c04_no_answer_at_all_is_refused(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK, "Done.")
        (question,) = bench.result(handle).interrupts
        with pytest.raises(errors.UnsupportedFeatureError, match="null as an answer"):
            bench.run(handle.respond({question.interrupt_id: None}))
        assert bench.run(handle.interrupts()) == [question]

    def test_c04_answers_without_a_question_are_refused(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK, "Done.")
        (question,) = bench.result(handle).interrupts
        with pytest.raises(errors.InputMismatchError, match="open questions 'approve trip'") as caught:
            bench.run(handle.respond({question.id: "yes", "v1:not:asked": "yes"}))
        assert f"(interrupt_id {question.interrupt_id})" in str(caught.value)
        assert bench.run(handle.interrupts()) == [question], "all answers are recorded, or none"
        bench.run(handle.respond({}))
        assert bench.status(handle) is S.SUSPENDED
        done = bench.dispatch("Hi.", execution_id="done")
        bench.result(done)
        with pytest.raises(errors.InputMismatchError):
            bench.run(done.respond({"v1:not:asked": "yes"}))
        pending = bench.dispatch_to_nobody("Hi.", execution_id="pending")
        with pytest.raises(errors.InputMismatchError):
            bench.run(pending.respond({"v1:not:asked": "yes"}))

    def test_c04_an_answer_that_cannot_be_recorded_is_refused(self, bench: Bench) -> None:
        handle = bench.dispatch(ASK, "Done.")
        (question,) = bench.result(handle).interrupts
        with pytest.raises(errors.NotSerializableError):
            bench.run(handle.respond({question.id: object()}))
        assert bench.run(handle.interrupts()) == [question]

    def test_c04_a_malformed_answer_about_a_step_in_doubt_is_refused(self, bench: Bench) -> None:
        handle = bench.dispatch({"tool": "strange"}, "Done.")
        bench.fails(handle, errors.ExecutionFailedError)
        bench.run(handle.resume())
        (question,) = bench.result(handle).interrupts
        for wrong in ("yes", {"results": 1}, None):
            with pytest.raises(errors.InDoubtError):
                bench.run(handle.respond({question.id: wrong}))
        assert bench.run(handle.interrupts()) == [question]
        bench.run(handle.respond({question.id: {"result": "it is done"}}))
        assert str(bench.result(handle)) == "Done.\n"
        assert len(bench.marks("strange")) == 1

    def test_c04_answers_reach_the_node_that_asked(self, bench: Bench) -> None:
        for agent in (agents.contract_graph, agents.contract_swarm):
            handle = bench.dispatch(ASK, "Asked.", agent=agent, execution_id=agent.name)
            (question,) = bench.result(handle).interrupts
            bench.run(handle.respond({question.id: "yes"}))
            result = bench.result(handle)
            assert result.status is S.COMPLETED
            assert result.nodes["quick" if agent is agents.contract_graph else "first"].text == "Asked.\n"

    def test_c04_the_answers_of_a_call_need_the_id_of_the_run_that_asked(self, bench: Bench) -> None:
        agent = agents.contract_agent.on(bench.backend)
        given = {"folder": bench.folder, "script": [ASK, "Done."]}
        (question,) = bench.run(agent.invoke_async("Go", execution_id="trip", **given)).interrupts
        answer = [{"interruptResponse": {"interruptId": question.id, "response": "yes"}}]
        with pytest.raises(ValueError, match="need the execution_id"):
            bench.run(agent.invoke_async(answer, **given))
        assert str(bench.run(agent.invoke_async(answer, execution_id="trip", **given))) == "Done.\n"
