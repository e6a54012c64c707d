"""Our own questions to a person, about steps in doubt, and the answers that they accept. Does not import Strands."""

from __future__ import annotations

import re
from typing import Any

from ..errors import InDoubtError
from .calls import CallRecord
from .results import OpenInterrupt

ANSWERS = '"retry", "fail" or {"result": ...}'
MODEL_ANSWERS = '"retry" or "fail"'
QUESTION = "strands-durable: in doubt"
_MODEL_QUESTION = re.compile(r"/model~\d+, attempt \d+\)$")


DEADLINE = "deadline"
"""Who has answered a question whose time was over."""
_LONGEST_SECONDS = 100 * 365 * 86_400
"""A later deadline is none: not every number of seconds is a moment that can be shown."""


def expires_in(reason: Any) -> float | None:
    """Return for how many seconds a question waits for an answer; None if for ever."""
    found = reason.get("expires_in") if isinstance(reason, dict) else None
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return float(found) if is_number and 0 <= found <= _LONGEST_SECONDS else None  # type: ignore[operator, arg-type]


def default_answer(reason: Any) -> Any:
    """Return the answer to a question whose time is over: false, if its reason names none."""
    found = reason.get("default") if isinstance(reason, dict) else None
    return False if found is None else found


def answers_to(name: str) -> str | None:
    """Return the answers that a question of this name accepts; None if it is not one of ours and accepts any."""
    if not name.startswith(QUESTION):
        return None
    return ANSWERS if _MODEL_QUESTION.search(name) is None else MODEL_ANSWERS


def interrupts_of(record: CallRecord) -> tuple[OpenInterrupt, ...]:
    """Return what a call waits for."""
    found = (record.result or {}).get("interrupts") or ()
    return tuple(OpenInterrupt(interrupt_id=each["id"], name=each["name"], reason=each.get("reason")) for each in found)


def asked_by(record: CallRecord) -> set[str]:
    """Return the ids of the interrupts that a call waits for."""
    return {found.interrupt_id for found in interrupts_of(record)}


def refuse_malformed(execution_id: str, record: CallRecord, answers: dict[str, Any]) -> None:
    """Raise if an answer to one of our own questions is not one that it accepts."""
    names = {interrupt.interrupt_id: interrupt.name for interrupt in interrupts_of(record)}
    for interrupt_id, answer in answers.items():
        wrong = _wrong(names.get(interrupt_id, ""), answer)
        if wrong is not None:
            raise InDoubtError(execution_id, names[interrupt_id], wrong, f"Answer interrupt_id {interrupt_id} again.")


def _wrong(name: str, answer: Any) -> str | None:
    taken = answers_to(name)
    if taken is None or answer in ("retry", "fail"):
        return None
    if isinstance(answer, dict) and set(answer) == {"result"} and taken == ANSWERS:
        return None
    return f"{answer!r} is not a valid answer: use {taken}"


def answers_in(prompt: Any) -> dict[str, Any] | None:
    """Return the answers if ``prompt`` is a list of them."""
    if (
        not isinstance(prompt, list)
        or not prompt
        or not all(isinstance(b, dict) and "interruptResponse" in b for b in prompt)
    ):
        return None
    return {block["interruptResponse"]["interruptId"]: block["interruptResponse"]["response"] for block in prompt}
