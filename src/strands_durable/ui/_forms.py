"""From the reason of a question to a form, and from what was posted to an answer.

A reason that is a dict may say what it accepts: ``options``, a list of values or of ``{"label", "value"}``, or ``schema``, a
JSON Schema of an object with plain fields. Without either, approving answers "yes", rejecting "no", and any text or JSON can
be sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite
from typing import Any

from .._records.questions import ANSWERS
from .._records.views import Question
from ..errors import DurableError
from ._wording import brief, line

_KINDS = {"string": "text", "number": "number", "integer": "number", "boolean": "checkbox"}


class AnswerError(DurableError):
    """What was sent is not an answer."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A button with an answer of its own."""

    label: str
    value: Any
    tone: str = "plain"


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of an answer that is an object."""

    name: str
    label: str
    kind: str
    """text, number, checkbox or select."""
    options: tuple[str, ...] = ()
    is_required: bool = False
    is_whole: bool = False


@dataclass(frozen=True, kw_only=True)
class AnswerForm:
    """What a person can answer a question with."""

    choices: tuple[Choice, ...] = ()
    fields: tuple[Field, ...] = ()
    text_label: str | None = None
    """Of the field for any other answer; None if there is none."""
    is_result: bool = False
    """True if the text is the result of a step in doubt."""
    version: str = ""
    """Changes with the question: some models repeat their ids, so that an id alone may name another question by now."""


def form_of(question: Question) -> AnswerForm:
    """Return the form of a question."""
    asked = json.dumps([question.name, question.reason], sort_keys=True)
    return replace(_form(question), version=sha256(asked.encode()).hexdigest()[:16])


def _form(question: Question) -> AnswerForm:
    if question.answers is not None:
        return _in_doubt(question.answers)
    reason = question.reason if isinstance(question.reason, dict) else {}
    if fields := _fields(reason.get("schema")):
        return AnswerForm(fields=fields)
    options = reason.get("options")
    if isinstance(options, list) and options:
        return AnswerForm(choices=tuple(map(_choice, options)), text_label="Or another answer: text or JSON")
    return AnswerForm(
        choices=(Choice(label="Approve", value="yes", tone="good"), Choice(label="Reject", value="no", tone="bad")),
        text_label="Or another answer: text or JSON",
    )


def _in_doubt(answers: str) -> AnswerForm:
    choices = (
        Choice(label="It did not happen: run it again", value="retry"),
        Choice(label="It is unknown: report an error to the model", value="fail"),
    )
    is_result = answers == ANSWERS
    return AnswerForm(
        choices=choices,
        text_label="It happened, with this result: text or JSON" if is_result else None,
        is_result=is_result,
    )


def _choice(option: Any) -> Choice:
    if isinstance(option, dict) and "value" in option:
        return Choice(label=line(option.get("label", option["value"])), value=option["value"])
    return Choice(label=line(option) if isinstance(option, str) else brief(option), value=option)


def _fields(schema: Any) -> tuple[Field, ...]:
    """Return the fields of an object whose properties are all plain; none for any other schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ()
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    found = [_field(str(name), each, name in required) for name, each in properties.items()]
    return tuple(field for field in found if field is not None) if None not in found else ()


def _field(name: str, schema: Any, is_required: bool) -> Field | None:
    if not isinstance(schema, dict):
        return None
    label, options = line(schema.get("title") or name), schema.get("enum")
    if isinstance(options, list) and options and all(isinstance(each, str) for each in options):
        return Field(name=name, label=label, kind="select", options=tuple(options), is_required=is_required)
    kind = _KINDS.get(str(schema.get("type")))
    if kind is None:
        return None
    return Field(name=name, label=label, kind=kind, is_required=is_required, is_whole=schema.get("type") == "integer")


def answer_in(form: AnswerForm, posted: Mapping[str, str]) -> Any:
    """Return the answer that was posted."""
    if posted.get("version", form.version) != form.version:
        raise AnswerError("The question has changed. Look at it again.")
    if form.fields:
        return _object(form.fields, posted)
    if "choice" in posted:
        index = posted["choice"]
        found = [choice.value for number, choice in enumerate(form.choices) if str(number) == index]
        if not found:
            raise AnswerError("The question has changed. Look at it again.")
        return found[0]
    value = _value(_typed(posted, "text").strip())
    return {"result": value} if form.is_result else value


def _value(typed: str) -> Any:
    """Return JSON if it is JSON, otherwise the text."""
    try:
        value = json.loads(typed, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        value = typed
    if value is None or value == "":
        raise AnswerError("The answer is empty. Type a text or a JSON value; null is not an answer.")
    return value


def _finite(typed: str) -> float:
    """Return a number that JSON can hold: 1e999 would be infinite."""
    if not isfinite(number := float(typed)):
        raise ValueError(typed)
    return number


def _typed(posted: Mapping[str, str], name: str) -> str:
    """Return what was typed into a field; browsers send every line end as two characters."""
    return posted.get(name, "").replace("\r\n", "\n")


def _object(fields: tuple[Field, ...], posted: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        typed = _typed(posted, f"field.{field.name}")
        if field.kind == "checkbox":
            found[field.name] = bool(typed)
        elif typed.strip() or (typed and field.kind == "select"):
            found[field.name] = _number(field, typed.strip()) if field.kind == "number" else _text(field, typed)
        elif field.is_required:
            raise AnswerError(f"{field.label} is missing.")
    return found


def _text(field: Field, typed: str) -> str:
    if field.kind != "select":
        return typed.strip()
    if typed not in field.options:
        raise AnswerError(f"{field.label} has to be one of {', '.join(map(line, field.options))}.")
    return typed


def _number(field: Field, typed: str) -> int | float:
    try:
        return int(typed) if field.is_whole or typed.lstrip("-").isdecimal() else _finite(typed)
    except ValueError:
        raise AnswerError(f"{field.label} has to be a number, not {typed!r}.") from None
