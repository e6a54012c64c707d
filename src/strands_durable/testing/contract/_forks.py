"""C39: a new execution from a finished step of another."""

from __future__ import annotations

from typing import Any

import pytest

from ... import ExecutionHandle, errors
from .. import agents
from ._bench import BOOK, WAIT, Bench, S

ROME = {"tool": "book", "city": "Rome"}
ASK = {"tool": "approve", "what": "trip"}
NEVER = {"fails_until": "never"}
TOLD = {"role": "user", "content": [{"text": "Book Oslo."}]}
HM = {"role": "assistant", "content": [{"text": "Hm."}]}


def forked(bench: Bench, handle: ExecutionHandle, at: int | None = None, name: str = "fork", **given: Any) -> Any:
    """Fork an execution."""
    return bench.run(handle.fork(at=at, execution_id=name, **given))


def failed(bench: Bench, *script: Any) -> ExecutionHandle:
    """Return an execution that has failed at the last turn of a script: its fork has something to run."""
    handle = bench.dispatch(*script)
    bench.fails(handle, errors.ExecutionFailedError)
    return handle


class ForksContract:
    """Forks."""

    def test_c39_a_fork_continues_after_the_last_finished_step_and_leaves_its_origin_alone(self, bench: Bench) -> None:
        origin = failed(bench, BOOK, {"fails_until": "fixed"})
        before = bench.run(origin.detail())
        bench.touch("fixed")
        fork = forked(bench, origin)
        result = bench.result(fork)
        assert (str(result), result.state) == ("Fixed.\n", {"booked": ["Paris"]})
        assert bench.booked() == ["Paris"]
        steps = bench.run(fork.steps())
        assert [step.ordinal for step in steps] == [1, 2, *range(3, len(steps) + 1)]
        assert bench.run(origin.detail()) == before
        assert bench.status(origin) is S.FAILED

    def test_c39_a_running_execution_is_forked_and_not_disturbed(self, bench: Bench) -> None:
        origin = bench.dispatch(BOOK, WAIT, "Done.")
        bench.until_waiting()
        fork = forked(bench, origin)
        bench.until_waiting(2)
        bench.touch()
        assert [str(bench.result(each)) for each in (origin, fork)] == ["Done.\n", "Done.\n"]
        assert bench.booked() == ["Paris"]
        assert len({mark["key"] for mark in bench.marks("wait")}) == 2, "keys after the fork are its own"

    def test_c39_every_finished_step_can_be_forked(self, bench: Bench) -> None:
        origin = failed(bench, BOOK, ROME, NEVER)
        last = max(step.ordinal or 0 for step in bench.run(origin.steps()))
        for at in range(last):
            already = len(bench.booked())
            fork = forked(bench, origin, at, f"fork-{at}")
            bench.fails(fork, errors.ExecutionFailedError)
            assert bench.booked()[already:] == [["Paris", "Rome"], ["Paris", "Rome"], ["Rome"], ["Rome"], []][at]

    def test_c39_an_ended_or_waiting_execution_is_forked_at_its_end_only_where_that_can_start(
        self, bench: Bench
    ) -> None:
        ended, asking = bench.dispatch("Done."), bench.dispatch(ASK, "Done.", execution_id="asking")
        results = [bench.result(each) for each in (ended, asking)]
        if not getattr(bench.backend, "starts_at_rest", True):
            for handle, what in ((ended, "had ended"), (asking, "waited for a person")):
                with pytest.raises(errors.ForkError, match=f"{what} with that step.*something to run"):
                    forked(bench, handle)
            return
        again = [forked(bench, handle, None, f"fork-{n}") for n, handle in enumerate((ended, asking))]
        assert [str(bench.result(each)) for each in again] == [str(each) for each in results]
        (asked,) = bench.run(again[1].interrupts())
        bench.run(again[1].respond({asked.id: "yes"}))
        assert bench.result(again[1]).status is S.COMPLETED
        assert bench.status(asking) is S.SUSPENDED

    def test_c39_a_fork_may_have_another_state(self, bench: Bench) -> None:
        origin = bench.dispatch(BOOK, WAIT, ROME, "Done.")
        bench.until_waiting()
        fork = forked(bench, origin, state={"booked": ["Oslo"]})
        bench.touch()
        states = [bench.result(each).state for each in (origin, fork)]
        assert states == [{"booked": ["Paris", "Rome"]}, {"booked": ["Oslo", "Rome"]}]

    def test_c39_a_fork_may_have_another_conversation(self, bench: Bench) -> None:
        origin = bench.dispatch(BOOK, WAIT, "Done.")
        bench.until_waiting()
        fork = forked(bench, origin, messages=[TOLD, HM, TOLD, HM, TOLD])
        assert str(bench.result(fork)) == "Done.\n", "what the model says in its third turn"
        assert len(bench.marks("wait")) == 1, "the open tool call is no longer part of the conversation"
        bench.touch()
        bench.result(origin)

    def test_c39_a_prompt_begins_another_turn_where_one_has_ended(self, bench: Bench) -> None:
        origin = bench.dispatch("First.", "Second.")
        assert str(bench.result(origin)) == "First.\n"
        fork = forked(bench, origin, prompt="And then?")
        assert str(bench.result(fork)) == "Second.\n"
        assert str(bench.result(origin)) == "First.\n"

    def test_c39_a_prompt_at_the_beginning_replaces_the_first_one(self, bench: Bench) -> None:
        for agent in (agents.contract_agent, agents.contract_graph):
            origin = bench.dispatch(BOOK, "Done.", agent=agent, execution_id=agent.name)
            bench.result(origin)
            fork = forked(bench, origin, 0, f"fork-{agent.name}", prompt="Go elsewhere")
            said = [sorted(str(bench.result(each)).splitlines()) for each in (origin, fork)]
            assert said[0] == said[1], "in any order: which of two nodes ends first depends on the load"
            assert [bench.run(each.detail()).calls[0].input for each in (origin, fork)] == ["Go", "Go elsewhere"]
        assert bench.booked() == ["Paris"] * 4

    def test_c39_a_cancelled_execution_is_forked_and_asks_what_it_had_asked(self, bench: Bench) -> None:
        origin = bench.dispatch(BOOK, ASK, "Done.")
        bench.result(origin)
        bench.run(origin.cancel())
        bench.until(lambda: bench.status(origin) is S.CANCELLED)
        last = max(step.ordinal or 0 for step in bench.run(origin.steps()))
        fork = forked(bench, origin, last - 1)
        (asked,) = bench.result(fork).interrupts
        bench.run(fork.respond({asked.id: "yes"}))
        assert bench.result(fork).status is S.COMPLETED
        assert (bench.booked(), bench.status(origin)) == (["Paris"], S.CANCELLED)

    def test_c39_changes_that_do_not_fit_are_refused_by_name(self, bench: Bench) -> None:
        origin = failed(bench, BOOK, NEVER)
        use = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "book", "input": {}}}]}
        for given, why in (
            ({"prompt": "And then?"}, "does not end a turn"),
            ({"messages": [TOLD, HM]}, "the last message is the assistant's"),
            ({"messages": [TOLD, use]}, "asks for tools without a result.*t1"),
            ({"messages": ["Book Oslo."]}, "message 0 is not a Strands message"),
            ({"messages": []}, "at least one message"),
            ({"at": 99}, "no finished step 99"),
        ):
            with pytest.raises(errors.ForkError, match=why):
                forked(bench, origin, **given)
        with pytest.raises(errors.ExecutionNotFoundError):
            bench.run(bench.run(bench.backend.get("fork")).status())
        with pytest.raises(errors.ExecutionExistsError, match="already an execution 'trip'"):
            forked(bench, origin, name="trip")
        with pytest.raises(errors.InvalidIdError):
            forked(bench, origin, name="no id")

    def test_c39_a_fork_records_its_origin(self, bench: Bench) -> None:
        origin = failed(bench, BOOK, NEVER)
        fork = bench.run(origin.fork(state={}))
        assert fork.execution_id.startswith("trip-fork-")
        found = bench.run(fork.detail()).origin
        last = max(step.ordinal or 0 for step in bench.run(origin.steps()))
        assert found is not None
        assert (found.execution_id, found.run, found.step, found.changed) == ("trip", 0, last, ("state",))
        assert "@" in found.by
        assert bench.run(origin.detail()).origin is None

    def test_c39_the_version_of_today_runs_a_fork(self, bench: Bench) -> None:
        origin = bench.dispatch_to_nobody("Done.")
        fork = forked(bench, origin)
        assert str(bench.result(fork)) == "Done.\n"
        assert bench.status(origin) is S.PENDING

    def test_c39_a_graph_is_forked_inside_its_nodes(self, bench: Bench) -> None:
        origin = bench.dispatch(BOOK, NEVER, agent=agents.contract_graph)
        bench.fails(origin, errors.ExecutionFailedError)
        bench.touch("never")
        fork = forked(bench, origin)
        assert bench.result(fork).status is S.COMPLETED
        assert bench.status(origin) is S.FAILED
