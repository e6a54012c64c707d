"""Answers that reach an execution through callbacks: any JSON value, so that people without our client can give one.

A handle sends an object with all answers of one request and who gives them: the function uses them together, whichever
callback is delivered first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_TOGETHER = "strands_durable_answers"
_BY_CALLBACK = "a callback"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer, and who gave it; or why it is none."""

    value: Any = None
    by: str = _BY_CALLBACK
    error: str | None = None


def together(answers: dict[str, Any], by: str) -> str:
    """Return the reply to a callback for answers that are given together."""
    return json.dumps({_TOGETHER: answers, "by": by})


def answers_in(replies: Mapping[str, str | None], asked: Collection[str]) -> dict[str, Answer]:
    """Return the answers in replies, each to the callback of a question.

    One that was given together with another counts for questions whose own callback has no reply: the engine accepted that one.
    """
    found: dict[str, Answer] = {}
    for question, text in replies.items():
        for each, answer in _answers(question, text).items():
            if each == question or (each in asked and each not in replies):
                found[each] = answer
    return found


def _answers(question: str, text: str | None) -> dict[str, Answer]:
    try:
        value = json.loads(text or "null")
    except ValueError as error:
        return {question: Answer(error=str(error))}
    answers = value.get(_TOGETHER) if isinstance(value, dict) else None
    if not isinstance(answers, dict) or question not in answers:
        return {question: Answer(value=value)}
    by = str(value.get("by", _BY_CALLBACK))
    return {each: Answer(value=answer, by=by) for each, answer in answers.items()}
