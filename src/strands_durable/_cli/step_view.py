"""Steps with all they were given and gave: what ``show ID STEP`` and ``show --full`` print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from .._records.printable import masked, one_line, printable
from .._records.views import CallSummary, ExecutionDetail, StepSummary


def steps_named(detail: ExecutionDetail, name: str) -> list[tuple[CallSummary, StepSummary]]:
    """Return the attempts of the steps that ``name`` names: by label (model 2, 2.0 book), number (2, 2.0) or key."""
    return [
        (call, step)
        for call in detail.calls
        for step in call.steps
        if one_line(name) in (one_line(step.label), one_line(step.number), one_line(step.key))
    ]


def step_text(call: CallSummary, step: StepSummary, *, unmasked: bool = False) -> str:
    """Return one attempt of a step, whole; what looks like a secret is masked unless it is asked for."""
    return "\n".join(_step_lines(call, step, _as_it_is if unmasked else masked))


def _as_it_is(value: Any) -> Any:
    return value


def _step_lines(call: CallSummary, step: StepSummary, hide: Callable[[Any], Any]) -> Iterator[str]:
    took = "" if step.duration_seconds is None else f", took {step.duration_seconds:.2f} s"
    place = "" if call.depth == 0 else f"  in {one_line(call.kind)} {one_line(call.member)}"
    yield f"{one_line(step.label)}  {step.state}  attempt {step.attempt}{took}{place}"
    yield f"  key     {one_line(step.key)}"
    if step.input is not None:
        yield from _block("input", written(hide(step.input)))
    if step.result is not None:
        yield from _block("result", _result(step.kind, hide(step.result)))
    if step.error is not None:
        yield from _block("error", hide(step.error))


def _block(name: str, text: str) -> Iterator[str]:
    """Yield the lines of a value beside its name."""
    first, *others = printable(text).rstrip("\n").split("\n")
    yield f"  {name:<7} {first}"
    yield from (f"          {line}" for line in others)


def _result(kind: str, result: Any) -> str:
    """Return what a step gave: the text of a message or tool result, else JSON."""
    message = result.get("message") if kind == "model" and isinstance(result, dict) else result
    content = message.get("content") if isinstance(message, dict) and kind in ("model", "tool") else None
    if not isinstance(content, list):
        return written(result)
    return "\n".join(_said(found) for found in content)


def _said(found: Any) -> str:
    """Return a content block: its text, the tool that it asks for, or the block as JSON."""
    if isinstance(found, dict) and isinstance(found.get("text"), str):
        return str(found["text"])
    if isinstance(found, dict) and isinstance(found.get("toolUse"), dict):
        return f"→ {found['toolUse'].get('name')} {json.dumps(found['toolUse'].get('input'), ensure_ascii=False)}"
    return written(found["json"] if isinstance(found, dict) and set(found) == {"json"} else found)


def written(value: Any) -> str:
    """Return a value as people read it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
