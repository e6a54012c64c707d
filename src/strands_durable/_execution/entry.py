"""Entry into an execution: name it, own it, make one root call; or make a call inside a running one."""

from __future__ import annotations

import asyncio
import time
import uuid
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from strands.types.exceptions import ConcurrencyException

from .._calls import tracing
from .._calls.auxiliary_model import offered
from .._calls.context import current_context, enclosing
from .._calls.control import ExecutionControl
from .._calls.durable_call import CallContext
from .._calls.effects import pause
from .._calls.head import MADE_UP
from .._calls.local_execution import Cursor, LocalExecution, local_executions, take_handover
from .._calls.running_tools import wait_for_tools
from .._journal.owner import Owner
from .._journal.port import Journal
from .._records.calls import CallKind
from .._records.executions import ExecutionStatus
from .._records.keys import checked_id
from .._records.logs import safe_logger
from .._records.options import Options
from .._records.questions import answers_in
from .._sqlite import ownership
from .._sqlite.database import Store
from .._sqlite.heartbeat import LeaseRenewer
from .._sqlite.lease import acquire, look
from .._sqlite.open_files import stores
from .._strands.patches import DurableSeams
from .._strands.watchers import note_model_state
from ..errors import (
    BackendUnavailableError,
    CipherError,
    DurableError,
    ExecutionBusyError,
    NotSerializableError,
    UnreadableError,
)
from . import admission, keyboard_interrupt, part_of_step
from .admission import Caller
from .event_stream import give_way
from .resolver import (
    Called,
    CallResolver,
    DispatchedResolver,
    ListResolver,
    NestedResolver,
    SingleResolver,
    nested_resolver,
    recorded_at,
)

logger = safe_logger(__name__)

Events = AsyncGenerator[Any, None]

_POLL_SECONDS = 0.005
_CLOSING_SECONDS = 1.0
"""How long a call waits for an abandoned one before it: a dropped stream takes a moment to end."""

_LAYERS = 20
"""More than the depth of nested Strands generators in a call."""
_seams = DurableSeams(lambda: enclosing.get() is not None, offered, pause, tracing.mark, note_model_state)

_waiting: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The execution with a generated id in which an agent or orchestrator waits for answers."""


class Subject(Called, Protocol):
    """An agent or an orchestrator, as the target of calls."""

    kind: CallKind
    is_guest: bool
    """Whether it is attached for this call only, because code inside a step makes it."""

    def is_interrupted(self) -> bool:
        """Return True if it waits for answers; it then accepts nothing else."""

    def may_know_better(self) -> bool:
        """Return True if the journal may know better what it waits for, because its state comes from elsewhere."""

    def knows_interrupt(self, interrupt_id: str) -> bool:
        """Return True if it has raised this interrupt."""

    def busy_in(self) -> str | None:
        """Return the id of the execution in which it is making a durable call, if any."""

    def enter(self, local: LocalExecution) -> None:
        """Take part in an execution with root calls."""

    def original(self, prompt: Any, given: dict[str, Any]) -> Events:
        """Call it without durability."""

    def open(self, context: CallContext, resolver: CallResolver, prompt: Any, given: dict[str, Any]) -> Events:
        """Make a durable call."""


class AgentBusyError(ExecutionBusyError, ConcurrencyException):
    """The called object is already in a call of this execution: the error that Strands raises for that, and ours."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The execution that a root call belongs to."""

    execution_id: str
    is_single: bool = False
    """Whether the id was given with the call and so names only this call."""
    is_made_up: bool = False


