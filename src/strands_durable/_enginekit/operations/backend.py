"""A backend whose clients cannot append: only the function writes the log, and everybody else replies to its callbacks."""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from ..._dispatch.handles import ExecutionHandle
from ..._dispatch.notifications.hooks import Callback
from ..._dispatch.notifications.webhooks import Webhook
from ..._dispatch.requests import Requests
from ..._journal.owner import user_name
from ..._records.change_sets import rows_of
from ..._records.executions import ExecutionStatus
from ..._records.printable import url_for_people
from ...errors import BackendUnavailableError, CipherError, ExecutionCancelledError, UnsupportedFeatureError
from ..backend import LogBackend
from ..handle import AT_WORK, LogHandle
from ..log import Presence, RecordedExecution
from .answers import together
from .history import OperationHistory
from .port import ACCEPT_DRIFT
from .row_store import RowStore, text_of

S = ExecutionStatus
_TRIES = 40


class CallbackBackend(LogBackend):
    """Runs executions on an engine that invokes functions, which ask through callbacks."""

    invoker: str
    _takes_hooks: str
    """What the function is made with, which takes its hooks."""

    payload_store: RowStore

    # What an engine adds

    @abstractmethod
    async def read(self, execution_id: str) -> OperationHistory:
        """Return an execution as it is recorded, or raise `ExecutionNotFoundError`."""

    @abstractmethod
    async def follow(self, known: OperationHistory) -> bool:
        """Read what was recorded since; False if nothing was."""

    @abstractmethod
    async def reply(self, callback_id: str, text: str) -> bool:
        """Reply to a callback; False if it has a reply, or if its execution has ended."""

    @abstractmethod
    async def resume_attempt(self, known: OperationHistory) -> bool:
        """Run an execution that has ended again, from what is recorded; False if another client has done so."""

    # What a backend does

    def __repr__(self) -> str:
        return f"{type(self).__name__}({url_for_people(self.url)!r})"

    def _handle(self, execution_id: str) -> ExecutionHandle:
        return CallbackHandle(self, execution_id)

    def sealed_answer(self, known: OperationHistory, question: str, answer: Any) -> Any:
        """Return an answer in the form in which it is sent: with the key of the function, which may not have a new one yet."""
        contents, about = self.payload_store.contents, text_of(known.execution_id, f"the answer to {question!r}")
        try:
            return contents.seal_value(answer, about, known.log.key_id)
        except CipherError:
            return contents.seal_value(answer, about)

    async def wake(self, execution_id: str) -> None:
        """Do nothing: the engine invokes the function."""

    async def presence(self, execution_id: str) -> Presence:
        """Return why the function does not run an execution, if it does not."""
        return (await self.read(execution_id)).presence

    def notify(
        self,
        *,
        on_suspended: Callback | None = None,
        on_failed: Callback | None = None,
        on_completed: Callback | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        """Raise: the function has the hooks, since no process of a client runs anything."""
        raise UnsupportedFeatureError(
            f"Notifications on {url_for_people(self.url)}, from a client",
            f"{self.invoker}, which reports what happens",
            f"Pass the hooks to {self._takes_hooks}(..., on_failed=..., webhooks=[...]), and deploy the function.",
        )

    async def work(
        self,
        *,
        concurrency: int = 10,
        drain_seconds: float = 25.0,
        stop: asyncio.Event | None = None,
        trial_command: Sequence[str] | None = None,
        is_trial: bool = False,
    ) -> bool:
        """Raise: there is no worker to start."""
        raise UnsupportedFeatureError(
            f"A worker for {url_for_people(self.url)}", self.invoker, "Deploy a function that has the agent."
        )


class CallbackHandle(LogHandle):
    """One execution of such a backend."""

    def __init__(self, backend: CallbackBackend, execution_id: str) -> None:
        super().__init__(backend, execution_id)
        self._backend = backend

    async def _versions(self) -> AsyncIterator[RecordedExecution]:
        known = await self._backend.read(self.execution_id)
        while True:
            yield known
            await asyncio.sleep(self._backend.poll_seconds)
            if known.status not in AT_WORK:  # it may have been answered, or resumed as another one
                known = await self._backend.read(self.execution_id)
                continue
            while not await self._backend.follow(known):  # noqa: ASYNC110, a poll
                await asyncio.sleep(self._backend.poll_seconds)

    async def _why_it_waits(self) -> str | None:
        note = (await self._backend.read(self.execution_id)).presence.note
        return f"the function does not run it: {note}" if note else None

    async def _presence(self, known: RecordedExecution) -> Presence:
        return cast(OperationHistory, known).presence

    async def respond(self, answers: Mapping[str, Any], *, by: str | None = None) -> None:
        """Answer questions, by interrupt id: each is the reply to a callback."""
        for _ in range(_TRIES):
            known = await self._backend.read(self.execution_id)
            if known.status is S.CANCELLED:
                raise ExecutionCancelledError(self.execution_id)
            Requests(known.replica).respond(self.execution_id, answers, by)  # raises if it is not an answer
            new = {row["interrupt_id"] for row in rows_of(known.replica.changes(), "replies")}
            if not new or await self._reply(known, {each: answers[each] for each in new}, by or user_name()):
                return
            await asyncio.sleep(self._backend.poll_seconds)
        raise BackendUnavailableError(
            url_for_people(self._backend.url),
            f"execution {self.execution_id!r} does not ask its questions",
            "Look at the function's log.",
        )

    async def _reply(self, known: OperationHistory, answers: dict[str, Any], by: str) -> bool:
        """Reply to the callbacks of questions; False if one is not there yet, or has a reply by now."""
        callbacks = known.log.callbacks.open
        if not answers.keys() <= callbacks.keys():
            return False  # the function is about to ask
        sealed = {question: self._backend.sealed_answer(known, question, answers[question]) for question in answers}
        for question in answers:
            if not await self._backend.reply(callbacks[question], together(sealed, by)):
                return False
        return True

    async def _resumed(self, known: RecordedExecution) -> bool:
        """Start the next attempt of a failed execution; let a function that refuses one run it."""
        history = cast(OperationHistory, known)
        if history.status is S.FAILED:
            return await self._backend.resume_attempt(history)
        if history.status is S.SUSPENDED:
            raise UnsupportedFeatureError(
                f"Accepting drift of execution {self.execution_id!r} while it waits for an answer",
                "a function can accept it only after it has refused the execution",
                "Answer first. If the function then refuses it, 'strands-durable show' says so: accept the drift then.",
            )
        callback = history.log.callbacks.open.get(ACCEPT_DRIFT)
        if callback is not None and await self._backend.reply(callback, json.dumps(user_name())):
            return True
        await asyncio.sleep(self._backend.poll_seconds)
        return False
