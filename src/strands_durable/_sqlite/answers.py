"""The recorded answers of people: those that a call has used, and those that it has not."""

from __future__ import annotations

import time
from typing import Any

from .._records.codec import decode, encode
from .._records.questions import answers_in
from .recorded import Recorded


class Answers(Recorded):
    """The answers of one execution."""

    def insert_answers(self, call_id: int, answers: dict[str, Any]) -> None:
        """Record a person's answers, with the time at which they were given: from then on no one is waited for."""
        now, given = time.time(), dict(self.store.rows("replies", "interrupt_id, at", "call = ?", call_id))
        for name, answer in answers.items():
            at, text = given.get(name, now), encode(answer, "The answer")
            self._connection.put("answers", call=call_id, interrupt_id=name, answer=text, at=at)
            self._connection.delete("replies", "call = ? AND interrupt_id = ?", call_id, name)

    def replies(self, call_id: int) -> dict[str, Any]:
        """Return the answers that were given from outside, and that the call has not taken up yet."""
        rows = self.store.rows("replies", "interrupt_id, answer", "call = ?", call_id)
        return {interrupt_id: decode(answer) for interrupt_id, answer in rows}

    def answers(self, call_id: int, given: Any = None) -> dict[str, Any]:
        """Return the recorded answers of a call; also those that it began with, if ``given`` is its input."""
        rows = self.store.rows("answers", "interrupt_id, answer", "call = ?", call_id)
        return {**(answers_in(given) or {}), **{interrupt_id: decode(answer) for interrupt_id, answer in rows}}
