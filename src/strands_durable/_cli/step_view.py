"""Steps with their whole input and result, as ``show ID STEP`` and ``show --full`` print them."""

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
    """Return one attempt of a step, not shortened; values that look like secrets are masked unless ``unmasked``."""
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
    if step.traceback is not None:
        yield from _block("trace", hide(step.traceback))
    for of, changes in (step.state_changes or {}).items():
        yield from _block("changed", "\n".join(_changed(of, hide(changes))))


def _changed(of: str, changes: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each part of a state that was changed."""
    for path, value in changes.get("set", {}).items():
        yield f"{of}: {one_line(path)} = {json.dumps(value, ensure_ascii=False)}"
    for path in changes.get("deleted", ()):
        yield f"{of}: {one_line(path)} was deleted"


def _block(name: str, text: str) -> Iterator[str]:
    """Yield the lines of a value beside its name."""
    first, *others = printable(text).rstrip("\n").split("\n")
    yield f"  {name:<7} {first}"
    yield from (f"          {line}" for line in others)


def _result(kind: str, result: Any) -> str:
    """Return the result of a step: the text of a message or tool result, else JSON."""
    message = result.get("message") if kind == "model" and isinstance(result, dict) else result
    content = message.get("content") if isinstance(message, dict) and kind in ("model", "tool") else None
    if not isinstance(content, list):
        return written(result)
    return "\n".join(_block_text(block) for block in content)


def _block_text(block: Any) -> str:
    """Return a content block: its text, its tool call, or the block as JSON."""
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return str(block["text"])
    if isinstance(block, dict) and isinstance(block.get("toolUse"), dict):
        return f"→ {block['toolUse'].get('name')} {json.dumps(block['toolUse'].get('input'), ensure_ascii=False)}"
    return written(block["json"] if isinstance(block, dict) and set(block) == {"json"} else block)


def written(value: Any) -> str:
    """Return a value for people: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
