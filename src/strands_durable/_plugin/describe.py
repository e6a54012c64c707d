"""Describes an agent, a Graph or a Swarm as a spec, without a model call and without starting a server."""

from __future__ import annotations

from typing import Any

from strands import Agent

from .._records.codec import encode
from .._records.spec import AgentSpec, fingerprint_of
from .._strands.agents import agent_behind, is_agent, session_id_of
from .._strands.fingerprints import config_of
from .._strands.orchestrators import adapter_of


def describe(name: str, subject: Any, arguments: dict[str, Any], version: str | None = None) -> AgentSpec:
    """Return the spec under which ``subject`` is dispatched. With a version, only name and version make its fingerprint."""
    parts = _parts(subject)
    identity = {"name": name, **parts} if version is None else {"name": name, "version": version}
    spec = AgentSpec(
        name=name,
        session_id=session_id_of(subject),
        arguments=arguments,
        fingerprint=fingerprint_of(identity),
        version=version,
        kind=parts["kind"],
        model_id=parts.get("model_id"),
        system_prompt=parts.get("system_prompt"),
        tool_names=tuple(parts.get("tool_schemas", ())),
        tool_schemas=parts.get("tool_schemas", {}),
        nodes=parts.get("nodes", {}),
        edges=tuple(parts.get("edges", ())),
    )
    encode(spec.to_json(), f"The spec of agent {name!r}")
    return spec


def _parts(subject: Any) -> dict[str, Any]:
    adapter = adapter_of(subject)
    if adapter is not None:
        topology = adapter.topology()
        nodes = {node_id: _parts(executor) for node_id, executor in adapter.executors().items()}
        rest = {part: value for part, value in topology.items() if part not in ("nodes", "edges")}
        return {"kind": adapter.kind, "nodes": nodes, "edges": list(topology.get("edges", ())), **rest}
    if not is_agent(subject):
        return {"kind": type(subject).__name__}
    return _agent_parts(subject)


def _agent_parts(agent: Agent) -> dict[str, Any]:
    config = config_of(agent)
    behind = {tool.tool_name: agent_behind(tool) for tool in agent.tool_registry.registry.values()}
    parts = {
        "kind": "agent",
        "model_id": config["model"],
        "system_prompt": config["system_prompt"],
        "tool_schemas": config["tools"],
    }
    helpers = {name: _agent_parts(helper) for name, helper in behind.items() if helper is not None}
    return {**parts, "nodes": helpers} if helpers else parts
