"""Have each call thrown away and resumed before the test sees how it ended.

``return``: the call runs to its end. Then everything is forgotten, the agent is put back to where it stood, and the same call
is made again with models that refuse to be asked. The test gets the second end: what the journal says, and nothing else.

``crash``: the call dies right after a commit, and is made again, live. The test sees the events of both tries.

A call inside another one is part of it, and is left alone. So is one that fails, is abandoned, or overlaps with another: making
it again would be another run, and forgetting would hit the other.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import sqlite3
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, closing
from functools import partial
from typing import Any
from unittest.mock import Mock, patch

from strands.agent import AgentResult
from strands.agent import agent as loop
from strands.multiagent.base import MultiAgentResult, Status

from strands_durable.testing import CrashPoints, SimulatedCrash, forget_process

from .attach import Bench
from .before import Before, Subject, agents_of, seen

Events = AsyncGenerator[Any, None]
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside a call", default=False)
_NOT_GIVEN: Any = object()


class Resumption:
    """Stands around calls, and makes them twice."""

    def __init__(self, bench: Bench, crash_at: str | None = None) -> None:
        self._bench, self._crash_at = bench, crash_at
        self._lock = threading.Lock()
        self._live: set[_Call] = set()
        self._waiting: weakref.WeakKeyDictionary[Any, _Call] = weakref.WeakKeyDictionary()

    def watch(self, subject: Subject) -> None:
        """Stand around all calls of ``subject``, outside of its `Durability`."""
        subject.stream_async = partial(self._stream, subject, subject.stream_async)  # type: ignore[method-assign]

    async def _stream(
        self, subject: Subject, durable: Any, prompt: Any = None, invocation_state: Any = _NOT_GIVEN, **given: Any
    ) -> Events:
        if invocation_state is not _NOT_GIVEN:
            given["invocation_state"] = invocation_state
        call = None if _inside.get() else self._begin(subject, durable, prompt, given)
        if call is None:
            events = durable(prompt, **given)
        else:
            events = call.returned() if self._crash_at is None else call.crashed(self._crash_at)
        try:
            while True:
                token = _inside.set(True)
                try:
                    event = await events.__anext__()
                except StopAsyncIteration:
                    return
                finally:
                    _inside.reset(token)
                yield event
        finally:
            await events.aclose()
            if call is not None:
                self._end(call)

    def _begin(self, subject: Subject, durable: Any, prompt: Any, given: dict[str, Any]) -> _Call | None:
        with self._lock:
            if isinstance(loop.event_loop_cycle, Mock):  # type: ignore[attr-defined]
                self._bench.counts["not resumed: the test replaces the loop"] += 1
                return None
            try:
                call = _Call(self._bench, subject, durable, prompt, given, self._waiting.pop(subject, None))
            except Exception as error:  # a mock stands where the agent's state should be
                self._bench.counts[f"not resumed: {type(error).__name__} before the call"] += 1
                return None
            self._live.add(call)
            if len(self._live) > 1:
                for other in self._live:
                    other.overlaps = True
            return call

    def _end(self, call: _Call) -> None:
        with self._lock:
            self._live.discard(call)
            if call.is_suspended:
                self._waiting[call.subject] = call


class _Call:
    """One call, its subject as it was before, and how to make it again."""

    def __init__(
        self, bench: Bench, subject: Subject, durable: Any, prompt: Any, given: dict[str, Any], waiting: _Call | None
    ) -> None:
        self._bench, self.subject, self._durable = bench, subject, durable
        self._prompt, self._prompt_again = prompt, copy.deepcopy(prompt)
        self._given, self._invocation_state = given, dict(given.get("invocation_state") or {})
        self._known = self._executions()
        self._before = Before(subject)
        self._waiting = waiting
        self._execution_id: str | None = None
        self._result: Any = None
        self.overlaps = False

    @property
    def is_suspended(self) -> bool:
        """Whether the call waits for answers, in the execution that the next call belongs to."""
        return bool(self._result is not None and self._result.interrupts and self._find_execution())

    async def returned(self) -> Events:
        """Run to the end, and give the end that is found when the call is made again."""
        last: Any = None
        async with aclosing(self._durable(self._prompt, **self._given)) as events:
            async for event in events:
                if self._is_end(event):
                    last = event
                else:
                    yield event
        if last is None:
            return
        if self._can_be_made_again():
            last = {**last, "result": _elsewhere(lambda: self._again(last["result"]))}
        yield last

    async def _again(self, first: Any) -> Any:
        expected, steps = seen(self.subject, first), self._steps()
        self._forget()
        with ExitStack() as dead:
            for _, agent in agents_of(self.subject):
                dead.enter_context(patch.object(agent.model, "stream", _refuse))
            async for event in self._made_again():
                self._is_end(event)
        found = seen(self.subject, self._result)
        different = [name for name in expected if expected[name] != found[name]]
        assert not different, "Resumed otherwise: " + "; ".join(
            f"{name} was {expected[name]!r}, is {found[name]!r}" for name in different
        )
        assert self._steps() == steps, "Making a finished call again recorded steps"
        self._bench.counts["resumed"] += 1
        return self._result

    async def crashed(self, point: str) -> Events:
        """Die at ``point``, and go on."""
        try:
            with CrashPoints().crashing(point, "raise"):
                async with aclosing(self._durable(self._prompt, **self._given)) as events:
                    async for event in events:
                        self._is_end(event)
                        yield event
            return
        except SimulatedCrash:
            if not self._can_be_made_again():
                raise
        self._forget()
        async with aclosing(self._made_again()) as events:
            async for event in events:
                self._is_end(event)
                yield event
        self._bench.counts["resumed"] += 1

    def _is_end(self, event: Any) -> bool:
        found = event.get("result") if isinstance(event, dict) else None
        if isinstance(found, (AgentResult, MultiAgentResult)):
            self._result = found
            return True
        return False

    def _can_be_made_again(self) -> bool:
        reason = self._obstacle()
        if reason is not None:
            self._bench.counts[f"not resumed: {reason}"] += 1
        return reason is None

    def _obstacle(self) -> str | None:
        if self.overlaps:
            return "it overlaps with another"
        if not self._find_execution():
            return "nothing is recorded"
        return "it failed" if getattr(self._result, "status", None) is Status.FAILED else None

    def _find_execution(self) -> bool:
        """Find the execution that the call belongs to: a new one, or the one that waited for its answers."""
        new = self._executions() - self._known
        if len(new) == 1:
            (self._execution_id,) = new
        elif self._waiting is not None:
            self._before, self._execution_id = self._waiting._before, self._waiting._execution_id
        return self._execution_id is not None

    def _forget(self) -> None:
        forget_process()
        self._before.put_back()

    def _made_again(self) -> Events:
        state = {**self._invocation_state, "execution_id": self._execution_id}
        events: Events = self._durable(self._prompt_again, **{**self._given, "invocation_state": state})
        return events

    def _executions(self) -> set[str]:
        return {row[0] for row in self._rows("SELECT execution_id FROM executions")}

    def _steps(self) -> int:
        return int(self._rows("SELECT count(*) FROM steps")[0][0])

    def _rows(self, query: str) -> list[Any]:
        if not self._bench.path.exists():
            return []
        with closing(sqlite3.connect(self._bench.path)) as connection:
            return connection.execute(query).fetchall()


async def _refuse(*args: Any, **kwargs: Any) -> Events:
    raise AssertionError("The model was asked again")
    yield


def _elsewhere(function: Callable[[], Any]) -> Any:
    """Run to the end in a loop of its own, so that nothing else of this one comes in between."""
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(context.run, lambda: asyncio.run(function())).result()
