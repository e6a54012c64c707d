"""Questions that wait for a person: printed, asked on a terminal, or answered by an option."""

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
NULL = 'null is no answer: Strands would ask again. Answer false, "" or a text.'


def is_terminal() -> bool:
    """Say whether somebody is there to be asked."""
    return sys.stdin.isatty()


def ask(questions: Iterable[OpenInterrupt]) -> dict[str, Any]:
    """Ask each question on the terminal; what parses as JSON is taken as JSON, everything else as text."""
    answers = {}
    for question in questions:
        click.echo(f"\n{described(question)}", err=True)
        if (taken := answers_to(question.name)) is not None:
            click.echo(f"Answer {taken}.", err=True)
        answers[question.interrupt_id] = _answered()
    return answers


def _answered() -> Any:
    while (answer := _value(_typed())) is None:
        click.echo(NULL, err=True)
    return answer


def _typed() -> str:
    """Wait for a line, or for Ctrl-C, whatever that means elsewhere."""
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
    """Return a question on one line; it came from a model or a tool, and may hold anything."""
    reason = short(question.reason, _REASON_LENGTH)
    return one_line(question.name) + (f": {reason}" if reason else "")


def listed(questions: Iterable[OpenInterrupt]) -> str:
    """Return questions with their ids, one on each line."""
    return "\n".join(line for question in questions for line in _lines(question))


def _lines(question: OpenInterrupt) -> Iterator[str]:
    yield f"  {described(question)}"
    if (taken := answers_to(question.name)) is not None:
        yield f"    answers: {taken}"
    yield f"    interrupt_id: {one_line(question.interrupt_id)}"


def read(given: Sequence[str], questions: Sequence[OpenInterrupt]) -> dict[str, Any]:
    """Return the answers of ``--answer`` options: ``ID=JSON``, or JSON alone where one question is open."""
    found = [_parted(text) for text in given]
    if any(answer is None for _, answer in found):
        raise click.UsageError(NULL)
    if all(interrupt_id is not None for interrupt_id, _ in found):
        return {str(interrupt_id): answer for interrupt_id, answer in found}
    if len(found) > 1:
        raise click.UsageError("Several answers need the ids of what they answer: --answer INTERRUPT_ID=JSON.")
    if len(questions) != 1:
        hint = "Write --answer INTERRUPT_ID=JSON for each."
        raise click.UsageError(f"{len(questions)} questions are open. {hint}\n{listed(questions)}")
    return {questions[0].interrupt_id: found[0][1]}


def _parted(text: str) -> tuple[str | None, Any]:
    """Return the id and the answer: an id may hold an equals sign, but what comes after the right one is JSON."""
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
