"""The configuration of an agent, and how it differs from the recorded one.

The model id, the system prompt, the tool schemas and the initial messages of a call are compared: what a model's answers
depend on, and what a deploy changes. Memory addresses, the order of sets and random ids are not compared.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from strands import Agent

from .._records.codec import digest, encodable
from .agents import stays_in_loop

Config = dict[str, Any]


def config_of(agent: Agent) -> Config:
    """Return the configuration of ``agent``."""
    tools = tools_of(agent)
    specs = {
        spec["name"]: {"description": _plain(spec["description"]), "inputSchema": _plain(spec["inputSchema"])}
        for spec in agent.tool_registry.get_all_tool_specs()
        if not stays_in_loop(tools.get(spec["name"]))
    }
    prompt = _plain_blocks(agent.system_prompt_content)
    return {"model": str.__str__(model_id(agent)), "system_prompt": prompt, "tools": dict(sorted(specs.items()))}


def tools_of(agent: Agent) -> dict[str, Any]:
    """Return the agent's current tools; the one for structured output comes and goes with each pass."""
    return {**agent.tool_registry.registry, **agent.tool_registry.dynamic_tools}


def loaded_since(agent: Agent, before: dict[str, Any]) -> Config:
    """Return the schemas of the tools that an agent has gained since ``before``, and None for each that was removed."""
    now = tools_of(agent)
    changed = [name for name in {**before, **now} if before.get(name) is not now.get(name)]
    if not changed:
        return {}
    specs = config_of(agent)["tools"]
    return {name: specs.get(name) for name in changed if not stays_in_loop(now.get(name, before.get(name)))}


def with_loaded(config: Config, loaded: list[Config]) -> Config:
    """Return an agent's configuration after its tools have loaded or removed others."""
    tools = dict(config["tools"])
    for changes in loaded:
        tools.update(changes)
    return {**config, "tools": {name: spec for name, spec in tools.items() if spec is not None}}


def fingerprint(config: Config) -> str:
    """Return the key under which a config is stored: that of the JSON which is stored, so that it can be verified."""
    return digest(json.loads(json.dumps(config)))


def message_digest(message: Any) -> str:
    """Return a fingerprint of what a model sees of a message, without tool use ids: those that Strands makes are random."""
    return digest({"role": message["role"], "content": [_without_id(block) for block in message["content"]]})


def _without_id(block: Any) -> Any:
    return {
        kind: {key: item for key, item in value.items() if key != "toolUseId"}
        if kind in ("toolUse", "toolResult")
        else value
        for kind, value in block.items()
    }


def changes(recorded: Config, now: Config) -> list[str]:
    """Return one readable line for each difference."""
    found = []
    if recorded["model"] != now["model"]:
        found.append(f"the model was {recorded['model']!r}, now it is {now['model']!r}")
    if recorded["system_prompt"] != now["system_prompt"]:
        found.append("the system prompt changed:\n" + _diff(recorded["system_prompt"], now["system_prompt"]))
    before, after = recorded["tools"], now["tools"]
    found += [f"tool {name!r} was there, now it is gone" for name in before if name not in after]
    found += [f"tool {name!r} is new" for name in after if name not in before]
    for name in before:
        if name in after and before[name] != after[name]:
            found.append(f"the schema of tool {name!r} changed:\n" + _diff(before[name], after[name]))
    return found


def spec_changes(recorded: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> list[str]:
    """Return one readable line for each difference between two specs as JSON data, or between two nodes of them."""
    found = (
        [f"{where}it was a {recorded['kind']}, now it is a {now['kind']}"] if recorded["kind"] != now["kind"] else []
    )
    found += [where + change for change in changes(_config_in(recorded), _config_in(now))]
    before, after = recorded.get("nodes") or {}, now.get("nodes") or {}
    found += [f"{where}node {node!r} was there, now it is gone" for node in before if node not in after]
    found += [f"{where}node {node!r} is new" for node in after if node not in before]
    for node in before:
        if node in after:
            found += spec_changes(before[node], after[node], f"{where}node {node!r}: ")
    edges = ({"edges": list(spec.get("edges") or ())} for spec in (recorded, now))
    return found + [where + change for change in topology_changes(*edges)]


def _config_in(spec: Mapping[str, Any]) -> Config:
    """Return the config of the agent that a spec describes."""
    parts = {"model": "model_id", "system_prompt": "system_prompt", "tools": "tool_schemas"}
    return {**{part: spec.get(name) for part, name in parts.items()}, "tools": spec.get("tool_schemas") or {}}


def topology_changes(recorded: Config, now: Config) -> list[str]:
    """Return one readable line for each difference between two topologies."""
    found = []
    for part in sorted(set(recorded) | set(now)):
        before, after = recorded.get(part, []), now.get(part, [])
        found += [f"{part}: {name!r} was there, now it is gone" for name in before if name not in after]
        found += [f"{part}: {name!r} is new" for name in after if name not in before]
        if isinstance(before, dict) and isinstance(after, dict):
            changed = [name for name in before if name in after and before[name] != after[name]]
            found += [f"{part}: {name!r} was a {before[name]}, now it is a {after[name]}" for name in changed]
    return found


def base_change(recorded: list[Any], current: list[Any]) -> str | None:
    """Return the first difference between the messages a call began with and those the agent has now."""
    for index, (before, now) in enumerate(zip(recorded, current, strict=False)):
        if message_digest(before) != message_digest(now):
            return f"message {index} that the call began with changed:\n" + _diff(before["content"], now["content"])
    if len(recorded) != len(current):
        return f"the call began with {len(recorded)} messages in the agent, now there are {len(current)}"
    return None


def model_id(agent: Agent) -> str:
    """Return the id of an agent's model, or the name of its class if it has none."""
    return name_of_model(agent.model)


def name_of_model(model: Any) -> str:
    """Return the id of a model, or the name of its class if it has none."""
    get_config = getattr(model, "get_config", None)
    config: Any = None if get_config is None else get_config()
    name = config.get("model_id") if isinstance(config, dict) else getattr(config, "model_id", None)
    return name if isinstance(name, str) and name else type(model).__qualname__


def _plain_blocks(blocks: Any) -> Any:
    is_plain = all(type(item) is str for block in blocks or () for item in block.values())
    return blocks if is_plain else _plain(blocks)


def _plain(value: Any) -> Any:
    """Return a part of an agent's config as JSON data for comparison; it is never restored, so types may be lost."""
    if encodable(value):
        return value
    try:
        return json.loads(json.dumps(value, default=lambda item: type(item).__qualname__))
    except (TypeError, ValueError):  # keys that JSON does not have, or a cycle
        return type(value).__qualname__


def _diff(before: Any, now: Any) -> str:
    lines = difflib.unified_diff(_lines(before), _lines(now), "recorded", "now", lineterm="", n=1)
    return "\n".join(f"      {line}" for line in list(lines)[2:14])


def _lines(value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(block, dict) and set(block) == {"text"} for block in value):
        return "\n".join(block["text"] for block in value).splitlines()
    return json.dumps(value, indent=1, sort_keys=True, default=str).splitlines()
