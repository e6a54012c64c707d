"""The way into an execution: name it, own it, make one root call; or stand inside one that is under way."""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import AsyncGenerator
from typing import Any, Protocol

from . import _admission
from ._context import enclosing, frame
from ._head import MADE_UP
from ._journal import Journal
from ._keys import checked_id
from ._lease import Lease, acquire, look
from ._options import Options
from ._records import answers_in
from ._seat import Desk, DispatchedDesk, RootDesk, nested_desk
from ._session import Session, process
from ._store import Store
from ._stores import stores
from .errors import BackendUnavailableError, DurableError, ExecutionBusyError, UnreadableError

logger = logging.getLogger(__name__)

Events = AsyncGenerator[Any, None]

_waiting: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The execution with a made-up id in which an agent or orchestrator waits for answers."""


class Subject(Protocol):
    """An agent or an orchestrator, as far as calls of it are concerned."""

    me: Any
    name: str

    def is_interrupted(self) -> bool:
        """Say whether it waits for answers; it then takes nothing else."""

    def may_know_better(self) -> bool:
        """Say whether the journal may know better what it waits for: what it carries comes from somewhere else."""

    def knows_interrupt(self, interrupt_id: str) -> bool:
        """Say whether it has raised this interrupt."""

    def is_busy(self) -> bool:
        """Say whether it is in a durable call."""

    def enter(self, session: Session) -> None:
        """Take part in an execution with root calls, if that is possible."""

    def original(self, prompt: Any, given: dict[str, Any]) -> Events:
        """Call it as if we were not there."""

    def open(
        self, options: Options, journal: Journal, session: Session, desk: Desk, prompt: Any, given: dict[str, Any]
    ) -> Events:
        """Make a durable call."""


def call(options: Options | None, subject: Subject, prompt: Any, given: dict[str, Any]) -> Events:
    """Return the stream of one call, made durable. Without options of its own it is so only inside an execution."""
    outer = enclosing.get()
    if subject.is_busy():  # a second call of a busy agent is for Strands to refuse or to join
        return subject.original(prompt, given)
    if outer is not None and outer.is_open:
        return _nested(subject, prompt, given)
    if options is None or _is_for_strands(subject, prompt):
        return subject.original(prompt, given)
    return _owned(options, subject, prompt, given)


def _is_for_strands(subject: Subject, prompt: Any) -> bool:
    """Say whether Strands refuses this call before anything happens: a prompt where it waits for answers, and the like."""
    if not subject.is_interrupted() or subject.may_know_better():
        return not isinstance(prompt, (str, list, type(None)))
    answers = answers_in(prompt)
    return answers is None or not all(subject.knows_interrupt(interrupt_id) for interrupt_id in answers)


async def _nested(subject: Subject, prompt: Any, given: dict[str, Any]) -> Events:
    """Make a call inside another: its journal, its session and its options hold."""
    standing, outer = frame.get(), enclosing.get()
    assert outer is not None
    if standing is None or standing.call is not outer:
        standing = outer.frame_of_call("before")
    try:
        desk = nested_desk(standing, subject.name, subject.me, prompt)
        events = subject.open(outer.options, outer.journal, outer.session, desk, prompt, given)
    except DurableError as error:
        outer.fail(error)  # on its way out through Strands it would become a tool result or a failed node
        raise
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def _owned(options: Options, subject: Subject, prompt: Any, given: dict[str, Any]) -> Events:
    execution_id, is_made_up = _execution_id(options, subject, prompt, given.get("invocation_state"))
    session = process.session(options.path, execution_id)
    session.enter(subject.me)
    try:
        store, heart = stores.open(options.path, options.busy_seconds)
        claimed, session.claim = session.claim, None
        lease = claimed or await _acquired(options, session, store, prompt)
        heart.keep(lease)
        try:
            subject.enter(session)
            journal = Journal(lease)
            answers = answers_in(prompt) or {}
            waits = subject.is_interrupted() and all(map(subject.knows_interrupt, answers))
            make_desk = RootDesk if claimed is None else DispatchedDesk
            desk = make_desk(options, journal, session, subject.name, waits=waits)
            events = subject.open(options, journal, session, desk, prompt, given)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
        finally:
            heart.let_go(lease)
            _release(lease)
    except BackendUnavailableError:
        stores.drop(options.path)
        raise
    except UnreadableError as error:
        raise error.of(execution_id) from error.__cause__
    finally:
        session.leave()
        if is_made_up:
            _tell(given.get("invocation_state"), execution_id)
            _end_made_up(options, subject, session)


async def _acquired(options: Options, session: Session, store: Store, prompt: Any) -> Lease:
    """Become the owner; a cancel that nobody has seen to yet is seen to first."""
    try:
        lease = await acquire(store, session.execution_id, options.lease_seconds)
    except ExecutionBusyError:
        journal = Journal(look(store, session.execution_id))
        _admission.refuse_other_input(journal, journal.call_at(session.position), prompt)
        raise
    journal = Journal(lease)
    if journal.is_cancel_due():
        with journal.transaction("call.cancelled") as connection:
            journal.cancel(connection)
    return lease


def _end_made_up(options: Options, subject: Subject, session: Session) -> None:
    """Keep an execution without a name only while it waits for answers, which have no id either."""
    if subject.is_interrupted():
        _waiting[subject.me] = session.execution_id
    else:
        _waiting.pop(subject.me, None)
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


def _execution_id(options: Options, subject: Subject, prompt: Any, invocation_state: Any) -> tuple[str, bool]:
    """Return the id of the execution that a call belongs to, and whether it was made up."""
    named = invocation_state.get("execution_id") if isinstance(invocation_state, dict) else None
    if named is not None and named != invocation_state.get(MADE_UP):
        return checked_id(named), False
    if options.execution_id is not None:
        return options.execution_id, False
    if subject.me in _waiting and subject.is_interrupted() and answers_in(prompt) is not None:
        return _waiting[subject.me], True
    execution_id = uuid.uuid4().hex
    logger.info("execution_id=<%s> | new execution", execution_id)
    return execution_id, True


def _tell(invocation_state: Any, execution_id: str) -> None:
    """Tell the caller the id that was made up; after the call, so that no tool, hook or node sees a key that is not its."""
    if isinstance(invocation_state, dict):
        invocation_state["execution_id"] = invocation_state[MADE_UP] = execution_id
