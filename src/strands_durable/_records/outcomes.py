"""What steps and calls came to, as plain frozen data with a recorded form each. Knows no Strands.

The recorded form is JSON that files and histories hold for ever: names are never changed, and what is new has a default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from .exceptions import without_traceback
from .printable import masked_beginning

T = TypeVar("T")
_ERROR_LENGTH = 160
Interrupts = list[dict[str, Any]] | None
"""Open questions, each with its ``id``, ``name`` and ``reason``."""


def _read(record: type[T], data: dict[str, Any]) -> T:
    """Make a record of what is known of its recorded form."""
    names = record.__dataclass_fields__  # type: ignore[attr-defined]
    return record(**{name: data[name] for name in names if name in data})


@dataclass(frozen=True, kw_only=True)
class ToolOutcome:
    """What a tool gave, and what it did besides; what did not happen is not stored."""

    result: Any
    """In the form of Strands: with ``toolUseId``, ``status`` and ``content``."""
    state: dict[str, str | None] = field(default_factory=dict)
    """The keys of the agent's state that it wrote: recorded values, None for deleted."""
    invocation: list[Any] = field(default_factory=list)
    """Its changes of the invocation state."""
    cancel: dict[str, Any] | None = None
    """How it cancelled the agent."""
    tools: dict[str, Any] | None = None
    """The schemas of the tools that it loaded."""
    rerun: dict[str, Any] | None = None
    """What is needed to make the call again in another process."""
    exception: dict[str, Any] | None = None
    """What it raised."""

    @property
    def error(self) -> dict[str, Any] | None:
        """What is recorded as the error of the step: an exception, or the text of an error result."""
        if self.exception is not None or self.result.get("status") != "error":
            return self.exception
        texts = [block["text"] for block in self.result.get("content", ()) if "text" in block]
        return {"type": "ToolResult", "text": masked_beginning(" ".join(texts), _ERROR_LENGTH)[0]}

    def to_json(self) -> dict[str, Any]:
        """Return the recorded form. The traceback is recorded once, with the error of the step."""
        exception = None if self.exception is None else without_traceback(self.exception)
        found = {**vars(self), "exception": exception}
        return {name: value for name, value in found.items() if value or name == "result"}

    @staticmethod
    def result_in(data: dict[str, Any]) -> Any:
        """Return the result in a recorded outcome."""
        return data["result"]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ToolOutcome:
        """Return what was recorded."""
        return _read(cls, data)


@dataclass(frozen=True, kw_only=True)
class ModelAnswer:
    """What a model answered."""

    stop_reason: Any
    message: Any
    usage: Any
    metrics: Any
    model_state: dict[str, Any] | None = None
    """The state that the model had after it, if it has one."""

    @property
    def appended(self) -> dict[str, Any]:
        """The message that Strands appends for it."""
        return self.appended_in(vars(self))

    @staticmethod
    def appended_in(data: dict[str, Any]) -> dict[str, Any]:
        """Return the message that Strands appended for a recorded answer."""
        return {**data["message"], "metadata": {"usage": data["usage"], "metrics": data["metrics"]}}

    def to_json(self) -> dict[str, Any]:
        """Return the recorded form."""
        return {name: value for name, value in vars(self).items() if name != "model_state" or value is not None}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ModelAnswer:
        """Return what was recorded."""
        return _read(cls, data)


@dataclass(frozen=True, kw_only=True)
class VisitOutcome:
    """What a visit of a node came to; without a ``status`` it was cut off, or asks a person."""

    status: str | None = None
    """Strands' word for it."""
    time: int = 0
    usage: Any = None
    metrics: Any = None
    count: int = 0
    call: int | None = None
    """The call of the node's agent or orchestrator, which holds what it returned."""
    over: bool = False
    """Whether that call has ended: the next visit is a new one."""
    result: Any = None
    """What the node returned, if it has no such call."""

    def to_json(self) -> dict[str, Any]:
        """Return the recorded form."""
        return {"call": self.call} if self.status is None else dict(vars(self))

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> VisitOutcome:
        """Return what was recorded."""
        return _read(cls, data or {})


@dataclass(frozen=True, kw_only=True)
class AgentCallResult:
    """What a call of an agent returned, or what it waits for."""

    stop_reason: Any = ""
    last: int | None = None
    """Which of the agent's messages it returned; None if it returned another one."""
    message: Any = None
    state: dict[str, Any] = field(default_factory=dict)
    interrupts: Interrupts = None
    structured_output: Any = None
    usage: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the recorded form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> AgentCallResult:
        """Return what was recorded."""
        return _read(cls, data or {})


@dataclass(frozen=True, kw_only=True)
class OrchestratorCallResult:
    """What a call of an orchestrator returned, or what it waits for; what its nodes returned is recorded with them."""

    status: str = ""
    interrupts: Interrupts = None
    usage: Any = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the recorded form."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> OrchestratorCallResult:
        """Return what was recorded."""
        return _read(cls, data or {})
