"""Direct calls of tools, `agent.tool.x()`, inside a step or hook: no steps of their own, but each with a key of its own.

A direct call is part of the step or hook that makes it, and what it does is recorded with that. Strands gives it a random id in
each attempt, so its key is made of the key of what encloses it, the tool, a digest of its input, and how often these occurred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._records import keys
from .._records.codec import digest, encodable
from .._strands.public_tools import with_idempotency_key
from ..errors import NotSerializableError
from .context import StepContext, StepPhase, current_context, within


@dataclass(eq=False)
class DirectCall(StepContext):
    """The code of one direct call: of the tool itself, and of the hooks around it."""

    tool_use_id: str = ""

    def at(self, phase: StepPhase) -> DirectCall:
        """Return the same call in another phase."""
        return DirectCall(
            self.call, self.kind, self.name, phase, self.key, self.look,
            changes=self.changes, inside=self.inside, effect=self.effect, tool_use_id=self.tool_use_id,
        )  # fmt: skip


def enter(tool_use: Any, phase: StepPhase) -> None:
    """Enter the hooks before or after a direct call, in its own thread; outside of a step or hook it belongs to none."""
    found, tool_use_id = current_context.get(), str(tool_use.get("toolUseId"))
    known = found if isinstance(found, DirectCall) and found.tool_use_id == tool_use_id else None
    if phase == "before":
        around = found if known is None else known.inside  # a hook may want another try
        current_context.set(None if around is None else _begun(around, tool_use, tool_use_id))
    elif known is not None:
        current_context.set(known.at(phase))


def run(context: Any, next_fn: Any) -> Any:
    """Return the events of the tool."""
    found = current_context.get()
    if not isinstance(found, DirectCall):
        return next_fn(context)
    running = found.at("running")
    return within(running, next_fn(with_idempotency_key(context, lambda: running.view.idempotency_key)))


def _begun(around: StepContext, tool_use: Any, tool_use_id: str) -> DirectCall:
    name = str(tool_use.get("name"))
    what = f"direct.{name}.{_digest(tool_use.get('input'))}"
    key = keys.effect_key(around.key, around.phase, what, around.occurrence(what))
    return DirectCall(
        around.call, "tool", name, "before", key, around.look,
        changes=around.changes, inside=around, effect=around.effect, tool_use_id=tool_use_id,
    )  # fmt: skip


def _digest(given: Any) -> str:
    try:
        return digest(given)
    except NotSerializableError:
        return digest(_without_objects(given))


def _without_objects(given: Any) -> Any:
    """Return an input with the type's name in place of what has no recorded form, as it is another object in each process."""
    if encodable(given):
        return given
    if type(given) is dict:
        return [[_without_objects(key), _without_objects(value)] for key, value in given.items()]
    if type(given) in (list, tuple):
        return [_without_objects(item) for item in given]
    return f"{type(given).__module__}.{type(given).__qualname__}"