def call(options: Options | None, subject: Subject, prompt: Any, given: dict[str, Any]) -> Events:
    """Return the stream of one durable call. A subject without its own options is durable only inside an execution."""
    outer, busy_in = enclosing.get(), subject.busy_in()
    is_inside = outer is not None and outer.is_open
    if busy_in is not None and (is_inside or not _names(options, given, busy_in)):
        return subject.original(prompt, given)  # Strands refuses or joins a second call of a busy agent
    if is_inside:
        step_context = current_context.get()
        is_part = options is None and step_context is not None and step_context.recorded.is_opaque
        return subject.original(prompt, given) if is_part else _nested(subject, prompt, given)
    if options is None:
        return subject.original(prompt, given)
    target = _target(options, subject, prompt, given.get("invocation_state"))
    if busy_in is None and _is_for_strands(options, subject, target, prompt):
        return subject.original(prompt, given)
    if target.is_made_up:
        logger.info("execution_id=<%s> | new execution", target.execution_id)
    return _owned(options, subject, target, prompt, given)


def _names(options: Options | None, given: dict[str, Any], execution_id: str) -> bool:
    """Return True if a call names this execution: then we, not Strands, refuse it or wait for the other call."""
    if (
        options is None or given.get("idempotency_token") is not None
    ):  # with one, Strands lets it share the other's result
        return False
    return (_named(given.get("invocation_state")) or options.execution_id) == execution_id


def _is_for_strands(options: Options, subject: Subject, target: Target, prompt: Any) -> bool:
    """Return True if Strands refuses this call before anything happens, for example a prompt where it needs answers."""
    if not subject.is_interrupted() or subject.may_know_better() or _has_record(options, subject, target):
        return not isinstance(prompt, (str, list, type(None)))
    answers = answers_in(prompt)
    return answers is None or not all(subject.knows_interrupt(interrupt_id) for interrupt_id in answers)


def _has_record(options: Options, subject: Subject, target: Target) -> bool:
    """Return True if the record decides although the object waits for answers: they may have been given already."""
    if target.is_single:
        return True
    local = local_executions.known(options.path, target.execution_id)
    cursor = None if local is None else local.cursors.get(subject.me)
    return cursor is not None and (cursor.unended is not None or cursor.is_open)


async def _nested(subject: Subject, prompt: Any, given: dict[str, Any]) -> Events:
    """Make a call inside another, whose journal, local execution and options it uses."""
    step_context, outer = current_context.get(), enclosing.get()
    assert outer is not None
    if step_context is None or step_context.call is not outer:
        step_context = outer.context_of_call("before")
    resolver = None
    try:
        resolver = nested_resolver(step_context, subject, prompt)
        resolver.compares_base = not subject.is_guest  # one that outlives the step has what other executions left in it
        context = CallContext(outer.control, outer.local, outer.options, outer)
        events = subject.open(context, resolver, prompt, given)
    except Exception as error:
        if not _is_left_out(subject, resolver, error):
            outer.fail(error)  # raised through Strands it would become a tool result or a failed node
        outer.local.trackers.pop(subject.me, None)
        part_of_step.say(step_context, subject.name, str(error) or repr(error))
        events = subject.original(prompt, given)
    outer.local.follow(events)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


def _is_left_out(subject: Subject, resolver: NestedResolver | None, error: Exception) -> bool:
    """Return True if a guest cannot be attached, and nothing is on record of its call: a tool must not fail for that."""
    is_of_guest = isinstance(error, NotSerializableError) or not isinstance(error, DurableError)
    return subject.is_guest and is_of_guest and (resolver is None or not resolver.is_recorded())


