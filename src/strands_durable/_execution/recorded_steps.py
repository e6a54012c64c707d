"""The finished steps of a recorded call as stream events: what a reader of the stream needs to have the whole run.

Each event has the shape that Strands gives to the same thing in a live stream, and besides ``"recorded": True`` and its
``"step"``. Steps are read cycle by cycle, when the reader has come to them. An answer or a result that hooks can still change
is left out: the live stream has it when they have run. Effects, and agents that hooks call, are no part of any stream.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from strands.agent import AgentResult
from strands.multiagent.base import MultiAgentResult, NodeResult, Status
from strands.telemetry import EventLoopMetrics

from .._calls.decisions import AFTER_TOOLS
from .._journal import messages
from .._journal.port import Journal
from .._records import keys
from .._records.calls import CallRecord
from .._records.codec import decode, decode_all
from .._records.outcomes import AgentCallResult, ModelAnswer, OrchestratorCallResult, ToolOutcome, VisitOutcome
from .._records.steps import StepRecord
from .._strands.agents import agent_behind, is_agent
from .._strands.decisions import is_last_word
from .._strands.orchestrators import adapter_of

Event = dict[str, Any]
Form = Callable[[Event], Event]
"""How an event of a call inside another looks in the stream of that."""

_TOOL = re.compile(r"(\d{6}/\d{3}:.*?~\d+)(?=$|/running[@:])")
"""A tool's key, in the place of a call that it makes."""
_PAGE = 100


async def before(recorded: Iterator[Event], events: Any) -> AsyncGenerator[Any, None]:
    """Yield recorded events, then those of a call that resumes or has ended."""
    try:
        for event in recorded:
            yield event
        async for event in events:
            yield event
    finally:
        await events.aclose()


def finished_steps(journal: Journal, subject: Any, record: CallRecord) -> Iterator[Event]:
    """Return the events of a recorded call of an agent or orchestrator, and of all calls inside it."""
    return _events(journal, subject, record, lambda event: event)


def _events(journal: Journal, subject: Any, record: CallRecord, form: Form) -> Iterator[Event]:
    found = _of_agent if record.kind == "agent" else _of_orchestrator
    for key, event in found(journal, subject, record):
        marks = {} if key is None else {"step": keys.path(record.scope, record.position, key)}
        yield form({**event, "recorded": True, **marks})


Found = Iterator[tuple[str | None, Event]]
"""Events, each with the key of its step; None for those of a call inside, which have one already."""


def _inside(journal: Journal, subject: Any, calls: list[CallRecord], form: Form) -> Found:
    for call in calls:
        for event in _events(journal, _part(subject, call.member), call, form):
            yield None, event


def _part(subject: Any, member: str) -> Any:
    """Return the agent or orchestrator that a call inside belongs to, if it is here."""
    adapter = None if subject is None else adapter_of(subject)
    if adapter is not None:
        return adapter.executors().get(member)
    return agent_behind(subject.tool_registry.registry.get(member)) if is_agent(subject) else None


# Agents


def _of_agent(journal: Journal, agent: Any, record: CallRecord) -> Found:
    parts = journal.head(record.call_id)[1]
    conversation, left = _Conversation(journal, record), decode(parts.get(AFTER_TOOLS, "{}"))
    ordinal = 0
    while (steps := journal.latest(record.call_id, f"{ordinal:06d}/")) or ordinal == 0:
        answer = _last([step for step in steps.values() if keys.is_model_key(step.key)])
        content: Any = ()
        if answer is not None and answer.status == "done":
            message = conversation.answer(answer)
            if message is not None:
                content = message["content"]
                yield answer.key, {"message": message}
        yield from _of_tools(journal, agent, record, ordinal, steps, content, conversation, left)
        ordinal += 1


def _of_tools(
    journal: Journal,
    agent: Any,
    record: CallRecord,
    ordinal: int,
    steps: dict[str, StepRecord],
    content: Any,
    conversation: _Conversation,
    left: dict[str, Any],
) -> Found:
    calls: dict[str, list[CallRecord]] = {step.key: [] for step in steps.values() if step.kind == "tool"}
    for call in journal.calls_in(record.call_id, f"{ordinal:06d}/"):
        place = _TOOL.match(call.place)
        if place is not None:
            calls.setdefault(place[1], []).append(call)
    last = {keys.place_of(key)[1]: key for key in sorted(calls, key=_retry_of)}
    uses = {index: block["toolUse"] for index, block in enumerate(content) if "toolUse" in block}
    for index in sorted({*uses, *last}):
        use, key = uses.get(index, {}), last.get(index)
        if key is None:  # no step: a hook has cancelled it, or its effect is the loop itself
            result = conversation.result(use.get("toolUseId"))
            if result is not None:
                yield None, _told(result)
            continue

        def form(event: Event, use: Any = use) -> Event:
            return {"type": "tool_stream", "tool_stream_event": {"tool_use": use, "data": event}}

        yield from _inside(journal, agent, calls[key], form)
        step = steps.get(key)
        if step is not None and step.status == "done":
            result = conversation.result_of(step)
            if result is None and key in left:
                result = None if "retry" in left[key] else left[key].get("result", ToolOutcome.result_in(step.result))
            elif result is None and is_agent(agent) and is_last_word(agent):
                result = ToolOutcome.result_in(step.result)
            if result is not None:
                yield key, _told(result)


