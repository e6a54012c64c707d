"""The forms of what an export holds as JSON: messages, results, heads, configurations, errors. Each as one condition.

What reads these forms relies on them, in the process that resumes the execution: a damaged one would stop it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from math import isfinite
from typing import Any

from .._records.calls import CallProgress
from .._records.phases import STATUS
from .._records.spec import AgentSpec

Form = Callable[[Any], bool]
MAX_NUMBER = 2**53
"""Numbers are below it: every reader of JSON takes them, and there is room to count on."""


def is_count(value: Any) -> bool:
    """Return True for a number of ours."""
    return type(value) is int and 0 <= value < MAX_NUMBER


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MAX_NUMBER and isfinite(value)


def is_text(value: Any) -> bool:
    """Return True for a text."""
    return isinstance(value, str)


def is_object(value: Any) -> bool:
    """Return True for an object."""
    return isinstance(value, dict)


def _is_anything(value: Any) -> bool:
    return True


def _maybe(form: Form) -> Form:
    return lambda value: value is None or form(value)


def _list(form: Form) -> Form:
    return lambda value: isinstance(value, list) and all(map(form, value))


def _by_name(form: Form) -> Form:
    return lambda value: isinstance(value, dict) and all(map(is_text, value)) and all(map(form, value.values()))


def _one_of(*words: str) -> Form:
    return lambda value: isinstance(value, str) and value in words


def _fields(needed: dict[str, Form], more: dict[str, Form] | None = None) -> Form:
    """Return the form of an object that has some fields, may have others, and whatever a later version adds."""
    known = {**needed, **(more or {})}
    return lambda value: (
        isinstance(value, dict)
        and needed.keys() <= value.keys()
        and all(form(value[name]) for name, form in known.items() if name in value)
    )


def _pair(first: Form, second: Form) -> Form:
    return lambda value: isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])


def is_error(value: Any) -> bool:
    """Return True for a recorded exception."""
    more = {"args": _list(_is_anything), "attributes": _by_name(_is_attribute), "cause": is_error, "traceback": is_text}
    return _fields({"type": is_text, "text": is_text}, more)(value)


def _is_attribute(value: Any) -> bool:
    return isinstance(value, dict) and ("value" in value or is_error(value.get("error")))


is_counts: Form = _by_name(_is_number)
"""Usage, and the place in a loop."""
is_base: Form = _list(_pair(is_count, is_count))
is_message: Form = _fields({"role": _one_of("user", "assistant"), "content": _list(is_object)})
_interrupts = _maybe(_list(_fields({"id": is_text, "name": is_text})))
is_agent_result: Form = _fields(
    {"stop_reason": is_text},
    {"last": _maybe(is_count), "message": _maybe(is_message), "state": is_object, "interrupts": _interrupts,
     "usage": is_counts},
)  # fmt: skip
is_orchestrator_result: Form = _fields({"status": is_text}, {"interrupts": _interrupts, "usage": is_counts})
is_answer: Form = _fields(
    {"stop_reason": is_text, "message": is_message, "usage": is_counts, "metrics": is_object},
    {"model_state": _maybe(is_object)},
)
_is_tool_result: Form = _fields({}, {"toolUseId": is_text, "status": is_text, "content": _list(is_object)})
is_tool_outcome: Form = _fields(
    {"result": _is_tool_result},
    {"state": _by_name(_maybe(is_text)), "cancel": _maybe(is_object), "tools": _maybe(is_object),
     "rerun": _maybe(is_object), "exception": _maybe(is_error),
     "invocation": _list(lambda change: isinstance(change, list) and bool(change) and _list(_is_anything)(change[0]))},
)  # fmt: skip
is_visit: Form = _fields(
    {}, {"status": _maybe(is_text), "time": _is_number, "count": is_count, "call": _maybe(is_count)}
)
is_agent_config: Form = _fields({"model": is_text, "system_prompt": _is_anything, "tools": _by_name(is_object)})
is_given: Form = _fields({}, {"invocation_state": is_object, "limits": _maybe(is_counts)})


def is_message_form(value: Any) -> bool:
    """Return True for the recorded form of a message: the message, or what it came from."""
    by_reference = {"input": is_count, "blocks": _list(_is_block)}
    return (
        _fields({"message": is_message})(value)
        or _fields({"step": is_count})(value)
        or any(_fields({name: form, "id": _maybe(is_text)})(value) for name, form in by_reference.items())
    )


def _is_block(value: Any) -> bool:
    return is_count(value) or _fields({"block": is_object})(value)


_RESUMES = ("ready", "model", "tools", "nodes")
_PROGRESS: dict[str, Form] = {
    "phase": _one_of(*STATUS),
    "resume": _one_of(*_RESUMES),
    "ordinal": is_count,
    "retry": is_count,
    "attempt": is_count,
    "waits": lambda value: isinstance(value, bool),
    "cycles": lambda value: _list(is_count)(value) and bool(value),
    "passes": is_count,
    "forced": _is_anything,
    "in_loop": _by_name(_pair(is_count, is_count)),
    "ranges": is_base,
}


def is_progress(value: Any) -> bool:
    """Return True for where a call stands."""
    known = {field.name for field in fields(CallProgress)}
    return isinstance(value, dict) and value.keys() <= known and _fields({}, _PROGRESS)(value)


_is_interrupt_state = _fields({}, {"interrupts": _by_name(is_object), "context": is_object})
PARTS: dict[str, Form] = {
    "progress": is_progress,
    "closing": is_progress,
    "agent": _fields(
        {},
        {
            "conversation_manager_state": _maybe(is_object),
            "interrupt_state": _is_interrupt_state,
            "model_state": _maybe(is_object),
        },
    ),
    "invocation": is_object,
    "turn": is_object,
    "carried": is_object,
    "batch": _list(_pair(is_text, is_count)),
    "running": _list(is_text),
    "traces": _list(_is_anything),
    "deadlines": _by_name(_is_number),
    "answered": _by_name(is_object),
    "after": _by_name(_fields({}, {"retry": lambda value: value is True, "result": is_object})),
    "origin": _fields(
        {"execution_id": is_text, "run": is_count, "step": is_count, "forked_at": _is_number, "by": is_text},
        {"changed": _list(is_text), "drift": _list(is_text)},
    ),
}
"""The parts of a head. Of others, it is only known that they are JSON."""


def is_spec(value: Any) -> bool:
    """Return True for the spec of a dispatched agent."""
    names = {"name": is_text, "tool_names": _list(is_text), "edges": _list(is_text)}
    more = {
        "kind": _one_of("agent", "graph", "swarm"),
        "model_id": _maybe(is_text),
        "tool_schemas": is_object,
        "nodes": _by_name(is_object),
        "arguments": is_object,
        "fingerprint": is_text,
        "session_id": _maybe(is_text),
        "version": _maybe(is_text),
    }
    return _fields(names, more)(value) and isinstance(AgentSpec.from_json(value), AgentSpec)
