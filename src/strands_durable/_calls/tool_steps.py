"""The tool calls of one model answer: their keys, and when they are committed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._records import keys, patches
from .._records.codec import decode, encode, read_back
from .._records.counters import count
from .._records.exceptions import describe
from .._records.json_text import writer
from .._records.logs import safe_logger
from .._records.outcomes import ToolOutcome
from .._records.printable import masked_beginning
from .._records.steps import StepEnd, StepRecord, StepStatus, shown_status
from ..errors import NotSerializableError, PayloadTooLargeError
from .context import StepPhase
from .decisions import Decisions

if TYPE_CHECKING:
    from .agent_call import Call

logger = safe_logger(__name__)

_TITLE_LENGTH = 160
_dump = writer(separators=(", ", ": "), default=str, ensure_ascii=False)
_NO_RUN = {"runs": 0}
"""Recorded if a tool step ended but the tool itself did not run; Strands then counts nothing."""


@dataclass(frozen=True, kw_only=True)
class ToolRequest:
    """One tool call of the loop, with its step key."""

    key: str
    name: str
    tool_use_id: str
    index: int
    retry: int
    input: Any

    @cached_property
    def title(self) -> str:
        """A short form of the input, for people."""
        return title_of(self.input)


class ToolSteps:
    """The tools of the current answer, and what is recorded of them."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.decisions = Decisions(call)
        self._uses: list[tuple[int, Any]] = []
        self._rewritten: list[tuple[int, Any]] = []
        self._passes: Counter[int] = Counter()
        self._last: ToolRequest | None = None
        self._latest: dict[str, StepRecord] = {}
        self._reused: dict[int, StepRecord] = {}
        self._asking: list[tuple[ToolRequest, int, StepEnd]] = []
        self._in_loop: dict[str, list[int]] = {name: list(found) for name, found in call.progress.in_loop.items()}

    def begin(self, message: Any) -> None:
        """The tools of ``message`` are about to run: find out which of them have already run."""
        call = self._call
        self._uses = [(index, block["toolUse"]) for index, block in enumerate(message["content"]) if "toolUse" in block]
        self._passes, self._reused, self._latest, self._last, self._rewritten = Counter(), {}, {}, None, []
        if call.record.attempt > 1:
            self._latest = call.journal.latest(call.record.call_id, f"{call.progress.ordinal:06d}/")
        self.decisions.begin(self._latest.values())

    def requests(self) -> list[ToolRequest]:
        """Return all tool calls of the answer."""
        return [self._requested(use, 0) for _, use in self._uses]

    def request(self, tool_use: Any, back: int = 0) -> ToolRequest:
        """Return a tool call with its key; the hooks around it and its stage ask for the same one."""
        known = self._last
        if known is None or not self._is_for(known, tool_use, back):
            self._last = known = self._requested(tool_use, back)
        return known

    def rewrite(self, request: ToolRequest, tool_use: Any) -> None:
        """Know a tool call by what hooks made of it."""
        self._rewritten.append((request.index, tool_use))

    def _is_for(self, known: ToolRequest, tool_use: Any, back: int) -> bool:
        return (
            known.input is tool_use.get("input")
            and known.tool_use_id == str(tool_use.get("toolUseId"))
            and known.name == str(tool_use.get("name"))
            and known.retry == max(0, self._passes[known.index] - back)
        )

    def _requested(self, tool_use: Any, back: int) -> ToolRequest:
        """Ids repeat, even in one message; the input object distinguishes duplicates. Hooks may write both."""
        given, known = tool_use.get("input"), [*self._uses, *self._rewritten]
        twins = [(index, use) for index, use in known if use.get("toolUseId") == tool_use.get("toolUseId")]
        same = (index for index, use in twins if use.get("input") is given)
        index = next(same, twins[0][0] if twins else 0)
        tool_use_id = next((str(use.get("toolUseId")) for at, use in self._uses if at == index), "")
        retry = max(0, self._passes[index] - back)
        return ToolRequest(
            key=keys.tool_key(self._call.progress.ordinal, index, tool_use_id, retry),
            name=str(tool_use.get("name")),
            tool_use_id=tool_use_id,
            index=index,
            retry=retry,
            input=given,
        )

    def look(self, key: str, phase: StepPhase) -> tuple[int, bool]:
        """Return the attempt, and whether the journal has the result: for the hooks around a tool call."""
        found = self._latest.get(key)
        if found is None:
            return 1, False
        return found.attempt, found.status == "done" and (phase == "before" or found.step_id in self._reused)

    def recorded(self, request: ToolRequest) -> StepRecord | None:
        """Return the last recorded attempt of a tool call."""
        return self._latest.get(request.key)

    def loaded(self) -> list[dict[str, Any]]:
        """Return what the tools of the last answer changed in the agent's tools, in the order in which they finished."""
        call = self._call
        steps = call.journal.latest(call.record.call_id, f"{call.progress.ordinal:06d}/").values()
        done = [step for step in steps if step.kind == "tool" and step.status == "done" and step.result is not None]
        done.sort(key=lambda step: step.ended_at or 0.0)
        loaded = [ToolOutcome.from_json(step.result).tools for step in done]
        return [tools for tools in loaded if tools is not None]

    def errors(self, request: ToolRequest) -> int:
        """Return how many attempts of a tool call ended in an error that its policy retries; a crash does not count."""
        return self._call.journal.failed_attempts(self._call.record.call_id, request.key)

    def start(self, request: ToolRequest, attempt: int) -> StepRecord:
        """Commit a tool's intent, with the answer that asked for it."""
        started_at = time.time()
        with self._call.flushing("tool.start"):
            step_id = self._insert(request, attempt, started_at)
        return self._note(request, step_id, attempt, "started", started_at=started_at)

    def finish(
        self,
        request: ToolRequest,
        step: StepRecord | None,
        attempt: int,
        outcome: ToolOutcome,
        *,
        status: StepStatus = "done",
        started_at: float | None = None,
        ran: bool = False,
    ) -> ToolOutcome:
        """Commit a tool's outcome and return it as recorded. ``step`` is None if there was no intent."""
        form = outcome.to_json()
        text, recorded = self._read_back(request, step, form)
        end = StepEnd(status, text, outcome.error, loop=None if ran else _NO_RUN)
        self._call.take_messages()
        with self._call.flushing("tool.done"):
            if step is None:
                step_id = self._insert(request, attempt, started_at or time.time(), end)
            else:
                step_id = step.step_id
                self._call.journal.end_step(step_id, end)
            if status == "done":
                self.decisions.settle_with_result(request)
        count("steps", "tool", shown_status(end.status, has_error=end.error is not None))
        if recorded is not form:  # if equal, keep one copy: Strands' traces hold this one for good
            outcome = ToolOutcome.from_json(recorded)
        if status == "done":
            self._call.message_encoder.returned(step_id, outcome.result)
        self._note(request, step_id, attempt, status, result=recorded)
        return outcome

    def finish_late(
        self, request: ToolRequest, step: StepRecord | None, attempt: int, end: StepEnd, started_at: float
    ) -> None:
        """Commit the end of a tool whose call has ended: only its step, as the conversation may now belong to another call."""
        with self._call.journal.transaction("tool.late"):
            if step is None:
                self._insert(request, attempt, started_at, end)
            else:
                self._call.journal.end_step(step.step_id, end)
        count("steps", "tool", shown_status(end.status, has_error=end.error is not None))

    def ending(
        self, request: ToolRequest, step: StepRecord | None, outcome: ToolOutcome, status: StepStatus, *, ran: bool
    ) -> StepEnd:
        """Return the recorded end of a tool that has an outcome."""
        text, _ = self._read_back(request, step, outcome.to_json())
        return StepEnd(status, text, outcome.error, loop=None if ran else _NO_RUN)

    def asking(self, request: ToolRequest, interrupts: list[dict[str, Any]], *, ran: bool) -> StepEnd:
        """Return the recorded end of a tool that waits for a person."""
        text = encode({"interrupts": interrupts}, f"The interrupt of tool {request.name!r}")
        return StepEnd("interrupted", text, loop=None if ran else _NO_RUN)

    def reuse(self, request: ToolRequest, step: StepRecord) -> ToolOutcome:
        """Use a recorded outcome: apply its state changes and its cancels again, but not its effects.

        Tools arrive here in the order of the answer, but finished in another: the one that finished last wins.
        """
        call, outcome = self._call, ToolOutcome.from_json(step.result)
        finished_later = [other for other in self._reused.values() if (other.ended_at or 0) > (step.ended_at or 0)]
        for found in (step, *sorted(finished_later, key=lambda other: other.ended_at or 0)):
            self._apply(ToolOutcome.from_json(found.result))
        self._reused[step.step_id] = step
        call.message_encoder.returned(step.step_id, outcome.result)
        logger.debug("execution_id=<%s>, step=<%s> | step replayed", call.execution_id, request.key)
        return outcome

    def _apply(self, outcome: ToolOutcome) -> None:
        call = self._call
        call.head.apply(outcome.state)
        if call.invocation_state is not None:
            patches.apply(outcome.invocation, call.invocation_state)
        if outcome.cancel is not None:
            call.agent.cancel(**outcome.cancel)

    def ran_in_loop(self, name: str, runs: int, successes: int) -> None:
        """Count a tool that is not a step, because its effect is the loop itself."""
        found = self._in_loop.setdefault(name, [0, 0])
        found[0] += runs
        found[1] += successes

    def in_loop(self) -> dict[str, list[int]]:
        """Return runs and successes of the tools that are not steps."""
        return {name: list(found) for name, found in self._in_loop.items()}

    def leave(self, request: ToolRequest, outcome: ToolOutcome) -> None:
        """Count a finished pass through the tool stage; the next one for the same call is a hook's retry."""
        self._passes[request.index] += 1
        self.decisions.leave(request, outcome.result)

    def interrupt(
        self,
        request: ToolRequest,
        step: StepRecord | None,
        attempt: int,
        interrupts: list[dict[str, Any]],
        *,
        ran: bool,
    ) -> None:
        """Record that a tool waits for a person. ``step`` is None if there was no intent."""
        end = self.asking(request, interrupts, ran=ran)
        if step is None:
            self._asking.append((request, attempt, end))
            return
        with self._call.journal.transaction("tool.interrupted"):
            self._call.journal.end_step(step.step_id, end)
        count("steps", "tool", "interrupted")
        self._latest[request.key] = replace(step, status="interrupted", result=decode(str(end.result)))

    def flush_asking(self) -> None:
        """Record the tools without an intent that wait for a person; after a crash before this, they run again."""
        for request, attempt, end in self._asking:
            self._insert(request, attempt, time.time(), end)
            count("steps", "tool", "interrupted")
        self._asking = []

    def _insert(
        self,
        request: ToolRequest,
        attempt: int,
        started_at: float,
        end: StepEnd | None = None,
    ) -> int:
        call = self._call
        return call.journal.insert_step(
            call.record.call_id, request.key, attempt, "tool", request.name, request.title, started_at, end=end
        )

    def _note(self, request: ToolRequest, step_id: int, attempt: int, status: StepStatus, **more: Any) -> StepRecord:
        record = StepRecord(
            step_id=step_id, key=request.key, attempt=attempt, kind="tool", name=request.name, status=status, **more
        )
        self._latest[request.key] = record
        return record

    def _read_back(self, request: ToolRequest, step: StepRecord | None, form: dict[str, Any]) -> tuple[str, Any]:
        """Return the text that is recorded, and what is read from it; without one, the step is unstorable and in doubt."""
        what = f"Execution {self._call.execution_id!r}: the result of tool {request.name!r} ({request.tool_use_id})"
        try:
            (text, recorded), limit = read_back(form, keeps=True), self._call.journal.max_text
            if limit is not None and len(text) > limit:
                raise PayloadTooLargeError(what, len(text), limit)
            return text, recorded
        except NotSerializableError as error:
            if step is not None:
                with self._call.journal.transaction("tool.unstorable"):
                    self._call.journal.end_step(step.step_id, StepEnd("unstorable", error=describe(error)))
            if isinstance(error, PayloadTooLargeError):
                raise
            path = error.path.removeprefix("value['result']")
            raise NotSerializableError(what, f"result{path}", error.type_name, error.detail) from None


def title_of(value: Any) -> str:
    """Return a short form of a tool's input, for people."""
    try:
        text = _dump(value).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):  # a circular reference, or a number too long to write
        return "…"
    return text if len(text) <= _TITLE_LENGTH else f"{masked_beginning(text, _TITLE_LENGTH - 1)[0]}…"
