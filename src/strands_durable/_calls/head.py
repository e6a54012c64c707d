"""What an agent carries besides its messages: state, conversation manager, interrupts, model state, invocation state.

Captured at head points, where the conversation has just grown: after a model answer was appended and before a model call.
What tools and hooks change in between is recorded with their step, and in the head at the next head point: a head never
holds half the work of a running tool.
"""

from __future__ import annotations

import weakref
from typing import Any

from strands import Agent, Snapshot

from .._journal.port import Journal
from .._records import patches
from .._records.codec import decode, encode, refusal
from .._records.content_hash import content_hash
from .._records.logs import safe_logger
from .._strands.agents import carried_by
from .._strands.watchers import watch_state
from .context import current_context

logger = safe_logger(__name__)

MADE_UP = "strands_durable.made_up_execution_id"
"""Marks the id in an invocation state as generated for one call."""
_STRANDS_KEYS = frozenset(
    {"agent", "model", "messages", "system_prompt", "tool_config", "event_loop_cycle_id", "event_loop_cycle_trace"}
    | {"event_loop_cycle_span", "event_loop_parent_cycle_id", "execution_id", MADE_UP}
)
_UNTOUCHED = {"request_state"}


class Head:
    """The parts of one agent's head, and which of them are not written yet."""

    def __init__(self, agent: Agent) -> None:
        self._agent_ref = weakref.ref(agent)
        self._state: Any = None
        self._free: dict[str, str | None] = {}
        self._replaced = False
        self._offered: dict[str, int] = {}
        self._recorded_invocation: dict[str, Any] | None = None
        self._pending: dict[str, str] = {}
        self._pending_state: dict[str, str | None] = {}
        self._pending_replaced = False
        self._left_out: set[str] = set()

    @property
    def _agent(self) -> Agent:
        agent = self._agent_ref()
        assert agent is not None
        return agent

    def watch(self) -> None:
        """Watch the agent's state object, even after it was replaced."""
        state = self._agent.state
        watch_state(state, self._note)  # the agent's head in another execution may have watched it last
        if state is not self._state:
            self._replaced = self._state is not None
            self._state = state

    def _note(self, key: str, deleted: bool) -> None:
        """Remember a write for the next head point, and for the step that makes it."""
        value = None if deleted else encode(self._state.get(key), f"State {key!r}")
        self._free[key] = value
        found = current_context.get()
        while found is not None and found.call.head is not self:
            found = found.call.made_in  # a call inside one of our tools writes to our state
        if found is not None and found.recorded.phase == "running":
            found.changes[key] = value

    def apply(self, changes: dict[str, str | None]) -> None:
        """Apply the changes that a recorded step made."""
        for key, value in changes.items():
            if value is None:
                self._agent.state.delete(key)
            else:
                self._agent.state.set(key, decode(value))

    def capture(self, invocation_state: dict[str, Any] | None, turn: dict[str, Any] | None = None) -> None:
        """Capture the current head; the next commit writes it."""
        self.watch()
        self._pending_state.update(self._free)
        self._free = {}
        self._pending_replaced |= self._replaced
        self._replaced = False
        self._offer("agent", carried_by(self._agent))
        if invocation_state is not None:
            self._offer("invocation", self.storable(invocation_state))
        if turn is not None:
            self._offer("turn", turn)

    def rebase(self) -> dict[str, str]:
        """Capture the agent as a new call finds it, to be written for that call; return its state."""
        self.watch()
        self._free, self._offered, self._pending = {}, {}, {}
        self._pending_replaced = self._replaced = False
        found = {key: encode(value, f"State {key!r}") for key, value in self._agent.state.get().items()}
        self._pending_state = dict(found)
        return found

    def state_is_written(self) -> None:
        """Skip writing the state that a new call found: it is already on record."""
        self._pending_state = {}

    def flush(self, journal: Journal, call_id: int) -> None:
        """Write what was captured."""
        if self._pending_replaced:
            journal.clear_state(call_id)
            self._pending_state = {key: encode(value) for key, value in self._agent.state.get().items()}
            self._pending_replaced = False
        if self._pending_state:
            journal.write_state(call_id, self._pending_state)
            self._pending_state = {}
        if self._pending:
            journal.write_head(call_id, self._pending.items())
            self._pending = {}

    def restore(self, journal: Journal, call_id: int, parts: dict[str, str]) -> None:
        """Replace what the agent carries with a recorded head."""
        self.restore_state(journal.state(call_id))
        if "agent" in parts:
            data = decode(parts["agent"])
            self._agent.load_snapshot(Snapshot(scope="agent", schema_version="1.0", data=data, app_data={}))
        self._recorded_invocation = decode(parts["invocation"]) if "invocation" in parts else None
        self._offered, self._pending, self._pending_state, self._free = {}, {}, {}, {}

    def restore_state(self, recorded: dict[str, Any]) -> None:
        """Replace the agent's state with the recorded state."""
        self.watch()
        state = self._agent.state
        for key in set(state.get()) - set(recorded):
            state.delete(key)
        for key, value in recorded.items():
            state.set(key, value)
        self._free = {}

    def restore_invocation_state(self, invocation_state: dict[str, Any], *, shared: bool = False) -> None:
        """Overwrite what the caller passed again with the recorded values; what cannot be stored stays the caller's.

        Nodes share one invocation state: a key missing from one node's record may be the work of another node, and stays.
        """
        recorded = self._recorded_invocation
        if recorded is None:
            return
        _put_back(self.storable(invocation_state), recorded, invocation_state, shared)

    @staticmethod
    def own_part(invocation_state: dict[str, Any], named: set[str] | None = None) -> dict[str, Any]:
        """Return the user's storable part of an invocation state; log its other keys that are not in ``named`` yet."""
        own = invocation_state.keys() - _STRANDS_KEYS
        if own == _UNTOUCHED and invocation_state["request_state"] == {}:
            return {"request_state": invocation_state["request_state"]}
        return _storable({key: value for key, value in invocation_state.items() if key in own}, named)

    @staticmethod
    def put_back(recorded: dict[str, Any], invocation_state: dict[str, Any], *, shared: bool) -> None:
        """Overwrite the values that the caller passed again with the recorded ones."""
        _put_back(Head.own_part(invocation_state), recorded, invocation_state, shared)

    def _offer(self, part: str, value: dict[str, Any]) -> None:
        """Schedule a part for writing if it has changed; comparing is cheaper than encoding."""
        what = f"The agent's {part} state"
        found = content_hash(value, what)
        if self._offered.get(part) != found:
            self._offered[part] = found
            self._pending[part] = encode(value, what)

    def storable(self, invocation_state: dict[str, Any]) -> dict[str, Any]:
        """Return the storable part of an invocation state; log each key that cannot be stored once."""
        return self.own_part(invocation_state, self._left_out)


def _storable(own: dict[str, Any], named: set[str] | None) -> dict[str, Any]:
    refused = {
        key: why for key, value in own.items() if (why := refusal(value, f"invocation_state[{key!r}]")) is not None
    }
    for key, why in refused.items():
        if named is not None and key not in named:
            named.add(key)
            logger.warning(
                "key=<%s>, place=<%s>, type=<%s> | invocation_state value cannot be stored, left out%s",
                key, why.path.removeprefix("value") or "the value itself", why.type_name, why.detail,
            )  # fmt: skip
    return {key: value for key, value in own.items() if key not in refused}


def _put_back(found: dict[str, Any], recorded: dict[str, Any], invocation_state: dict[str, Any], shared: bool) -> None:
    changes = patches.difference(found, recorded)
    patches.apply([change for change in changes if not shared or len(change) > 1], invocation_state)
