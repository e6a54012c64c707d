"""A model that streams a script, chunk by chunk, and raises when it is called beyond the end of the script.

The conversation, not a counter, determines the next turn of the script: a new process that resumes a recorded conversation
gets the turn that comes next in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from strands.models import Model

from .._records.crash_points import reach


class ScriptError(AssertionError):
    """The model was called for something that its script does not have."""


@dataclass(frozen=True)
class ToolCall:
    """A tool call that the model makes."""

    name: str
    input: dict[str, Any]
    tool_use_id: str | None = None


def call(name: str, /, tool_use_id: str | None = None, **input: Any) -> ToolCall:
    """Return a turn in which the model calls a tool."""
    return ToolCall(name, input, tool_use_id)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One turn of a script, with all options."""

    text: str = ""
    calls: Sequence[ToolCall] = ()
    errors: Sequence[Exception] = ()
    """Raised by the first attempts of this turn in a process, before the answer."""
    chunk: int = 8
    """Characters per streamed chunk."""
    stop_reason: str | None = None
    usage: dict[str, int] = field(default_factory=lambda: {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15})
    redact_user: str | None = None
    """Make the provider redact the user's message, as a guardrail does."""
    break_after: int | None = None
    """Raise ConnectionError after this many chunks of the first attempt."""


Turn = str | ToolCall | Answer | Sequence[ToolCall]
Script = Sequence[Turn] | Callable[[int, list[Any]], Turn]


class ScriptedModel(Model):
    """A model for tests: takes a list of turns, or a function of the turn number and the messages."""

    def __init__(self, script: Script, *, model_id: str = "scripted") -> None:
        self.script = script
        self.calls = 0
        """How often this object was called."""
        self._config = {"model_id": model_id}
        self._attempts: Counter[int] = Counter()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as Strands' own models keep it."""
        return self._config

    def update_config(self, **model_config: Any) -> None:
        """Change the configuration."""
        self._config.update(model_config)

    def get_config(self) -> dict[str, Any]:
        """Return the configuration."""
        return self._config

    async def structured_output(self, output_model: Any, prompt: Any, system_prompt: Any = None, **kwargs: Any) -> Any:
        """Raise: the deprecated call outside the agent loop is not scripted."""
        raise ScriptError("ScriptedModel has no script for the deprecated Agent.structured_output()")
        yield

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Stream the turn that comes next in the conversation."""
        turn = sum(message["role"] == "assistant" for message in messages)
        self.calls += 1
        answer = self._answer(turn, messages)
        attempt = self._attempts[turn]
        self._attempts[turn] += 1
        reach(f"model {turn}:start")
        if attempt < len(answer.errors):
            raise answer.errors[attempt]
        for index, chunk in enumerate(_chunks(turn, answer)):
            if answer.break_after == index and attempt == len(answer.errors):
                raise ConnectionError("the connection broke in the middle of the stream")
            yield chunk
            reach(f"model {turn}:chunk {index}")
        reach(f"model {turn}:end")

    def _answer(self, turn: int, messages: list[Any]) -> Answer:
        if callable(self.script):
            return _spelled_out(self.script(turn, messages))
        if turn >= len(self.script):
            raise ScriptError(
                f"The model was asked for turn {turn}, but its script has {len(self.script)} (turns are counted from 0). "
                f"The last message was: {json.dumps(messages[-1], default=str)[:300]}"
            )
        return _spelled_out(self.script[turn])


def _spelled_out(turn: Turn) -> Answer:
    if isinstance(turn, Answer):
        return turn
    if isinstance(turn, str):
        return Answer(text=turn)
    return Answer(calls=[turn] if isinstance(turn, ToolCall) else list(turn))


def _chunks(turn: int, answer: Answer) -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]
    if answer.redact_user is not None:
        chunks.append({"redactContent": {"redactUserContentMessage": answer.redact_user}})
    if answer.text:
        pieces = [answer.text[at : at + answer.chunk] for at in range(0, len(answer.text), answer.chunk)]
        chunks += [{"contentBlockStart": {"start": {}}}]
        chunks += [{"contentBlockDelta": {"delta": {"text": piece}}} for piece in pieces]
        chunks += [{"contentBlockStop": {}}]
    for index, tool in enumerate(answer.calls):
        start = {"name": tool.name, "toolUseId": tool.tool_use_id or f"call-{turn}-{index}"}
        chunks += [{"contentBlockStart": {"start": {"toolUse": start}}}]
        chunks += [{"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(tool.input)}}}}]
        chunks += [{"contentBlockStop": {}}]
    stop_reason = answer.stop_reason or ("tool_use" if answer.calls else "end_turn")
    chunks += [{"messageStop": {"stopReason": stop_reason}}]
    chunks += [{"metadata": {"usage": answer.usage, "metrics": {"latencyMs": 1}}}]
    return chunks
