"""What a handle returns for a run that ended or waits: the same on every engine, frozen and JSON-safe, without Strands."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .codec import decode, encode
from .executions import ExecutionStatus

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True)
class OpenInterrupt:
    """A question that waits for a person."""

    interrupt_id: str
    """The key to pass to `ExecutionHandle.respond`."""
    name: str
    reason: Any = None

    @property
    def id(self) -> str:
        """The interrupt id, under the name that it has in Strands' own interrupts."""
        return self.interrupt_id

    def to_json(self) -> dict[str, Any]:
        """Return the interrupt as JSON data."""
        return {"interrupt_id": self.interrupt_id, "name": self.name, "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class NodeOutcome:
    """The outcome of the last visit of a node."""

    status: str
    """As in Strands: completed, failed, interrupted; executing for one that was cut off."""
    result: ExecutionResult | None = None
    """None for a node that failed, or that is not an agent."""
    text: str = ""
    """The text it returned, or the error it failed with."""
    usage: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the node as JSON data."""
        result = None if self.result is None else self.result.to_json()
        return {"status": self.status, "result": result, "text": self.text, "usage": self.usage}


@dataclass(frozen=True, kw_only=True)
class ExecutionResult:
    """The result of an execution, or the questions that it waits for. ``str()`` gives the same text as Strands' own result."""

    execution_id: str
    status: ExecutionStatus
    stop_reason: str
    """As in Strands: end_turn, interrupt, ...; for a Graph or Swarm, its status: completed, interrupted."""
    message: dict[str, Any] | None = None
    """The last message; None for a Graph or Swarm."""
    state: dict[str, Any] = field(default_factory=dict)
    """The agent's state as the run left it."""
    request_state: dict[str, Any] = field(default_factory=dict)
    """The request state of the loop, which is the ``state`` of Strands' own result."""
    usage: dict[str, int] = field(default_factory=dict)
    structured_output: Any = None
    """As JSON data: its class exists only in the worker."""
    interrupts: tuple[OpenInterrupt, ...] = ()
    nodes: dict[str, NodeOutcome] = field(default_factory=dict)
    """By node id, in Strands' order: that in which the nodes first ended."""

    def __str__(self) -> str:
        if self.interrupts:
            return str([_as_in_strands(interrupt) for interrupt in self.interrupts])
        if self.nodes:
            texts = ((node_id, node.text.removesuffix("\n")) for node_id, node in self.nodes.items())
            return "\n".join(f"{node_id}: {text}" for node_id, text in texts if text)
        if self.structured_output is not None:
            from pydantic_core import to_json  # writes numbers as Strands' own result does

            return to_json(self.structured_output).decode()
        return "".join(f"{text}\n" for block in (self.message or {}).get("content", ()) for text in _texts(block))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ExecutionResult:
        """Return the result for what `to_json` returned."""
        fields = decode(json.dumps(data))
        nodes = fields["nodes"]
        for node in nodes.values():
            node["result"] = None if node["result"] is None else cls.from_json(json.loads(encode(node["result"])))
        interrupts = tuple(
            OpenInterrupt(interrupt_id=each.get("interrupt_id") or each["id"], name=each["name"], reason=each["reason"])
            for each in fields["interrupts"]  # a result of 0.1.0 has Strands' name for the id
        )
        status = ExecutionStatus(fields["status"])
        outcomes = {name: NodeOutcome(**node) for name, node in nodes.items()}
        return cls(**{**fields, "status": status, "interrupts": interrupts, "nodes": outcomes})

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON data; bytes and other values that JSON lacks are in their recorded form."""
        fields = {
            **vars(self),
            "status": self.status.value,
            "interrupts": [interrupt.to_json() for interrupt in self.interrupts],
            "nodes": {node_id: node.to_json() for node_id, node in self.nodes.items()},
        }
        data: dict[str, Any] = json.loads(encode(fields, "The result"))
        return data


def _as_in_strands(interrupt: OpenInterrupt) -> dict[str, Any]:
    return {"id": interrupt.interrupt_id, "name": interrupt.name, "reason": interrupt.reason, "response": None}


def _texts(block: Any) -> list[str]:
    if "text" in block:
        return [block["text"]]
    cited = block.get("citationsContent", {}).get("content", ())
    return [part["text"] for part in cited if isinstance(part, dict) and "text" in part]


class _StreamPart(TypedDict):
    """The fields of every event of a stream."""

    number: int
    """Ordinal of the committed step in its execution: pass the last one as ``after`` to resume the stream from there.
    For a chunk, its ordinal within the attempt."""
    recorded: bool
    """True for a committed step, False for a chunk. If a chunk's attempt dies, another ``attempt`` follows and replaces it."""
    step: str
    """Identifies the step within its execution."""
    attempt: int
    kind: Literal["model", "tool", "effect", "node"]
    name: str


class StreamEvent(_StreamPart, total=False):
    """One event of `ExecutionHandle.stream`: a committed step, or a chunk of a running one. JSON-safe."""

    status: str
    """How the attempt ended: done, failed, interrupted, unstorable or discarded."""
    result: Any
    """The recorded result: a model's message with its stop reason and usage, or a tool's result."""
    error: str | None
    usage: dict[str, int] | None
    data: str
    """For a chunk of text: the text."""
    event: Any
    """For a chunk: what the model or tool streamed."""
