"""One root call from its first line to its last: find the execution, own it, decide, run, record the end."""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from strands import Agent
from strands.agent import AgentResult

from . import _admission, _drift, _messages, _sessions
from ._call import Abort, Call
from ._codec import encodable
from ._context import enclosing, frame
from ._head import MADE_UP
from ._journal import Journal
from ._keys import checked_id
from ._lease import Lease, acquire, look
from ._phases import Phase
from ._records import CallRecord, ExecutionStatus
from ._segment import Segments
from ._session import Member, Session, process
from ._stages import validate_answer
from ._strands import AgentResultEvent, Interrupt, has_session, is_interrupted, knows_interrupt, output_model
from ._usage import Past
from .errors import (
    BackendUnavailableError,
    DriftError,
    DurableError,
    ExecutionBusyError,
    InDoubtError,
    LeaseLostError,
)

logger = logging.getLogger(__name__)

Events = AsyncGenerator[Any, None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a `Durability` was told about calls."""

    path: Path
    execution_id: str | None
    on_drift: Literal["raise", "warn", "rerun"]
    on_failed: Literal["resume", "raise"]
    on_completed: Literal["return", "restart"]
    lease_seconds: float
    segment_turns: int
    busy_seconds: float


active: weakref.WeakKeyDictionary[Agent, Call] = weakref.WeakKeyDictionary()
"""The durable call that each agent is in."""
segments: weakref.WeakKeyDictionary[Agent, Segments] = weakref.WeakKeyDictionary()
"""And its segments."""
_SUSPENDED = "_strands_durable_suspended"
_waiting: weakref.WeakKeyDictionary[Agent, str] = weakref.WeakKeyDictionary()
"""The execution with a made-up id in which an agent waits for answers."""


def root_call(options: Options, agent: Agent, original: Any, prompt: Any, given: dict[str, Any]) -> Events:
    """Return the stream of one call of ``agent``, made durable."""
    outer = enclosing.get()
    is_inside = outer is not None and active.get(outer.agent) is outer
    if is_inside or agent in active or _is_for_strands(agent, prompt):
        # Inside an execution the enclosing one wins; a second call of a busy agent is for Strands to refuse or to join.
        events: Events = original(prompt, **given)
        return events
    return _owned(options, agent, original, prompt, given)


def _is_for_strands(agent: Agent, prompt: Any) -> bool:
    """Say whether Strands refuses this call before anything happens: a prompt where it waits for answers, and the like."""
    if not is_interrupted(agent) or _sessions.speaks_for(agent):
        return not isinstance(prompt, (str, list, type(None)))
    answers = _admission.answers_in(prompt)
    return answers is None or not all(knows_interrupt(agent, interrupt_id) for interrupt_id in answers)


async def _owned(options: Options, agent: Agent, original: Any, prompt: Any, given: dict[str, Any]) -> Events:
    execution_id, is_made_up = _execution_id(options, agent, prompt, given.get("invocation_state"))
    session = process.session(options.path, execution_id)
    session.enter(agent)
    _sessions.hand_over(agent)
    try:
        store, heart = process.store(options.path, options.busy_seconds)
        try:
            lease = await acquire(store, execution_id, options.lease_seconds)
        except ExecutionBusyError:
            journal = Journal(look(store, execution_id))
            _admission.refuse_other_input(journal, journal.call_at(session.position), prompt)
            raise
        heart.keep(lease)
        try:
            events = _Root(options, agent, original, Journal(lease), session).open(prompt, given)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
        finally:
            active.pop(agent, None)
            segments.pop(agent, None)
            heart.let_go(lease)
            _release(lease)
    except BackendUnavailableError:
        process.drop_store(options.path)
        raise
    finally:
        session.leave()
        if is_made_up:
            _end_made_up(options, agent, session)


def _end_made_up(options: Options, agent: Agent, session: Session) -> None:
    """Keep an execution without a name only while it waits for answers, which have no id either."""
    if is_interrupted(agent):
        _waiting[agent] = session.execution_id
    else:
        _waiting.pop(agent, None)
        process.end_session(options.path, session)


def _release(lease: Lease) -> None:
    """Give up a lease, where that is possible; one that was given up with the end of a call is left alone."""
    if lease.dropped:
        return
    try:
        with lease.store.transaction("lease.release", lease) as connection:
            lease.drop(connection)
    except DurableError as error:
        logger.debug("execution_id=<%s>, error=<%s> | lease not released", lease.execution_id, error)


def _execution_id(options: Options, agent: Agent, prompt: Any, invocation_state: Any) -> tuple[str, bool]:
    """Return the id of the execution that a call belongs to, and whether it was made up."""
    named = invocation_state.get("execution_id") if isinstance(invocation_state, dict) else None
    if named is not None and named != invocation_state.get(MADE_UP):
        return checked_id(named), False
    if options.execution_id is not None:
        return options.execution_id, False
    if agent in _waiting and is_interrupted(agent) and _admission.answers_in(prompt) is not None:
        return _waiting[agent], True
    execution_id = uuid.uuid4().hex
    logger.info("execution_id=<%s> | new execution", execution_id)
    if isinstance(invocation_state, dict):
        invocation_state["execution_id"] = invocation_state[MADE_UP] = execution_id
    return execution_id, True


class _Root:
    """A root call by an owner of its execution."""

    def __init__(self, options: Options, agent: Agent, original: Any, journal: Journal, session: Session) -> None:
        self._options, self._agent, self._original = options, agent, original
        self._journal, self._session = journal, session
        self._member: Member = session.member(agent)

    def open(self, prompt: Any, given: dict[str, Any]) -> Events:
        """Decide what the call means, and return its events."""
        answers = _admission.answers_in(prompt)
        if answers is not None and self._asked(answers) is None:
            return cast(Events, self._original(prompt, **given))  # nobody asked: Strands says so
        admission = self._decide(prompt, answers)
        if isinstance(admission, _admission.Start) and is_interrupted(self._agent):
            return cast(Events, self._original(prompt, **given))  # its session waits for answers: Strands says so
        if isinstance(admission, _admission.Return):
            return _only(AgentResultEvent(self._returned(admission.record, given)).as_dict())
        if isinstance(admission, _admission.Raise):
            self._restored(admission.record, closing=True)
            raise admission.error
        call, prompt = self._opened(admission, prompt)
        return self._run(call, prompt, given)

    # Deciding

    def _decide(self, prompt: Any, answers: dict[str, Any] | None) -> _admission.Admission:
        if answers is not None:
            record = self._asked(answers)
            if record is not None:
                self._session.position = record.position
                self._refuse_malformed(record, answers)
                return _admission.admit_answers(self._journal, record, answers)
        position = self._session.position
        if position == 0 and self._options.on_completed == "restart" and self._is_over():
            self._journal.start_run()
        record = self._journal.call_at(position)
        is_last = self._journal.call_at(position + 1) is None
        return _admission.admit(self._journal, record, prompt, is_last=is_last, on_failed=self._options.on_failed)

    def _is_over(self) -> bool:
        calls = self._journal.calls()
        return bool(calls) and all(call.status is ExecutionStatus.COMPLETED for call in calls)

    def _asked(self, answers: dict[str, Any]) -> CallRecord | None:
        """Return the call that the answers belong to: the last one of this process, or the one that asked."""
        calls = self._journal.calls()
        if self._session.call_id is not None:
            return next((call for call in calls if call.call_id == self._session.call_id), None)
        for call in reversed(calls):
            asked = {found["id"] for found in (call.result or {}).get("interrupts") or ()}
            if set(answers) & (asked | set(self._journal.answers(call.call_id))):
                return call
        return None

    def _refuse_malformed(self, record: CallRecord, answers: dict[str, Any]) -> None:
        names = {found["id"]: found["name"] for found in (record.result or {}).get("interrupts") or ()}
        for interrupt_id, answer in answers.items():
            wrong = validate_answer(names.get(interrupt_id, ""), answer)
            if wrong is not None:
                raise InDoubtError(self._journal.execution_id, names[interrupt_id], wrong)

    # Opening

    def _opened(self, admission: Any, prompt: Any) -> tuple[Call, Any]:
        """Return the call to run, and what Strands is to be given as its prompt."""
        agent, journal, member = self._agent, self._journal, self._member
        if isinstance(admission, _admission.Start):
            call = Call.begin(
                agent, journal, member.history, member.head,
                position=self._session.position, scope=agent.agent_id, given=prompt,
            )  # fmt: skip
            return call, prompt
        record = admission.record
        answers = admission.answers if isinstance(admission, _admission.Answer) else None
        call = self._suspended(record) or self._resumed(record)
        call.take_up(answers)
        if self._session.call_id != record.call_id:  # else this process has counted it already
            call.past = Past(journal, record.call_id, call.progress)
        logger.info(
            "execution_id=<%s>, call=<%d>, phase=<%s>, attempt=<%d> | going on",
            journal.execution_id, record.position, call.progress.resume, call.record.attempt,
        )  # fmt: skip
        if is_interrupted(agent):
            return call, _responses(agent, journal.answers(record.call_id))
        return call, record.input if call.progress.resume == "ready" else None

    def _suspended(self, record: CallRecord) -> Call | None:
        """Return the call if it was suspended on this very object, and nobody has owned the execution since."""
        call: Call | None = vars(self._agent).pop(_SUSPENDED, None)
        if call is None or call.record.call_id != record.call_id:
            return None
        if call.journal.lease.fence + 1 != self._journal.lease.fence:
            return None
        call.journal = self._journal
        return call

    def _resumed(self, record: CallRecord) -> Call:
        """Put a recorded call's head in place, if the agent began with the same messages."""
        is_first = record.lineage == record.call_id and self._session.call_id is None
        if is_first and not has_session(self._agent) and record.status is not ExecutionStatus.SUSPENDED:
            base = _messages.read(self._journal, record.lineage, record.base)
            change = _drift.base_change(base, self._agent.messages)
            if change is not None:
                self._drifted(f"call {record.position}", [change])
        call = Call.go_on(self._agent, self._journal, self._member.history, self._member.head, record)
        _sessions.follow(self._agent)
        return call

    def _begin_pass(self, call: Call) -> bool:
        """The hooks of a call that goes on have run: is it still the agent that was recorded?"""
        if call.is_taken_up:
            last = self._journal.last_config(call.record)
            changes = [] if last is None else _drift.changes(last[1], _drift.config_of(self._agent))
            if last is not None and changes:
                self._drifted(last[0], changes)
                if self._options.on_drift == "rerun":
                    call.models.give_up()
        return call.pass_begins()

    def _drifted(self, step: str, changes: list[str]) -> None:
        if self._options.on_drift == "raise":
            raise DriftError(self._journal.execution_id, step, changes)
        logger.warning(
            "execution_id=<%s>, step=<%s>, changes=<%s> | agent changed, going on",
            self._journal.execution_id, step, "; ".join(changes),
        )  # fmt: skip

    # Running

    async def _run(self, call: Call, prompt: Any, given: dict[str, Any]) -> Events:
        agent = self._agent
        active[agent] = call
        begin_pass = partial(self._begin_pass, call)
        segments[agent] = Segments(agent, self._options.segment_turns, given.get("limits"), begin_pass)
        self._session.call_id = call.record.call_id
        events = self._original(prompt, **{**given, "limits": segments[agent].limits})
        standing = frame.get()
        try:
            while True:
                # Between events the consumer's code runs, outside of the call and of its steps.
                outer, step = enclosing.set(call), frame.set(standing)
                try:
                    event = await events.__anext__()
                except StopAsyncIteration:
                    return
                finally:
                    standing = frame.get()
                    frame.reset(step)
                    enclosing.reset(outer)
                if isinstance(event.get("result"), AgentResult):
                    self._end(call, event["result"])
                yield event
        except Abort:
            error = call.crash or call.failure
            assert error is not None
            self._failed(call, error)
            raise error from error.__cause__
        except BaseException as error:
            self._failed(call, error)
            raise
        finally:
            await events.aclose()

    def _end(self, call: Call, result: AgentResult) -> None:
        phase: Phase = "waiting" if result.stop_reason == "interrupt" else "done"
        call.end(phase, _recorded_result(self._agent, result))
        self._session.position = call.record.position + 1
        if phase == "waiting":
            vars(self._agent)[_SUSPENDED] = call  # on the agent itself, so that it does not outlive it

    def _failed(self, call: Call, error: BaseException) -> None:
        """Record a failure if it is one: a lost lease, a broken store or the end of the process is not."""
        if call.progress.phase in ("done", "waiting"):
            return
        if isinstance(error, (LeaseLostError, BackendUnavailableError, DriftError)):
            self._member.forget()
            return
        self._session.position = call.record.position + 1
        if not isinstance(error, Exception):
            self._member.forget()
            return
        try:
            call.end_failed(error)
        except DurableError as unrecorded:
            self._member.forget()
            logger.warning("execution_id=<%s>, error=<%s> | failure not recorded", call.execution_id, unrecorded)

    # Returning what is recorded

    def _returned(self, record: CallRecord, given: dict[str, Any]) -> AgentResult:
        self._restored(record)
        self._session.position = record.position + 1
        result = record.result
        message = self._agent.messages[result["last"]] if result["last"] is not None else result["message"]
        structured = result["structured_output"]
        model = given.get("structured_output_model") or output_model(self._agent)
        return AgentResult(
            stop_reason=result["stop_reason"],
            message=message,
            metrics=self._agent.event_loop_metrics,
            state=result["state"],
            interrupts=[Interrupt(**found) for found in result["interrupts"]] if result["interrupts"] else None,
            structured_output=None if structured is None or model is None else model.model_validate(structured),
        )

    def _restored(self, record: CallRecord, *, closing: bool = False) -> None:
        call = Call.go_on(self._agent, self._journal, self._member.history, self._member.head, record)
        if closing:
            call.restore_closing()
            self._session.position = record.position + 1
        Past(self._journal, record.call_id, call.progress).give_back(self._agent.event_loop_metrics, current=None)
        self._session.call_id = record.call_id


async def _only(event: Any) -> Events:
    yield event


def _responses(agent: Agent, answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the recorded answers that the agent still waits for, in the form that Strands takes."""
    return [
        {"interruptResponse": {"interruptId": interrupt_id, "response": answer}}
        for interrupt_id, answer in answers.items()
        if knows_interrupt(agent, interrupt_id)
    ]


def _recorded_result(agent: Agent, result: AgentResult) -> dict[str, Any]:
    places = [index for index, message in enumerate(agent.messages) if message is result.message]
    structured = result.structured_output
    return {
        "stop_reason": result.stop_reason,
        "last": places[-1] if places else None,
        "message": None if places else result.message,
        "state": {key: value for key, value in (result.state or {}).items() if encodable(value)},
        "interrupts": [found.to_dict() for found in result.interrupts] if result.interrupts else None,
        "structured_output": None if structured is None else structured.model_dump(mode="json"),
    }
