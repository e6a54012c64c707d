"""Agents, graphs and swarms as they were before a call, and as a call left them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeGuard

from strands import Agent
from strands.multiagent.graph import Graph
from strands.multiagent.swarm import Swarm

Subject = Agent | Graph | Swarm


def is_subject(value: Any) -> TypeGuard[Subject]:
    """Say whether ``value`` is the thing itself; a mock says of itself that it is an agent."""
    return issubclass(type(value), Subject)


def agents_of(subject: Subject, path: str = "") -> Iterator[tuple[str, Agent]]:
    """Return the agents in ``subject``, each with its path."""
    if isinstance(subject, Agent):
        yield path, subject
        return
    for name, node in subject.nodes.items():
        if is_subject(node.executor):
            yield from agents_of(node.executor, f"{path}/{name}")


class Before:
    """What a new process would have built, as far as a call may change it."""

    def __init__(self, subject: Subject) -> None:
        self._agents = [(agent, _AgentBefore(agent)) for _, agent in agents_of(subject)]
        self._orchestrators = [_OrchestratorBefore(found) for found in _orchestrators(subject)]

    def put_back(self) -> None:
        """Make everything what it was; lists and the like stay the objects that tests may hold."""
        for agent, before in self._agents:
            before.put_back(agent)
        for orchestrator in self._orchestrators:
            orchestrator.put_back()


def _orchestrators(subject: Subject) -> Iterator[Any]:
    if not isinstance(subject, Agent):
        yield subject
        for node in subject.nodes.values():
            if is_subject(node.executor):
                yield from _orchestrators(node.executor)


class _AgentBefore:
    def __init__(self, agent: Agent) -> None:
        self._messages, self._state = copy.deepcopy(agent.messages), dict(agent.state.get())
        self._metrics = copy.deepcopy(vars(agent.event_loop_metrics))
        snapshot = agent.take_snapshot(include=["conversation_manager_state", "interrupt_state", "model_state"])
        self._snapshot = copy.deepcopy(snapshot)
        self._names = set(vars(agent))

    def put_back(self, agent: Agent) -> None:
        agent.messages[:] = copy.deepcopy(self._messages)
        for key in agent.state.get():
            agent.state.delete(key)
        for key, value in self._state.items():
            agent.state.set(key, value)
        vars(agent.event_loop_metrics).update(copy.deepcopy(self._metrics))
        agent.load_snapshot(copy.deepcopy(self._snapshot))
        for name in set(vars(agent)) - self._names:
            delattr(agent, name)


class _OrchestratorBefore:
    def __init__(self, orchestrator: Any) -> None:
        holders = [orchestrator, orchestrator.state, *orchestrator.nodes.values()]
        self._holders = [(holder, _shallow(vars(holder))) for holder in holders]
        self._deep = [(holder, copy.deepcopy(vars(holder))) for holder in _plain_parts(orchestrator)]

    def put_back(self) -> None:
        for holder, values in self._holders:
            vars(holder).clear()
            vars(holder).update(_shallow(values))
        for holder, values in self._deep:
            vars(holder).update(copy.deepcopy(values))


def _plain_parts(orchestrator: Any) -> list[Any]:
    return [orchestrator._interrupt_state, *filter(None, [getattr(orchestrator, "shared_context", None)])]


def _shallow(values: dict[str, Any]) -> dict[str, Any]:
    """Copy values as far as they are containers; what is in them stays the same."""
    return {name: copy.copy(value) if type(value) in (list, dict, set) else value for name, value in values.items()}


def seen(subject: Subject, result: Any) -> dict[str, Any]:
    """Return what must be equal after a call and after the same call made again."""
    found: dict[str, Any] = {"interrupts": [interrupt.to_dict() for interrupt in result.interrupts or ()]}
    if isinstance(subject, Agent):
        found |= {"stop reason": result.stop_reason, "message": copy.deepcopy(result.message)}
        found |= {"structured output": result.structured_output}
    else:
        found |= {"status": result.status, "usage": dict(result.accumulated_usage), "text": str(result)}
        found |= {"count": result.execution_count, "nodes": {name: r.status for name, r in result.results.items()}}
        found |= {"order": [node.node_id for node in _order(result)]}
    for path, agent in agents_of(subject):
        found |= {f"{name}{path and f' of {path}'}": value for name, value in _seen_of(agent).items()}
    return found


def _order(result: Any) -> list[Any]:
    return list(result.execution_order if hasattr(result, "execution_order") else result.node_history)


def _seen_of(agent: Agent) -> dict[str, Any]:
    metrics = agent.event_loop_metrics
    return {
        "messages": copy.deepcopy(agent.messages),
        "state": agent.state.get(),
        "usage": dict(metrics.accumulated_usage),
        "cycles": metrics.cycle_count,
        "tool counts": {name: (found.call_count, found.error_count) for name, found in metrics.tool_metrics.items()},
    }
