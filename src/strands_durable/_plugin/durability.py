"""`Durability`: the plugin that makes an agent, a Graph or a Swarm durable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from strands import Agent
from strands.multiagent.base import MultiAgentBase
from strands.plugins import MultiAgentPlugin, Plugin

from .._records.cipher import Cipher
from .._records.cipher_setting import cipher_or_default
from .._records.keys import checked_id
from .._records.options import Options
from .._records.policy import ModelInDoubt, ToolPolicy, checked_policies
from .._records.tags import checked_tags
from .._sqlite.database import path_of
from .._strands.orchestrators import adapter_of
from ..errors import UnsupportedFeatureError
from .attach import attach
from .unkept import warn_when_built


class Durability(Plugin, MultiAgentPlugin):
    """Record every model call and every tool call of an agent, and resume after any failure.

    Pass it to an agent and run the script again after a crash: it resumes at the first step that has no recorded result.

    Args:
        store: The file that holds the journal: a path or a ``sqlite:///`` URL.
        execution_id: The id of the run. The same id resumes the same run; without one, each call is a new run.
            ``invocation_state={"execution_id": ...}`` sets it per call and takes precedence.
        on_drift: What to do when the agent differs from the one that was recorded.
        on_failed: Whether running a failed call again retries it or raises `ExecutionFailedError`.
        on_completed: Whether running a completed run again returns its results or starts a new run under the same id.
            For scripts with one call: a run that was killed between two calls looks completed.
        model_in_doubt: What to do with a model call that was running when its process died: ``retry``, ``ask`` or ``fail``.
        tool_policies: By tool name: what to do with a tool call that was running when its process died, retries, timeouts.
            The first call raises if no tool has the name.
        replay_events: Whether the stream of a resumed or recorded call begins with every finished step, marked ``recorded``.
        tags: Names and values by which ``ls`` finds the run, such as ``{"tenant": "acme"}``; a run that exists keeps its own.
        lease_seconds: How long an owner whose process cannot be observed counts as alive without renewing its lease.
        segment_turns: After how many turns the inner loop is restarted. Invisible; bounds recursion and memory.
        busy_seconds: How long to wait for a store that another process has locked.
        cipher: Encrypts what is recorded; see docs/encryption.md. If None, the cipher that the environment names, if any.
    """

    name = "strands-durable"

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        execution_id: str | None = None,
        on_drift: Literal["raise", "warn", "rerun"] = "raise",
        on_failed: Literal["resume", "raise"] = "resume",
        on_completed: Literal["return", "restart"] = "return",
        model_in_doubt: ModelInDoubt = "retry",
        tool_policies: Mapping[str, ToolPolicy] | None = None,
        replay_events: bool = False,
        tags: Mapping[str, str] | None = None,
        lease_seconds: float = 10.0,
        segment_turns: int = 20,
        busy_seconds: float = 10.0,
        cipher: Cipher | None = None,
    ) -> None:
        super().__init__()
        self._options = Options(
            path=path_of(store),
            execution_id=None if execution_id is None else checked_id(execution_id),
            on_drift=on_drift,
            on_failed=on_failed,
            on_completed=on_completed,
            lease_seconds=lease_seconds,
            segment_turns=segment_turns,
            busy_seconds=busy_seconds,
            model_in_doubt=model_in_doubt,
            tool_policies=checked_policies(tool_policies),
            replay_events=replay_events,
            tags=checked_tags(tags),
            cipher=cipher_or_default(cipher),
        )

    def init_agent(self, agent: Agent) -> None:
        """Wrap the agent's calls, model calls and tool calls."""
        attach(agent, self._options)
        warn_when_built(agent, self._options.tool_policies)

    def init_multi_agent(self, orchestrator: MultiAgentBase) -> None:
        """Wrap the orchestrator's calls and nodes."""
        if adapter_of(orchestrator) is None:
            raise UnsupportedFeatureError(
                f"Durability on {type(orchestrator).__name__}",
                "only Graph and Swarm are supported as durable orchestrators",
                "Add Durability to the agents inside it, or make it a node of a Graph, where it is recorded as one step.",
            )
        attach(orchestrator, self._options)
        warn_when_built(orchestrator, self._options.tool_policies)

    def register_hooks(self, registry: Any, **kwargs: Any) -> None:
        """Refuse to be used as a hook, which sees the loop but cannot make it durable."""
        raise UnsupportedFeatureError(
            "Durability among an agent's hooks",
            "it is a plugin, and a bidirectional agent takes no plugins",
            "Pass it to an Agent as plugins=[Durability(...)].",
        )
