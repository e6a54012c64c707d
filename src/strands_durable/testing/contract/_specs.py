"""C32: factories, their arguments, and what can be passed with a call. Tests that need no backend are not part of this."""

from __future__ import annotations

import json

import pytest

from ... import AgentSpec, errors
from .. import agents
from ._bench import BOOK, Bench


class SpecsContract:
    """What is sent with a dispatch."""

    def test_c32_a_spec_goes_over_the_border_as_json(self, bench: Bench) -> None:
        spec = agents.contract_agent.spec_with(folder=bench.folder, script=["Hi."])
        sent = AgentSpec.from_json(json.loads(json.dumps(spec.to_json())))
        assert sent == spec
        handle = bench.run(bench.backend.dispatch(sent, "Go"))
        assert str(bench.result(handle)) == "Hi.\n"

    def test_c32_the_arguments_of_a_factory_reach_the_worker(self, bench: Bench) -> None:
        agent = agents.contract_agent.on(bench.backend)
        for text in ("One.", "Two."):
            result = bench.run(agent.invoke_async("Go", folder=bench.folder, script=[text]))
            assert str(result) == f"{text}\n"

    def test_c32_the_sync_call_is_the_async_one(self, bench: Bench) -> None:
        agent = agents.contract_agent.on(bench.backend)
        assert str(agent("Go", execution_id="trip", folder=bench.folder, script=["Hi."])) == "Hi.\n"

    def test_c32_what_a_call_does_not_take_is_a_type_error_and_nothing_starts(self, bench: Bench) -> None:
        agent = agents.contract_agent.on(bench.backend)
        given = {"folder": bench.folder, "script": ["Hi."]}
        for unknown in ("structured_output_model", "cancel_signal", "temperature"):
            with pytest.raises(TypeError, match=unknown):
                bench.run(agent.invoke_async("Go", **given, **{unknown: 1}))
        with pytest.raises(TypeError, match="script"):
            bench.run(agent.invoke_async("Go", folder=bench.folder))
        assert bench.run(bench.backend.list()) == []

    def test_c32_only_json_crosses(self, bench: Bench) -> None:
        agent = agents.contract_agent.on(bench.backend)
        given = {"folder": bench.folder, "script": ["Hi."]}
        with pytest.raises(errors.NotSerializableError, match="argument"):
            bench.run(agent.invoke_async("Go", folder=bench.folder, script=[object()]))
        with pytest.raises(errors.NotSerializableError, match="invocation_state"):
            bench.run(agent.invoke_async("Go", invocation_state={"client": object()}, **given))
        with pytest.raises(errors.NotSerializableError, match="prompt"):
            bench.run(agent.invoke_async([{"text": object()}], **given))
        assert bench.run(bench.backend.list()) == []

    def test_c32_the_invocation_state_reaches_the_tools(self, bench: Bench) -> None:
        handle = bench.dispatch({"tool": "look"}, "Seen.", invocation_state={"given": {"user": 7}})
        bench.result(handle)
        events = [event for event in bench.run(_recorded(handle)) if event["kind"] == "tool"]
        assert '{"user": 7}' in json.dumps(events[0]["result"]).replace('\\"', '"')

    def test_c32_limits_hold_on_the_worker(self, bench: Bench) -> None:
        result = bench.result(bench.dispatch(BOOK, BOOK, "Booked.", limits={"turns": 1}))
        assert result.stop_reason == "limit_turns"
        assert bench.booked() == ["Paris"]

    def test_c32_a_prompt_of_content_blocks_and_of_messages_is_taken(self, bench: Bench) -> None:
        blocks = [{"text": "Go"}, {"text": "on"}]
        messages = [{"role": "user", "content": [{"text": "Go"}]}]
        for name, prompt in (("blocks", blocks), ("messages", messages)):
            assert str(bench.result(bench.dispatch("Hi.", prompt=prompt, execution_id=name))) == "Hi.\n"
            assert str(bench.result(bench.dispatch("Hi.", prompt=prompt, execution_id=name))) == "Hi.\n"

    def test_c32_a_prompt_that_strands_refuses_is_a_failure(self, bench: Bench) -> None:
        error = bench.fails(bench.dispatch("Hi.", prompt={"not": "a prompt"}), errors.ExecutionFailedError)
        assert error.__cause__ is not None


async def _recorded(handle: object) -> list[dict[str, object]]:
    return [event async for event in handle.stream() if event["recorded"]]  # type: ignore[attr-defined]