async def _owned(options: Options, subject: Subject, target: Target, prompt: Any, given: dict[str, Any]) -> Events:
    handover = take_handover(target.execution_id)
    local = local_executions.execution(options.path, target.execution_id) if handover is None else handover.local
    await _enter(options, subject, local, target, prompt)
    _seams.open()
    try:
        if handover is not None:  # the worker that claimed the execution renews the lease
            control, release = handover.control, handover.control.release
        else:
            store, renewer = stores.open(options.path, options.busy_seconds, options.cipher)
            control = await _acquired(options, subject, local, store, target, prompt)
            local.hold(renewer, control.lease)
            keyboard_interrupt.hold(control, is_made_up=target.is_made_up)
            release = partial(_release, renewer, control)
        try:
            _refuse_stuck(subject, local)
            subject.enter(local)
            resolver = _resolver(
                options, subject, control.journal, local, target, prompt, is_claimed=handover is not None
            )
            events, is_left = subject.open(CallContext(control, local, options), resolver, prompt, given), True
            try:
                local.is_at_work = True
                async for event in events:
                    local.is_at_work = False
                    yield event
                    local.is_at_work = True
                is_left = False
            finally:
                local.is_at_work = False
                await events.aclose()
                await _close_streams(local, is_left)
        finally:
            local.hand_on()
            control.tools.when_idle(release)
    except CipherError:
        raise  # others in this process may use the store with the right key
    except BackendUnavailableError:
        stores.drop(options.path)
        raise
    except UnreadableError as error:
        raise error.of(target.execution_id) from error.__cause__
    finally:
        _seams.close()
        local.leave()
        (local.waiting.add if subject.is_interrupted() else local.waiting.discard)(subject.me)
        if target.is_made_up:
            _pass_generated_id(given.get("invocation_state"), target.execution_id)
            _end_made_up(options, subject, local)


async def _close_streams(local: LocalExecution, is_left: bool) -> None:
    """End the tools and calls inside a call that was left: Strands drops their streams, and Python closes them only later.

    An agent with an open stream accepts no other call. A stream that is still running has been cancelled and needs a moment.
    Closing one drops others in turn, which the event loop closes one by one; their cleanup frees what the next call needs.
    """
    deadline, found = time.monotonic() + _CLOSING_SECONDS, local.open_streams()
    is_left = is_left or bool(found)
    while found and time.monotonic() < deadline:
        for stream in found:
            with suppress(RuntimeError):  # it is still running
                await stream.aclose()
        await asyncio.sleep(_POLL_SECONDS)
        found = local.open_streams()
    for _ in range(_LAYERS if is_left else 0):
        await give_way()


async def _enter(options: Options, subject: Subject, local: LocalExecution, target: Target, prompt: Any) -> None:
    """Begin a root call; only one may run at a time. One that was just abandoned needs a moment to end."""
    deadline = time.monotonic() + _CLOSING_SECONDS
    while not local.enter():
        if local.is_at_work or time.monotonic() > deadline:
            raise _busy(options, subject, local, target, prompt)
        await asyncio.sleep(_POLL_SECONDS)


def _refuse_stuck(subject: Subject, local: LocalExecution) -> None:
    """Refuse an object whose call can never end, before Strands does: its error would be recorded as a failure of this call."""
    if subject.busy_in() == local.execution_id:
        why = "The event loop of this object's stream was closed, so the object takes no more calls: build a new one."
        raise AgentBusyError(local.execution_id, str(Owner.me()), why)


def _busy(options: Options, subject: Subject, local: LocalExecution, target: Target, prompt: Any) -> ExecutionBusyError:
    """Return the error for a call of an execution that another call in this process is using."""
    is_same = subject.busy_in() == local.execution_id
    if not is_same or target.is_single:  # otherwise it would be the next call of the object
        _refuse_other_input(options, subject, local, target, prompt)
    why = "Another call in this process has not ended yet. Wait for it to end."
    if not local.is_at_work:
        why += " If you no longer read its stream, close it: await stream.aclose()."
    return (AgentBusyError if is_same else ExecutionBusyError)(local.execution_id, str(Owner.me()), why)


def _refuse_other_input(options: Options, subject: Subject, local: LocalExecution, target: Target, prompt: Any) -> None:
    """Raise first if the input differs from the recorded one: then a later retry would fail, too."""
    store = local.store or stores.open(options.path, options.busy_seconds, options.cipher)[0]
    if ownership.find(store, local.execution_id) is None:
        return
    journal = look(store, local.execution_id).journal()
    caller, cursor = _caller(subject, journal, local, target, prompt)
    admission.refuse_other_input(journal, recorded_at(journal, caller, cursor), prompt, caller)


