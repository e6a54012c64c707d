"""What is decided about the tool calls of one answer: what decides again on resume changes nothing about it.

Strands asks hooks, middlewares and the cancel signal again when it resumes with the tools of an answer. About a call with
something on record they have no say: see `_execution.decided`. What the hooks after a call left is on record, too, in the part
``after`` of the head: by step key, ``retry`` if they wanted another try, ``result`` if they changed it, or nothing of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._records import keys
from .._records.codec import decode, encode
from .._records.copies import copied
from .._strands.decisions import is_cancelled, is_last_word

if TYPE_CHECKING:
    from .agent_call import Call
    from .tool_steps import ToolRequest

AFTER_TOOLS = "after"
"""The part of a head that holds what the hooks after tool calls left."""
_CANCELLED = "Tool execution cancelled"
"""What the model gets as the result of a tool that was cancelled together with its call."""


@dataclass
class Batch:
    """What hooks and the cancel signal want for all tools of an answer, when some are on record and some are not."""

    message: str | None = None
    """What the model gets as the result of the calls with nothing on record, if they are cancelled."""
    questions: list[Any] = field(default_factory=list)
    """What a person is asked before these calls run."""
    is_asking: bool = False
    """True once one of these calls has asked."""


class Decisions:
    """The tool calls of the current answer of one call of an agent."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._text: str | None = None
        self._left: dict[str, Any] = {}
        self._known: dict[str, str | None] = {}
        self._asking: set[str] = set()
        """Tries that ended with a question: whether they run once it is answered is decided then."""
        self._entered: set[int] = set()
        self._results: dict[int, Any] = {}
        self.batch: Batch | None = None
        """None unless a part of the tools is on record, and all of them are about to run."""

    def restore(self, parts: dict[str, str]) -> None:
        """Take what the hooks after tool calls left from a recorded head."""
        self._text = parts.get(AFTER_TOOLS)

    def begin(self, steps: Iterable[Any]) -> None:
        """The tools of an answer are about to run: find out which of them are on record."""
        call, prefix = self._call, f"{self._call.progress.ordinal:06d}/"
        left = {} if self._text is None else decode(self._text)
        self._left = {key: found for key, found in left.items() if key.startswith(prefix)}
        self._known, self._asking = {}, set()
        for step in steps:
            self._known[step.key] = step.name
            if step.status == "interrupted":
                self._asking.add(step.key)
        if call.record.attempt > 1:
            inside = call.journal.calls_in(call.record.call_id, prefix)
            self._known |= {found.place: found.member for found in inside if found.place not in self._known}
            self._asking -= {found.place for found in inside}  # an agent behind a tool has asked: it had begun
        self._entered, self._results, self.batch = set(), {}, None

    # Whether a call is on record

    @property
    def has_record(self) -> bool:
        """Whether anything of the answer or its tools was on record when they began."""
        return bool(self._known.keys() - self._asking)

    def is_on_record(self, request: ToolRequest) -> bool:
        """Return True if the try has an intent, a result, a call or an effect on record, or if a later one has."""
        is_known = request.key in self._known and request.key not in self._asking
        return is_known or self._has_inside(request.key) or self.is_tried_again(request)

    def is_tried_again(self, request: ToolRequest) -> bool:
        """Return True if a later try of the call is on record."""
        later = self._key(request, request.retry + 1)
        return later in self._known or self._has_inside(later)

    def _has_inside(self, key: str) -> bool:
        """Return True if a try has a call or an effect on record; those of its hooks are not its own."""
        return any(known.startswith((f"{key}/running:", f"{key}/running@")) for known in self._known)

    def _key(self, request: ToolRequest, retry: int) -> str:
        return keys.tool_key(self._call.progress.ordinal, request.index, request.tool_use_id, retry)

    def name_of(self, request: ToolRequest) -> str:
        """Return the name of the tool that the try was recorded with."""
        return self._known.get(request.key) or request.name

    # Passes through the stage

    def pass_begins(self, request: ToolRequest) -> None:
        """Strands is about to run the call."""
        self._entered.discard(request.index)
        self._results.pop(request.index, None)

    def enter(self, request: ToolRequest) -> None:
        """The call has come through the middlewares outside ours."""
        self._entered.add(request.index)

    def has_entered(self, request: ToolRequest) -> bool:
        """Return True if the call has come through the middlewares outside ours in this pass."""
        return request.index in self._entered

    def is_over(self, request: ToolRequest) -> bool:
        """Return True if the call comes through once more in this pass, and its last try is on record as the last."""
        last = self._left.get(self._key(request, request.retry - 1))
        return last is not None and "retry" not in last and self.has_entered(request)

    def leave(self, request: ToolRequest, result: Any) -> None:
        """The call has its result; hooks may change the object in place, but not this copy."""
        self._results[request.index] = copied(result)

    def result(self, request: ToolRequest) -> Any:
        """Return the result that the call had in this pass, before hooks saw it; None if it did not come that far."""
        return self._results.get(request.index)

    # What the hooks after a call left

    def left(self, request: ToolRequest) -> dict[str, Any] | None:
        """Return what the hooks after the call left on record, if they have run."""
        if self.is_tried_again(request):
            return {"retry": True}
        found: dict[str, Any] | None = self._left.get(request.key)
        return found

    def settle_with_result(self, request: ToolRequest) -> None:
        """Record, as part of the transaction of a result, that no hook decides after it."""
        if is_last_word(self._call.agent):
            self._write(request, {})

    def settle(self, request: ToolRequest, result: Any, *, retry: bool) -> None:
        """Commit what the hooks after a call have left."""
        if request.key in self._left:
            return
        changed = {} if result == self._results[request.index] else {"result": result}
        with self._call.journal.transaction("tool.after", lasting=False):
            self._write(request, {"retry": True} if retry else changed)
        if self._call.control.gate is not None:  # slow hooks: the step's end was stored without this
            self._call.control.gate.note()

    def _write(self, request: ToolRequest, left: dict[str, Any]) -> None:
        self._left[request.key] = left
        self._text = encode(self._left, f"What hooks left of tool {request.name!r}")
        self._call.journal.write_head(self._call.record.call_id, [(AFTER_TOOLS, self._text)])

    # All tools of an answer

    def batch_begins(self, batch: Batch) -> None:
        """The hooks before all tools have run, and a part of the tools is on record."""
        self.batch = batch
        if batch.message is None and is_cancelled(self._call.agent):
            batch.message = _CANCELLED

    def batch_ends(self) -> None:
        """All tools have run."""
        self.batch = None

    def cancel_rest(self) -> str:
        """Cancel the calls of the batch that have not begun; return what the model gets as their result."""
        assert self.batch is not None
        self.batch.message = self.batch.message or _CANCELLED
        return self.batch.message
