"""Session managers: the journal owns the history of a resumed call, and the session's store follows it.

A session manager that keeps a log of messages writes each one before the journal commits it. After a crash the log may
therefore be ahead: messages after the head are produced again and overwrite the old ones. Managers that store the whole agent
at once need nothing: their next save is correct.
"""

from __future__ import annotations

import weakref
from typing import Any

from strands import Agent
from strands.session import RepositorySessionManager

from .agents import has_session

_handed_over: weakref.WeakSet[Agent] = weakref.WeakSet()


def speaks_for(agent: Agent) -> bool:
    """Return True if the agent holds what its session restored, so that the journal may be more recent."""
    return has_session(agent) and agent not in _handed_over


def hand_over(agent: Agent) -> None:
    """Note that from its first durable call, an agent holds what the journal has."""
    _handed_over.add(agent)


def follow(agent: Agent) -> None:
    """Make the agent's session continue after the last of the agent's messages that it holds."""
    log = session_log(agent)
    if log is None or agent.model.stateful:
        return
    offset = agent.conversation_manager.removed_message_count
    records = log.records(offset)
    if not records and not offset:
        _fill(log, agent)
        return
    kept = _kept(records, agent.messages)
    if kept is not None and kept < len(records):
        log.rewind(records[:kept])


def _fill(log: SessionLog, agent: Agent) -> None:
    """Write the whole conversation to a session that began after the call."""
    for message in agent.messages:
        log.append(message)


def _kept(records: list[Any], messages: list[Any]) -> int | None:
    """Return how many of the records belong to ``messages``, or None if that cannot be determined."""
    if not messages:
        return 0
    for message in reversed(messages):  # the last ones may have been added without a hook: no session has them
        for index in range(len(records) - 1, -1, -1):
            if _is_same(records[index].to_message(), message):
                return index + 1
    return None


def _is_same(stored: Any, message: Any) -> bool:
    tracking_id = stored.get("tracking_id")
    if tracking_id is not None:
        return bool(tracking_id == message.get("tracking_id"))
    return bool(stored["role"] == message["role"] and stored["content"] == message["content"])


class SessionLog:
    """The messages of one agent in the store of a session manager that keeps one record per message."""

    def __init__(self, manager: RepositorySessionManager, agent: Agent) -> None:
        self._manager, self._agent = manager, agent

    def records(self, offset: int) -> list[Any]:
        """Return the records from ``offset`` on."""
        found: list[Any] = self._manager.session_repository.list_messages(
            self._manager.session_id, self._agent.agent_id, offset=offset
        )
        return found

    def append(self, message: Any) -> None:
        """Write a message after the last one."""
        self._manager.append_message(message, self._agent)

    def rewind(self, kept: list[Any]) -> None:
        """Make the next message be written after those in ``kept``, overwriting what follows them."""
        self._manager._latest_agent_message[self._agent.agent_id] = kept[-1] if kept else None
        self._manager._held_records[self._agent.agent_id] = list(kept)


def session_log(agent: Agent) -> SessionLog | None:
    """Return the log of the agent's session, if it has one."""
    manager = agent._session_manager
    return SessionLog(manager, agent) if isinstance(manager, RepositorySessionManager) else None
