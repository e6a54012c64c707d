"""Watching what changes inside an agent: its state, its model's state, and its structured output."""

from __future__ import annotations

import weakref
from typing import Any

from strands import Agent
from strands.types.json_dict import JSONSerializableDict

from .agents import is_agent

_outputs: weakref.WeakKeyDictionary[Agent, Any] = weakref.WeakKeyDictionary()
"""The structured output context of each agent's current pass, which Strands keeps in local variables only."""


def watch_output(agent: Agent) -> None:
    """Watch the structured output context of an agent's passes."""
    make_terminal = agent._make_agent_stream_terminal
    reference = weakref.ref(agent)

    def noting(structured_output_context: Any, *args: Any, **kwargs: Any) -> Any:
        living = reference()
        if living is not None:
            _outputs[living] = structured_output_context
        return make_terminal(structured_output_context, *args, **kwargs)

    agent._make_agent_stream_terminal = noting  # type: ignore[method-assign]


def forced_output(agent: Agent) -> Any:
    """Return the tool choice that the current pass forces on the model to get structured output, or None."""
    output = _outputs.get(agent)
    return output.tool_choice if output is not None and output.forced_mode else None


def force_output(agent: Agent, tool_choice: Any) -> None:
    """Force structured output in the current pass, as the previous process did."""
    output = _outputs.get(agent)
    if output is not None:
        output.set_forced_mode(tool_choice)


_model_states: weakref.WeakKeyDictionary[Agent, dict[str, Any]] = weakref.WeakKeyDictionary()
"""The state that each agent's current model call may change in place; Strands keeps it in local variables only."""


def note_model_state(agent: Any, state: dict[str, Any]) -> None:
    """Note the state that the model call which an agent begins may change."""
    if is_agent(agent):
        _model_states[agent] = state


def changed_model_state(agent: Agent) -> dict[str, Any] | None:
    """Return the model's own state as changed by the current model call; None if it is unchanged."""
    state = _model_states.get(agent)
    return None if state is None or state == agent._model_state else state


class WatchedState(JSONSerializableDict):
    """An agent's state that reports each write to a watcher. An existing object becomes one in place: references stay valid."""

    def set(self, key: str, value: Any) -> None:
        """Set a value and notify the watcher; if it raises, restore the old value."""
        before = dict(self._data)
        super().set(key, value)
        try:
            self.__dict__["_watcher"](key, False)
        except BaseException:
            super().set(key, before[key]) if key in before else super().delete(key)
            raise

    def delete(self, key: str) -> None:
        """Delete a key and notify the watcher."""
        super().delete(key)
        self.__dict__["_watcher"](key, True)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the watcher out of copies."""
        return {**{k: v for k, v in super().__getstate__().items() if k != "_watcher"}, "_watcher": _ignore}


def _ignore(key: str, deleted: bool) -> None:
    """The watcher of a copy: its writes are not reported."""


_watched_types: dict[type, type] = {JSONSerializableDict: WatchedState}


def watch_state(state: Any, watcher: Any) -> None:
    """Call ``watcher(key, deleted)`` for each write to ``state``."""
    kind = type(state)
    state.__dict__["_watcher"] = watcher
    if not isinstance(state, WatchedState):
        watched = _watched_types.setdefault(kind, type(kind.__name__, (WatchedState, kind), {}))
        state.__class__ = watched


def unwatch_state(state: Any) -> None:
    """Make an agent's state what it was before it was watched."""
    if isinstance(state, WatchedState):
        state.__class__ = type(state).__mro__[1] if type(state) is WatchedState else type(state).__bases__[1]
        state.__dict__.pop("_watcher", None)
