"""C27, C28: what a handle returns, compared with what Strands returns for the same agent."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from typing import Any

import pytest

from ... import DurableAgent, ExecutionResult, errors
from .. import agents
from ._bench import BOOK, WAIT, Bench, S

ASK = {"tool": "approve", "what": "trip"}
TRIP = {"tool": "Trip", "city": "Orléans", "price": 1e-7}
HANDOFF = {"tool": "handoff_to_agent", "agent_name": "second", "message": "over to you"}


def plainly(bench: Bench, agent: DurableAgent, *script: Any) -> Any:
    """Return the result of an agent of the contract without durability."""
    subject = agent.build({"folder": bench.folder, "script": list(script)})
    return bench.run(subject.invoke_async("Go"))


def data(result: ExecutionResult) -> Any:
    """Return a result as JSON data, after a round trip through text."""
    return json.loads(json.dumps(result.to_json()))


def _picture(first: int) -> bytes:
    """Return bytes that are larger than what is stored with the text around it."""
    return bytes([first, *range(256)] * 20)


def _seen(picture: bytes) -> list[Any]:
    return [{"text": "See."}, {"image": {"format": "png", "source": {"bytes": picture}}}]


BOOK_ALL = {"tool": "book_all", "trip": {"cities": ["Rome", "Oslo", "Rome"]}}


class ResultsContract:
    """Results and streams."""

    def test_c27_a_step_shows_what_it_changed_in_the_state(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, "Booked.")
        bench.result(handle)
        changes = [step.state_changes for step in bench.run(handle.steps())]
        assert changes == [None, {"state": {"set": {"booked": ["Paris"]}}}, None]

    def test_c27_large_bytes_are_shown_by_their_size_and_read_by_their_digest(self, bench: Bench) -> None:
        handle = bench.dispatch("Seen.", prompt=_seen(_picture(1)))
        bench.result(handle)
        shown = bench.run(handle.detail()).calls[0].input[1]["image"]["source"]["bytes"]
        assert shown == f"<{len(_picture(1))} bytes>"
        assert shown.digest == hashlib.sha256(_picture(1)).hexdigest()
        assert bench.run(handle.recorded_bytes(shown.digest)) == _picture(1)

    def test_c27_bytes_of_another_execution_cannot_be_read(self, bench: Bench) -> None:
        handles = [bench.dispatch("Seen.", prompt=_seen(_picture(n)), execution_id=f"trip-{n}") for n in (1, 2)]
        for handle in handles:
            bench.result(handle)
        other = hashlib.sha256(_picture(2)).hexdigest()
        assert bench.run(handles[1].recorded_bytes(other)) == _picture(2)
        for digest in (other, "", "%", "nonsense"):
            with pytest.raises(errors.BytesNotFoundError):
                bench.run(handles[0].recorded_bytes(digest))

    def test_c27_a_result_is_that_of_strands(self, bench: Bench) -> None:
        script = (BOOK, BOOK, "Booked both.")
        result, plain = bench.result(bench.dispatch(*script)), plainly(bench, agents.contract_agent, *script)
        assert str(result) == str(plain)
        assert result.message is not None
        assert (result.stop_reason, result.message["content"]) == (plain.stop_reason, plain.message["content"])
        assert result.usage == dict(plain.metrics.accumulated_usage)
        assert result.state == {"booked": ["Paris", "Paris"]}
        assert (result.structured_output, result.interrupts, result.nodes) == (None, (), {})
        assert data(result)["message"]["content"] == [{"text": "Booked both."}]
        assert data(result)["status"] == "COMPLETED"

    def test_c27_structured_output_is_data_and_reads_like_that_of_strands(self, bench: Bench) -> None:
        agent = agents.contract_structured
        result, plain = bench.result(bench.dispatch(TRIP, agent=agent)), plainly(bench, agent, TRIP)
        assert result.structured_output == plain.structured_output.model_dump() == {"city": "Orléans", "price": 1e-7}
        assert agents.Trip.model_validate(result.structured_output) == plain.structured_output
        assert str(result) == str(plain)
        assert data(result)["structured_output"] == result.structured_output

    @pytest.mark.parametrize("script", [("Quickly.",), (HANDOFF, "I handed over.")])
    def test_c27_results_of_a_graph_and_a_swarm_have_their_nodes(self, bench: Bench, script: tuple[Any, ...]) -> None:
        agent = agents.contract_graph if len(script) == 1 else agents.contract_swarm
        result = bench.result(bench.dispatch(*script, agent=agent))
        plain = plainly(bench, agent, *script)
        assert str(result) == str(plain)
        assert result.stop_reason == plain.status.value == "completed"
        assert list(result.nodes) == list(plain.results)
        assert {name: node.text for name, node in result.nodes.items()} == {
            name: str(node) for name, node in plain.results.items()
        }
        assert result.usage == dict(plain.accumulated_usage)
        inner = next(iter(result.nodes.values())).result
        assert inner is not None
        assert (inner.stop_reason, inner.status) == ("end_turn", S.COMPLETED)
        assert list(data(result)["nodes"]) == list(result.nodes)

    def test_c27_open_interrupts_read_like_those_of_strands(self, bench: Bench) -> None:
        for agent in (agents.contract_agent, agents.contract_graph):
            result = bench.result(bench.dispatch(ASK, "Done.", agent=agent, execution_id=agent.name))
            plain = plainly(bench, agent, ASK, "Done.")
            assert str(result) == str(plain)
            assert result.status is S.SUSPENDED
            assert result.stop_reason == getattr(plain, "stop_reason", None) or plain.status.value
            asked = [
                {"interrupt_id": found.id, "name": found.name, "reason": found.reason} for found in plain.interrupts
            ]
            assert [found.to_json() for found in result.interrupts] == asked
            assert data(result)["interrupts"] == asked

    def test_c27_a_result_is_frozen(self, bench: Bench) -> None:
        result = bench.result(bench.dispatch("Hi."))
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.stop_reason = "other"  # type: ignore[misc]

    def test_c27_a_failed_execution_raises_with_what_it_failed_with(self, bench: Bench) -> None:
        script = {"fails_until": "fixed"}
        error = bench.fails(bench.dispatch(script), errors.ExecutionFailedError)
        with pytest.raises(Exception, match="the model is out of order") as caught:
            plainly(bench, agents.contract_agent, script)
        assert type(error.__cause__) is type(caught.value)
        assert str(error.__cause__) == str(caught.value)
        assert "the model is out of order" in str(error)

    def test_c27_a_result_that_is_not_there_in_time_is_a_timeout_and_the_run_continues(self, bench: Bench) -> None:
        handle = bench.dispatch(WAIT, "Done.")
        with pytest.raises(TimeoutError, match="'trip'"):
            bench.run(handle.result(0.05))
        bench.until_waiting()
        with pytest.raises(TimeoutError):
            bench.run(handle.result(0))
        bench.touch()
        assert str(bench.result(handle)) == "Done.\n"
        assert str(bench.run(handle.result(0))) == "Done.\n"

    def test_c27_all_waiting_callers_get_the_result(self, bench: Bench) -> None:
        handle = bench.dispatch(WAIT, "Done.")
        bench.until_waiting()

        async def wait() -> list[Any]:
            others = [await bench.backend.get("trip") for _ in range(5)]
            waiting = [asyncio.ensure_future(each.result(bench.patience_seconds)) for each in (handle, *others)]
            await asyncio.sleep(0)
            bench.touch()
            return list(await asyncio.gather(*waiting))

        assert {str(result) for result in bench.run(wait())} == {"Done.\n"}

    def test_c28_a_stream_has_one_numbered_event_for_each_committed_step(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, "Booked.")

        async def recorded(after: int = 0) -> list[Any]:
            return [event async for event in handle.stream(after) if event["recorded"]]

        live = bench.run(recorded())
        assert [(event["number"], event["kind"], event["status"]) for event in live] == [
            (1, "model", "done"),
            (2, "tool", "done"),
            (3, "model", "done"),
        ]
        assert bench.run(recorded()) == live
        assert bench.run(recorded(2)) == live[2:]
        json.dumps(live)

    def test_c28_streaming_a_call_ends_with_its_result(self, bench: Bench) -> None:
        agent = agents.contract_agent.on(bench.backend)

        async def events() -> list[Any]:
            given = {"folder": bench.folder, "script": [BOOK, "Booked."]}
            return [event async for event in agent.stream_async("Go", execution_id="trip", **given)]

        found = bench.run(events())
        assert str(found[-1]["result"]) == "Booked.\n"
        assert [event["kind"] for event in found[:-1] if event["recorded"]] == ["model", "tool", "model"]

    def test_c28_steps_have_all_they_were_given_and_gave(self, bench: Bench) -> None:
        city = "Llanfair" * 40
        handle = bench.dispatch({"tool": "book", "city": city}, "Booked.")
        bench.result(handle)
        model, tool, last = bench.run(handle.steps())
        assert tool.input == {"city": city}
        assert tool.result["status"] == "success"
        assert city in tool.result["content"][0]["text"]
        assert model.result["message"]["content"][0]["toolUse"]["input"] == {"city": city}
        assert last.result["message"]["content"] == [{"text": "Booked."}]
        assert json.loads(json.dumps(tool.result)) == tool.result

    # C63 and C64

    def test_c63_direct_calls_of_a_tool_have_the_same_keys_in_every_attempt(self, bench: Bench) -> None:
        bench.result(bench.dispatch(BOOK_ALL, "Booked."))
        first, second = (
            [(mark["city"], mark["key"]) for mark in bench.marks("book") if mark["attempt"] == attempt]
            for attempt in (1, 2)
        )
        assert first == second
        assert [city for city, _ in first] == ["Rome", "Oslo", "Rome"]
        assert len(set(first)) == 3

    def test_c64_a_tool_that_changes_its_input_changes_no_message(self, bench: Bench) -> None:
        handle = bench.dispatch(BOOK_ALL, {"tool": "approve", "what": "trip"}, "Booked.")
        asked = bench.result(handle)
        bench.run(handle.respond({asked.interrupts[0].id: "yes"}))  # the conversation is read again
        bench.result(handle)
        model = bench.run(handle.steps())[0]
        assert model.result["message"]["content"][0]["toolUse"]["input"] == {"trip": BOOK_ALL["trip"]}
        rows = bench.run(handle.export())["rows"]["messages"]
        assert not [row for row in rows if "toolUse" in row["data"]], "the answer is the message, as it was recorded"
