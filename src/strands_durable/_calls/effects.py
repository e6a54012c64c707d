"""Recorded side effects: what `durable.step` and similar functions write to the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from .._records import keys
from .._records.codec import decode, encode
from .._records.exceptions import describe
from .._records.logs import safe_logger
from .._records.step_gate import StepTicket
from .._records.steps import StepEnd, StepKind, StepRecord
from ..errors import DurableError
from .context import StepContext, current_context, enclosing_steps

logger = safe_logger(__name__)

_SHORT_SECONDS = 1.0


@contextmanager
def effect_guard(found: StepContext) -> Iterator[None]:
    """Guard our own code: a store error must not become a tool result that the model sees; it ends the call."""
    try:
        yield
    except DurableError as error:
        found.call.fail(error)


async def pause(seconds: float, what: str) -> None:
    """Sleep. If a step gate is installed, the engine does the waiting (a durable timer)."""
    found = current_context.get()
    gate = None if found is None else found.call.control.gate
    if found is None or gate is None or seconds < _SHORT_SECONDS:
        await asyncio.sleep(seconds)
        return
    with effect_guard(found):
        await gate.pause(time.time() + seconds, what, enclosing_steps(found))


class Effect:
    """One side effect of a step or hook, recorded or about to run; with ``model``, an auxiliary call of that model."""

    def __init__(self, enclosing: StepContext, name: str, *, intent: bool, model: str | None = None) -> None:
        self._call, self._enclosing, self._name, self._model = enclosing.call, enclosing, name, model
        self.key = keys.effect_key(enclosing.key, enclosing.phase, name, enclosing.occurrence(name))
        found = self._found()
        self.recorded: StepRecord | None = found if found is not None and found.status == "done" else None
        self.attempt = 1 if found is None else found.attempt + 1
        self._step_id: int | None = None
        if found is not None and found.status == "started" and model is None:
            self._run_again()
        if intent and self.recorded is None:
            with self._call.journal.transaction("effect.start"):
                self._step_id = self._insert()

    def _found(self) -> StepRecord | None:
        if self._call.options.player is not None:
            return self._call.options.player.effect(self._call, self.key)
        return self._call.journal.latest(self._call.record.call_id, self.key).get(self.key)

    def _run_again(self) -> None:
        """Warn that an effect which may have happened runs again: it has no idempotency key of its own to prevent that."""
        logger.warning(
            "execution_id=<%s>, effect=<%s>, step=<%s>, attempt=<%d>, idempotency_key=<%s> | effect in doubt is run again",
            self._call.execution_id, self._name, self.key, self.attempt, self._enclosing.view.idempotency_key,
        )  # fmt: skip

    async def wait(self) -> None:
        """Wait until the effect may run."""
        await self._call.wait_for(self._ticket, starts=False)

    def holding(self) -> AbstractContextManager[None]:
        """Hold the ticket while the effect runs."""
        return self._call.holding(self._ticket)

    @cached_property
    def _ticket(self) -> StepTicket:
        kind: StepKind = "effect" if self._model is None else "model"
        return self._call.ticket(self.key, self.attempt, kind, self._model or self._name, inside=self._enclosing)

    def close(self, value: Any, usage: dict[str, int] | None = None) -> Any:
        """Commit the result, and return it as recorded."""
        text = encode(value, f"Execution {self._call.execution_id!r}: the result of durable.step {self._name!r}")
        with self._call.journal.transaction("effect.done"):
            if self._step_id is None:
                self._insert(StepEnd("done", text))
            else:
                self._call.journal.end_step(self._step_id, StepEnd("done", text, usage=usage))
        return decode(text)

    def fail(self, error: Exception) -> None:
        """Record an attempt that ended in an error."""
        assert self._step_id is not None
        with self._call.journal.transaction("effect.failed"):
            self._call.journal.end_step(self._step_id, StepEnd("failed", error=describe(error)))

    def _insert(self, end: StepEnd | None = None) -> int:
        call_id, now = self._call.record.call_id, time.time()
        kind: StepKind = "effect" if self._model is None else "model"
        return self._call.journal.insert_step(
            call_id, self.key, self.attempt, kind, self._model or self._name, "", now, end=end
        )
