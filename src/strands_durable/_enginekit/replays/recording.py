"""A recorded run as the source of what steps came to: answers of models, results of tools, effects of hooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any

from strands.middleware import ExecuteToolContext, ModelStopReason, ToolResultEvent
from strands.multiagent.base import NodeResult
from strands.types.exceptions import ContextWindowOverflowException

from ..._journal.rows import CALL, STEP, call_of, step_of
from ..._records import patches
from ..._records.calls import CallRecord
from ..._records.codec import decode
from ..._records.exceptions import revive
from ..._records.keys import is_model_key, path
from ..._records.outcomes import ModelAnswer, ToolOutcome, VisitOutcome
from ..._records.steps import StepRecord
from ..._sqlite.database import Store
from ..._sqlite.journal import Journal
from ..._sqlite.lease import look
from ..._strands.agents import Interrupt, InterruptException, set_model_state
from ...errors import DurableError, UnsupportedFeatureError

Events = AsyncGenerator[Any, None]


class EndOfRecord(DurableError):
    """The run comes to a step whose outcome is not on record."""

    def __init__(self, step: str, name: str, call: str, is_known: bool) -> None:
        super().__init__(step, name, call, is_known)
        self.step, self.name, self.call, self.is_known = step, name, call, is_known

    def __str__(self) -> str:
        how = "has no recorded outcome" if self.is_known else "is not on record"
        return f"Step {self.step} ({self.name}) {how}"


@dataclass(frozen=True)
class RecordedCall:
    """One call of a recorded run, with its steps in the order in which they began."""

    record: CallRecord
    scope: str
    """The path to it, without the name of the root: a dispatched run is named by its agent, an inline one by the agent_id."""
    steps: list[StepRecord]
    root_id: int
    """The root call that it is in."""

    @property
    def place(self) -> str:
        """Names the call within its run."""
        return f"{self.scope}#{self.record.position}"


class RecordedRun:
    """The current run of an execution in a store, call by call."""

    def __init__(self, store: Store, execution_id: str) -> None:
        self.journal: Journal = look(store, execution_id).journal()
        where = "execution = ? AND run = ? ORDER BY id"
        rows = store.rows("calls", CALL, where, self.journal.lease.row_id, self.journal.run)
        records = [call_of(row) for row in rows]
        self.roots = [record for record in records if record.parent == 0]
        self.calls = [self._call(store, record, records) for record in records]

    def _call(self, store: Store, record: CallRecord, records: list[CallRecord]) -> RecordedCall:
        root, by_id = record, {each.call_id: each for each in records}
        while root.parent:
            root = by_id[root.parent]
        steps = store.rows("steps", STEP, "call = ? ORDER BY id", record.call_id)
        return RecordedCall(record, record.scope[len(root.scope) :], [step_of(row) for row in steps], root.call_id)


class Recording:
    """Plays the steps of a recorded run: a `StepPlayer`."""

    def __init__(self, run: RecordedRun, root: str) -> None:
        self._root = len(root)
        """How long the name of the root is in the run that asks."""
        self._steps: dict[str, list[StepRecord]] = {}
        for call in run.calls:
            for step in call.steps:
                self._steps.setdefault(f"{call.place}/{step.key}", []).append(step)
        self._given: Counter[str] = Counter()
        self.played: set[str] = set()
        """The steps that were asked for."""
        self.ended: EndOfRecord | None = None
        """The first step that was asked for and has no recorded outcome."""

    def model(self, call: Any, key: str) -> Events:
        """Return the recorded answer of a model call, or the overflow of its context that led to it."""
        place, attempts = self._attempts(call, key)
        known = [step for step in attempts if step.status == "done" or _is_overflow(step)]
        step = self._next(place, key, known, "the model", is_known=bool(attempts))
        return _failed(step) if step.status == "failed" else _answered(call, step)

    def tool(self, call: Any, key: str, context: ExecuteToolContext) -> Events:
        """Return the recorded outcome of a tool call: its question, or its result with its changes of the agent."""
        name = str(context.tool_use.get("name"))
        place, attempts = self._attempts(call, key)
        known = [step for step in attempts if step.status in ("done", "interrupted")]
        step = self._next(place, key, known, f"tool {name!r}", is_known=bool(attempts))
        if step.status == "interrupted":
            return _asked(step)
        outcome = ToolOutcome.from_json(step.result)
        if outcome.tools or outcome.rerun:
            what = f"Replaying tool {name!r}, which changed the tools of its agent or the process,"
            raise UnsupportedFeatureError(what, "its effect is not on record, and a replay runs no tool")
        return _returned(call, context, outcome)

    def node(self, call: Any, key: str) -> Events:
        """Return the recorded outcome of a node that is neither an agent nor an orchestrator."""
        place, attempts = self._attempts(call, key)
        known = [step for step in attempts if step.status == "done" or step.error is not None]
        return _visited(self._next(place, key, known, "a node", is_known=bool(attempts)))

    def effect(self, call: Any, key: str) -> StepRecord:
        """Return a recorded effect."""
        place, attempts = self._attempts(call, key)
        known = [step for step in attempts if step.status == "done"]
        return self._next(place, key, known, "an effect", is_known=bool(attempts))

    def is_exhausted(self, call: str) -> bool:
        """Return True if every recorded answer of a model in the loop of a call was played."""
        answers = (
            place
            for place, steps in self._steps.items()
            if place.startswith(f"{call}/") and is_model_key(place[len(call) + 1 :]) and steps[-1].status == "done"
        )
        return self.played.issuperset(answers)

    def _attempts(self, call: Any, key: str) -> tuple[str, list[StepRecord]]:
        place = path(call.record.scope[self._root :], call.record.position, key)
        return place, self._steps.get(place, [])

    def _next(self, place: str, key: str, known: list[StepRecord], name: str, *, is_known: bool) -> StepRecord:
        """Return the outcome that comes next; the last one again where a resumed run asks again."""
        if not known:
            call = place[: -len(key) - 1]
            self.ended = self.ended or EndOfRecord(place, name, call, is_known)
            raise self.ended
        step = known[min(self._given[place], len(known) - 1)]
        self._given[place] += 1
        self.played.add(place)
        if step.result is None and step.error is None and step.kind != "effect":
            what = f"Replaying step {place}"
            raise UnsupportedFeatureError(
                what, "its result is not on record any more: its engine has compacted the run"
            )
        return step


def _is_overflow(step: StepRecord) -> bool:
    """Return True for an attempt that a conversation manager answered by reducing the context."""
    return step.status == "failed" and isinstance(revive(step.error), ContextWindowOverflowException)


async def _failed(step: StepRecord) -> Events:
    raise revive(step.error)
    yield


async def _answered(call: Any, step: StepRecord) -> Events:
    answer = ModelAnswer.from_json(step.result)
    if answer.model_state is not None:
        set_model_state(call.agent, answer.model_state)
    yield ModelStopReason(
        stop_reason=answer.stop_reason, message=answer.message, usage=answer.usage, metrics=answer.metrics
    )


async def _asked(step: StepRecord) -> Events:
    found = step.result["interrupts"][0]
    raise InterruptException(Interrupt(id=found["id"], name=found["name"], reason=found["reason"]))
    yield


async def _returned(call: Any, context: ExecuteToolContext, outcome: ToolOutcome) -> Events:
    call.head.apply(outcome.state)
    patches.apply(outcome.invocation, context.invocation_state)
    if outcome.cancel is not None:
        call.agent.cancel(**outcome.cancel)
    yield ToolResultEvent(outcome.result, exception=None if outcome.exception is None else revive(outcome.exception))


async def _visited(step: StepRecord) -> Events:
    if step.error is not None:
        raise revive(step.error)
    found = VisitOutcome.from_json(step.result)
    yield {"result": NodeResult.from_dict({"result": found.result, "status": found.status}).result}


def answers_to(store: Store, record: CallRecord, interrupts: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the recorded answers to open questions of a call that were given first, as Strands takes them."""
    rows = store.rows("answers", "interrupt_id, answer, at", "call = ?", record.call_id)
    asked = {each.id for each in interrupts}
    due = [(interrupt_id, answer, at) for interrupt_id, answer, at in rows if interrupt_id in asked]
    first = min((at for _, _, at in due), default=0.0)
    return [
        {"interruptResponse": {"interruptId": interrupt_id, "response": decode(answer)}}
        for interrupt_id, answer, at in due
        if at == first
    ]