def _caller(
    subject: Subject, journal: Journal, local: LocalExecution, target: Target, prompt: Any
) -> tuple[Caller, Cursor | None]:
    """Return the caller, and its position in the list of its calls if the id names such a list."""
    answers = answers_in(prompt) or {}
    waits = subject.is_interrupted() and all(map(subject.knows_interrupt, answers))
    is_single = target.is_single or journal.is_dispatched()
    caller = Caller(name=subject.name, kind=subject.kind, waits=waits, is_single=is_single)
    return caller, None if is_single else local.cursor(subject.me)


def _resolver(
    options: Options,
    subject: Subject,
    journal: Journal,
    local: LocalExecution,
    target: Target,
    prompt: Any,
    *,
    is_claimed: bool,
) -> CallResolver:
    caller, cursor = _caller(subject, journal, local, target, prompt)
    if is_claimed:
        return DispatchedResolver(options, journal, caller)
    return (
        SingleResolver(options, journal, caller) if cursor is None else ListResolver(options, journal, caller, cursor)
    )


async def _acquired(
    options: Options, subject: Subject, local: LocalExecution, store: Store, target: Target, prompt: Any
) -> ExecutionControl:
    """Acquire the lease; if a requested cancel is still pending, carry it out first."""
    try:
        await wait_for_tools(store.path, local.execution_id, options.lease_seconds)
        control = ExecutionControl(await acquire(store, local.execution_id, options.lease_seconds, options.tags))
    except ExecutionBusyError:
        _refuse_other_input(options, subject, local, target, prompt)
        raise
    if control.journal.is_cancel_due():
        control.cancel()
    return control


def _end_made_up(options: Options, subject: Subject, local: LocalExecution) -> None:
    """Keep an execution with a generated id only while it waits for answers, which come without an id, too."""
    if subject.is_interrupted() and _is_suspended(options, local):
        _waiting[subject.me] = local.execution_id
    else:
        _waiting.pop(subject.me, None)
        local_executions.forget_execution(options.path, local)


def _is_suspended(options: Options, local: LocalExecution) -> bool:
    """Return True if an execution waits for answers; a call that was cancelled while taking them is over."""
    try:
        store = stores.open(options.path, cipher=options.cipher)[0]
        status = ownership.status_of(store, local.execution_id)
    except DurableError:
        return True  # unknown: the store cannot be read
    return status is not None and status != ExecutionStatus.COMPLETED.value


def _release(renewer: LeaseRenewer, control: ExecutionControl) -> None:
    renewer.remove(control.lease)
    control.release()


def _target(options: Options, subject: Subject, prompt: Any, invocation_state: Any) -> Target:
    """Return the execution that a call belongs to."""
    named = _named(invocation_state)
    if named is not None:
        return Target(execution_id=checked_id(named), is_single=True)
    if options.execution_id is not None:
        return Target(execution_id=options.execution_id)
    if subject.me in _waiting and subject.is_interrupted() and answers_in(prompt) is not None:
        return Target(execution_id=_waiting[subject.me], is_single=True, is_made_up=True)
    return Target(execution_id=uuid.uuid4().hex, is_single=True, is_made_up=True)


def _named(invocation_state: Any) -> str | None:
    """Return the id that was given with a call; not one generated for an earlier call with the same state."""
    named = invocation_state.get("execution_id") if isinstance(invocation_state, dict) else None
    return None if named is None or named == invocation_state.get(MADE_UP) else named


def _pass_generated_id(invocation_state: Any, execution_id: str) -> None:
    """Give the caller the generated id; after the call, so that no tool, hook or node sees a key that is not its own."""
    if isinstance(invocation_state, dict):
        invocation_state["execution_id"] = invocation_state[MADE_UP] = execution_id