def _told(result: Any) -> Event:
    return {"message": {"role": "user", "content": [{"toolResult": result}]}}


def _retry_of(key: str) -> int:
    return int(key.rpartition("~")[2])


def _last(tries: list[StepRecord]) -> StepRecord | None:
    """Return the last try of a step: a hook has sent the others back."""
    return max(tries, key=lambda step: _retry_of(step.key), default=None)


class _Conversation:
    """What became of a call's steps in its messages: most are there as they were recorded, some as a hook has left them."""

    def __init__(self, journal: Journal, record: CallRecord) -> None:
        self._journal, self._lineage = journal, record.lineage
        self._unchanged: set[int] = set()
        self._changed: dict[Any, tuple[int, int]] = {}
        self._answer: Any = None
        first, end = max((last for _, last in record.base), default=-1) + 1, journal.next_seq(record.lineage)
        for start in range(first, end, _PAGE):
            rows = journal.message_rows(self._lineage, [[start, min(start + _PAGE, end) - 1]])
            for seq, form in enumerate(decode_all(rows), start):
                self._note(seq, form)
        self._answer = None

    def _note(self, seq: int, form: Any) -> None:
        if "step" in form:
            self._answer = form["step"]
            self._unchanged.add(self._answer)
        elif "message" in form and form["message"]["role"] == "assistant":
            self._answer = form["message"].get("tracking_id")
            self._changed.setdefault(self._answer, (seq, 0))
        else:
            blocks = form["blocks"] if "blocks" in form else form.get("message", {}).get("content", ())
            for place, found in enumerate(blocks):
                if isinstance(found, int):
                    self._unchanged.add(found)
                    continue
                block = found.get("block", found)
                if "toolResult" in block:  # the first after its answer; a conversation manager may have cut it later
                    self._changed.setdefault((self._answer, block["toolResult"].get("toolUseId")), (seq, place))

    def answer(self, step: StepRecord) -> Any:
        """Return the message of a model step; None if it is not part of the conversation."""
        found = ModelAnswer.from_json(step.result).appended
        self._answer = step.step_id
        if step.step_id in self._unchanged:
            return found
        self._answer = found.get("tracking_id")
        place = self._changed.get(self._answer)
        return None if place is None else self._message(place[0])

    def result_of(self, step: StepRecord) -> Any:
        """Return the result of a tool step of the last answer; None if it is not part of the conversation."""
        found = ToolOutcome.result_in(step.result)
        return found if step.step_id in self._unchanged else self.result(found.get("toolUseId"))

    def result(self, tool_use_id: Any) -> Any:
        """Return a result that a message of the last answer has, and no step."""
        place = self._changed.get((self._answer, tool_use_id))
        return None if place is None else self._message(place[0])["content"][place[1]]["toolResult"]

    def _message(self, seq: int) -> Any:
        return messages.read(self._journal, self._lineage, [[seq, seq]])[0]


# Orchestrators


def _of_orchestrator(journal: Journal, subject: Any, record: CallRecord) -> Found:
    for key, step in {step.key: step for step in journal.nodes(record.call_id)}.items():

        def form(event: Event, node_id: str = step.name) -> Event:
            return {"type": "multiagent_node_stream", "node_id": node_id, "event": event}

        calls = journal.calls_in(record.call_id, key)
        mine = [call for call in calls if call.place == key or call.place.startswith(f"{key}/running")]
        yield from _inside(journal, subject, mine, form)
        if step.status == "done":
            result = _node_result(journal, step)
            yield key, {"type": "multiagent_node_stop", "node_id": step.name, "node_result": result}


def _node_result(journal: Journal, step: StepRecord) -> NodeResult:
    found = VisitOutcome.from_json(step.result)
    if found.call is None:
        value = NodeResult.from_dict({"result": found.result, "status": found.status}).result
    else:
        value = recorded_result(journal, journal.call(found.call))
    return NodeResult(
        result=value,
        execution_time=found.time,
        status=Status(found.status),
        accumulated_usage=found.usage,
        accumulated_metrics=found.metrics,
        execution_count=found.count,
    )


def recorded_result(journal: Journal, record: CallRecord) -> Any:
    """Return what a finished call had returned, from its record alone: nothing here is restored to it."""
    if record.result is None:
        return None
    if record.kind != "agent":
        over = OrchestratorCallResult.from_json(record.result)
        return MultiAgentResult(status=Status(over.status), accumulated_usage=over.usage)
    found = AgentCallResult.from_json(record.result)
    message = found.message
    if found.last is not None:
        ranges = journal.head(record.call_id)[0].ranges
        message = messages.read(journal, record.lineage, ranges)[found.last]
    return AgentResult(found.stop_reason, message, EventLoopMetrics(), found.state)
