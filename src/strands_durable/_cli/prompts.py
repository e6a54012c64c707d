"""Open questions to a person: listed, asked on a terminal, or answered by an option."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from .._records.printable import one_line
from .._records.questions import answers_to
from .._records.results import OpenInterrupt
from .._records.views import short
from .options import not_json, strict_json

_REASON_LENGTH = 2_000
NULL = 'null is not an answer: Strands would ask again. Answer false, "" or a text.'


def is_terminal() -> bool:
    """Return whether a person can be asked on this terminal."""
    return sys.stdin.isatty()


def ask(questions: Iterable[OpenInterrupt]) -> dict[str, Any]:
    """Ask each question on the terminal; input that parses as JSON is used as JSON, anything else as text."""
    answers = {}
    for question in questions:
        click.echo(f"\n{described(question)}", err=True)
        if (taken := answers_to(question.name)) is not None:
            click.echo(f"Valid answers: {taken}", err=True)
        answers[question.interrupt_id] = _answered()
    return answers


def _answered() -> Any:
    while (answer := _value(_typed())) is None:
        click.echo(NULL, err=True)
    return answer


def _typed() -> str:
    """Wait for a line, or for Ctrl-C, whichever handler is installed outside."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return str(click.prompt("Answer", prompt_suffix=": ", err=True))
    finally:
        signal.signal(signal.SIGINT, before)


def _value(text: str) -> Any:
    try:
        return strict_json(text)
    except ValueError:
        return text


def described(question: OpenInterrupt) -> str:
    """Return a question on one line; a model or a tool wrote it, so it may contain anything."""
    reason = short(question.reason, _REASON_LENGTH)
    return one_line(question.name) + (f": {reason}" if reason else "")


def listed(questions: Iterable[OpenInterrupt]) -> str:
    """Return questions with their ids, one below the other."""
    return "\n".join(line for question in questions for line in _lines(question))


def _lines(question: OpenInterrupt) -> Iterator[str]:
    yield f"  {described(question)}"
    if (taken := answers_to(question.name)) is not None:
        yield f"    answers: {taken}"
    yield f"    interrupt_id: {one_line(question.interrupt_id)}"


def read(texts: Sequence[str], questions: Sequence[OpenInterrupt]) -> dict[str, Any]:
    """Return the answers of ``--answer`` options: ``ID=JSON``, or JSON alone if one question is open."""
    answers = [_split(text) for text in texts]
    if any(answer is None for _, answer in answers):
        raise click.UsageError(NULL)
    if all(interrupt_id is not None for interrupt_id, _ in answers):
        return {str(interrupt_id): answer for interrupt_id, answer in answers}
    if len(answers) > 1:
        raise click.UsageError("Several answers need interrupt ids: --answer INTERRUPT_ID=JSON for each.")
    if len(questions) != 1:
        hint = "Pass --answer INTERRUPT_ID=JSON for each."
        raise click.UsageError(f"{len(questions)} questions are open. {hint}\n{listed(questions)}")
    return {questions[0].interrupt_id: answers[0][1]}


def _split(text: str) -> tuple[str | None, Any]:
    """Return the id and the answer; an id may contain equals signs, so split at the first one that JSON follows."""
    try:
        return None, strict_json(text)
    except ValueError:
        pass
    position = text.find("=")
    while position > 0:
        try:
            return text[:position], strict_json(text[position + 1 :])
        except ValueError:
            position = text.find("=", position + 1)
    raise click.UsageError(f"--answer {not_json(text)}")
