"""Following what changes inside an agent: its state, its model's state, and its structured output."""

from __future__ import annotations

import weakref
from typing import Any

from strands import Agent
from strands.event_loop import event_loop
from strands.types.json_dict import JSONSerializableDict

from .agents import is_agent

_outputs: weakref.WeakKeyDictionary[Agent, Any] = weakref.WeakKeyDictionary()
"""What each agent's pass under way knows of its structured output: it lives nowhere else."""


def watch_output(agent: Agent) -> None:
    """Follow what the passes of an agent know of their structured output."""
    make_terminal = agent._make_agent_stream_terminal
    reference = weakref.ref(agent)

    def noting(structured_output_context: Any, *given: Any, **named: Any) -> Any:
        found = reference()
        if found is not None:
            _outputs[found] = structured_output_context
        return make_terminal(structured_output_context, *given, **named)

    agent._make_agent_stream_terminal = noting  # type: ignore[method-assign]


def forced_output(agent: Agent) -> Any:
    """Return the tool choice that the pass under way forces on the model to have structured output, or None."""
    found = _outputs.get(agent)
    return found.tool_choice if found is not None and found.forced_mode else None


def force_output(agent: Agent, tool_choice: Any) -> None:
    """Force structured output in the pass under way, as it was forced in the process that is gone."""
    found = _outputs.get(agent)
    if found is not None:
        found.set_forced_mode(tool_choice)


_model_states: weakref.WeakKeyDictionary[Agent, dict[str, Any]] = weakref.WeakKeyDictionary()
"""What the model call under way of each agent is given as its own state, to change in place; it lives nowhere else."""


def watch_model_states() -> None:
    """Follow the state that models change in a call."""
    make_terminal = event_loop._make_invoke_model_terminal
    if getattr(make_terminal, "_strands_durable", False):
        return

    def noting(agent: Any, cycle_span: Any, tracer: Any, model_state: dict[str, Any]) -> Any:
        if is_agent(agent):
            _model_states[agent] = model_state
        return make_terminal(agent, cycle_span, tracer, model_state)

    noting._strands_durable = True  # type: ignore[attr-defined]
    event_loop._make_invoke_model_terminal = noting


def changed_model_state(agent: Agent) -> dict[str, Any] | None:
    """Return what the model call under way has made of the model's own state; None if it left it as it was."""
    found = _model_states.get(agent)
    return None if found is None or found == agent._model_state else found


class WatchedState(JSONSerializableDict):
    """An agent's state that tells who writes to it. An existing object becomes one in place: references stay good."""

    def set(self, key: str, value: Any) -> None:
        """Set a value and tell the watcher; if it objects, the value is as it was."""
        before = dict(self._data)
        super().set(key, value)
        try:
            self.__dict__["_watcher"](key, False)
        except BaseException:
            super().set(key, before[key]) if key in before else super().delete(key)
            raise

    def delete(self, key: str) -> None:
        """Delete a key and tell the watcher."""
        super().delete(key)
        self.__dict__["_watcher"](key, True)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the watcher out of copies."""
        return {**{k: v for k, v in super().__getstate__().items() if k != "_watcher"}, "_watcher": _nobody}


def _nobody(key: str, deleted: bool) -> None:
    """Watch a copy: nobody does."""


_watched_types: dict[type, type] = {JSONSerializableDict: WatchedState}


def watch_state(state: Any, watcher: Any) -> None:
    """Have ``watcher(key, deleted)`` called for each write to ``state``."""
    kind = type(state)
    state.__dict__["_watcher"] = watcher
    if not isinstance(state, WatchedState):
        watched = _watched_types.setdefault(kind, type(kind.__name__, (WatchedState, kind), {}))
        state.__class__ = watched
