"""One call of an agent inside an execution: where it stands, and every moment at which that is committed.

    call.begin   the input and the agent as it was found                         ready
    model.start  new messages and the head, before a model call                  model
    model.done   the answer, as soon as it is there                              model
    tool.start   the answer as a message, the head, and a tool's intent          tools
    tool.done    a tool's result with its state changes and cancel flags         tools
    call.end     the last messages, the head, the result; the lease is given up  done, waiting, failed

The order is the promise: an intent before its step, a result after it, and nothing that belongs together apart.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from strands import Agent

from . import _changes, _keys, _messages
from ._codec import decode, encode
from ._context import Frame, StepPhase, frame
from ._drift import config_of, fingerprint
from ._failure import describe as describe_error
from ._head import Head
from ._history import History
from ._journal import Journal
from ._phases import STATUS, Phase, move
from ._records import CallRecord, ExecutionStatus, Progress, StepRecord
from ._strands import copied
from ._usage import Past, recorded_usage
from .errors import NotSerializableError

logger = logging.getLogger(__name__)

_TITLE_LENGTH = 160


class Abort(BaseException):
    """Unwinds Strands' loop for an error of ours: it turns exceptions into tool results, and we must not become one."""


@dataclass(frozen=True, kw_only=True)
class ToolRequest:
    """One tool call of the loop, named."""

    key: str
    name: str
    tool_use_id: str
    index: int
    input: Any


class Call:
    """One call under way in this process."""

    def __init__(self, agent: Agent, journal: Journal, history: History, head: Head, record: CallRecord) -> None:
        self.agent, self.journal, self.record = agent, journal, record
        self.history, self.head = history, head
        self.progress = Progress()
        self.past: Past | None = None
        self._past_given = False
        self.failure: Exception | None = None
        self.crash: BaseException | None = None
        self.invocation_state: dict[str, Any] | None = None
        self.in_doubt_model = False
        self._sources = _messages.Sources(record.call_id, record.input)
        self._rows: list[tuple[int, str]] = []
        self._written_progress = ""
        self._config: tuple[Any, int, str] | None = None
        self._retry = 0
        self._answered = False
        self._may_be_recorded = False
        self._uses: list[tuple[int, Any]] = []
        self._entries: Counter[int] = Counter()
        self._batch: dict[str, StepRecord] = {}
        self._replayed: set[int] = set()

    # Beginning

    @classmethod
    def begin(
        cls, agent: Agent, journal: Journal, history: History, head: Head, *, position: int, scope: str, given: Any
    ) -> Call:
        """Record a new call: its input, and the agent as it was found."""
        config = config_of(agent)
        head.rebase()
        with journal.transaction("call.begin") as connection:
            config_id = journal.config_id(connection, fingerprint(config), config)
            call_id, lineage = journal.insert_call(
                connection, position=position, scope=scope, given=given, config_id=config_id
            )
            history.next_seq = max(history.next_seq, journal.next_seq(lineage))
            sources = _messages.Sources(call_id, None)
            journal.write_messages(connection, lineage, history.sync(agent.messages, sources.describe))
            journal.set_base(connection, call_id, history.ranges)
            head.flush(connection, journal, call_id)
            progress = Progress(ranges=history.ranges)
            journal.write_head(connection, call_id, [("progress", _compact(progress))])
        record = journal.call_at(position)
        assert record is not None
        call = cls(agent, journal, history, head, record)
        call.progress, call._written_progress = progress, _compact(progress)
        return call

    @classmethod
    def go_on(cls, agent: Agent, journal: Journal, history: History, head: Head, record: CallRecord) -> Call:
        """Put a recorded call's head in place of what the agent carries."""
        call = cls(agent, journal, history, head, record)
        progress, parts = journal.head(record.call_id)
        call.progress, call._written_progress = progress, _compact(progress)
        messages = _messages.read(journal, record.lineage, progress.ranges)
        agent.messages[:] = messages
        history.load(messages, progress.ranges, journal.next_seq(record.lineage))
        head.restore(journal, record.call_id, parts)
        call.past = Past(journal, record.call_id, progress)
        call._may_be_recorded = True
        call.in_doubt_model = progress.resume == "model" and record.status is not ExecutionStatus.SUSPENDED
        return call

    def reopen(self, answers: dict[str, Any] | None = None) -> None:
        """Record that the call goes on, with a person's answers where there are some."""
        if answers is not None:
            legs = [*self.progress.legs, self.progress.ordinal]
            self._move(self.progress.resume, legs=legs)  # type: ignore[arg-type]
        with self.journal.transaction("call.reopen") as connection:
            if answers is not None:
                self.journal.insert_answers(connection, self.record.call_id, answers)
            self.journal.reopen_call(connection, self.record.call_id)
            self._flush(connection)
        self.record = replace(self.record, status=ExecutionStatus.RUNNING, attempt=self.record.attempt + 1)

    def restore_closing(self) -> None:
        """Put the messages in place with which a failed call ended, beyond its head."""
        _, parts = self.journal.head(self.record.call_id)
        ranges = json.loads(parts["closing"])
        messages = _messages.read(self.journal, self.record.lineage, ranges)
        self.agent.messages[:] = messages
        self.history.load(messages, ranges, self.history.next_seq)

    def give_up_answer(self) -> bool:
        """Give up the last model answer if no tool of it has started; it stays on record as discarded."""
        ordinal = self.progress.ordinal + (0 if self.progress.resume == "tools" else 1)
        steps = self.journal.latest(self.record.call_id, f"{ordinal:06d}/")
        answers = [step for step in steps.values() if step.kind == "model" and step.status == "done"]
        if not answers or any(step.kind == "tool" for step in steps.values()):
            return False
        if self.progress.resume == "tools":
            del self.agent.messages[-1]
            self._rows += self.history.sync(self.agent.messages, self._sources.describe)
        self._move(self.progress.phase, resume="model", ordinal=ordinal - 1, attempt=max(s.attempt for s in answers))  # type: ignore[arg-type]
        self.in_doubt_model = False
        with self.journal.transaction("answer.discard") as connection:
            for step in answers:
                self.journal.discard_step(connection, step.step_id)
            self._flush(connection)
        return True

    # Where the running code stands

    @property
    def execution_id(self) -> str:
        """The execution that this call belongs to."""
        return self.journal.execution_id

    def join_invocation(self, invocation_state: dict[str, Any]) -> None:
        """Strands has begun the invocation: give back what recorded steps cost and what they left in its state."""
        self.enter_call("before")
        self.invocation_state = invocation_state
        self.head.restore_invocation_state(invocation_state)
        if self.past is not None and not self._past_given:
            self._past_given = True
            metrics = self.agent.event_loop_metrics
            self.past.give_back(metrics, current=metrics.agent_invocations[-1])

    def enter_model(self, phase: StepPhase) -> None:
        """Stand in the hooks before or after the model call under way."""
        frame.set(Frame(self, "model", "model", phase, partial(self._locate_model, phase)))

    def enter_tool(self, tool_use: Any, phase: StepPhase) -> None:
        """Stand in the hooks before or after a tool call."""
        frame.set(Frame(self, "tool", str(tool_use.get("name")), phase, partial(self._locate_tool, tool_use, phase)))

    def enter_call(self, phase: StepPhase) -> None:
        """Stand in the hooks around the whole call."""
        place = ("call", self.record.attempt, self.record.attempt > 1)
        frame.set(Frame(self, "call", self.agent.name, phase, lambda: place))

    def _locate_model(self, phase: StepPhase) -> tuple[str, int, bool]:
        retry = self._retry + (1 if phase == "before" and self._answered else 0)
        key = _keys.model_key(self.progress.ordinal + 1, retry)
        found = self._recorded_answer(key)
        return key, max(1, self.progress.attempt), found is not None and found.status == "done"

    def _locate_tool(self, tool_use: Any, phase: StepPhase) -> tuple[str, int, bool]:
        key = self.tool_request(tool_use, back=1 if phase == "after" else 0).key
        found = self._batch.get(key)
        done = found is not None and found.status == "done"
        replaying = done and found is not None and (phase == "before" or found.step_id in self._replayed)
        return key, found.attempt if found is not None else 1, replaying

    # Model calls

    def model_request(self) -> tuple[str, StepRecord | None]:
        """Return the key of the model call that begins now, and what is recorded under it."""
        if self._answered:
            self._retry += 1
            self._answered = False
            self.progress = replace(self.progress, attempt=0)
        key = _keys.model_key(self.progress.ordinal + 1, self._retry)
        return key, self._recorded_answer(key)

    def _recorded_answer(self, key: str) -> StepRecord | None:
        return self.journal.latest(self.record.call_id, key).get(key) if self._may_be_recorded else None

    def is_model_in_doubt(self, recorded: StepRecord | None) -> bool:
        """Say whether the model call that begins now had begun in a process that is gone."""
        known = recorded is not None and recorded.attempt >= self.progress.attempt
        return self.in_doubt_model and not known

    def start_model(self, *, lasting: bool) -> None:
        """Commit the conversation as the model is about to see it. This is the model call's intent.

        Without ``lasting`` a power cut may undo it: the tool results before it are then read from their steps, and the model
        is asked again.
        """
        self._capture()
        self._move("model", resume="model", attempt=self.progress.attempt + 1)
        self.in_doubt_model = False
        with self.journal.transaction("model.start", lasting=lasting) as connection:
            self._flush(connection)

    def finish_model(
        self, key: str, started_at: float, request: Any, stop: dict[str, Any], redacted: bool
    ) -> dict[str, Any]:
        """Commit a model answer and return it as it was recorded."""
        text = encode(stop, f"The answer of {key}")
        result: dict[str, Any] = decode(text)
        with self.journal.transaction("model.done") as connection:
            step_id = self._insert_model_step(connection, key, started_at, request)
            usage = recorded_usage(stop["usage"], stop["metrics"])
            self.journal.end_step(connection, step_id, "done", result=text, usage=usage)
            if redacted:
                self._redact(connection)
        if redacted:
            self.journal.store.scrub()
        self._may_be_recorded = False
        self.take_answer(step_id, result)
        return result

    def fail_model(self, key: str, started_at: float, request: Any, error: Exception) -> None:
        """Record a model call that ended in an error; whoever retries makes a new attempt of the same step."""
        with self.journal.transaction("model.failed") as connection:
            step_id = self._insert_model_step(connection, key, started_at, request)
            self.journal.end_step(connection, step_id, "failed", error=describe_error(error))

    def take_answer(self, step_id: int, result: dict[str, Any]) -> None:
        """Expect the answer as the next message; if it does not come, a hook sent it back."""
        self._answered = True
        self._sources.answered(step_id, result)

    def _insert_model_step(self, connection: sqlite3.Connection, key: str, started_at: float, request: Any) -> int:
        config_id, model = self._config_id(connection, request)
        return self.journal.insert_step(
            connection,
            self.record.call_id,
            key,
            self.progress.attempt,
            "model",
            model,
            "",
            started_at,
            config_id,
        )

    def _config_id(self, connection: sqlite3.Connection, request: Any) -> tuple[int, str]:
        """Return the id of what the agent is made of; it is looked at again only when the request looks different."""
        basis = (request.tool_specs, request.system_prompt, self.agent.model, self.agent.model.get_config())
        if self._config is None or self._config[0] != basis:
            config = config_of(self.agent)
            config_id = self.journal.config_id(connection, fingerprint(config), config)
            self._config = ((*copied(basis[:2]), basis[2], copied(basis[3])), config_id, config["model"])
        return self._config[1:]

    def _redact(self, connection: sqlite3.Connection) -> None:
        """Strands has redacted the last user message in place: overwrite what was recorded of it, everywhere."""
        message = self.agent.messages[-1]
        seq = self.history.replaced(message)
        form = decode(self.journal.message_rows(self.record.lineage, [[seq, seq]])[0])
        self.journal.overwrite_message(connection, self.record.lineage, seq, encode({"message": message}, "A message"))
        if "input" in form:
            self.journal.redact_input(connection, form["input"])
        steps = [block for block in form.get("blocks", ()) if isinstance(block, int)]
        redacted = {
            block["toolResult"]["toolUseId"]: block["toolResult"]
            for block in message["content"]
            if "toolResult" in block
        }
        for step_id, outcome in self.journal.results(steps).items():
            outcome["result"] = redacted[outcome["result"]["toolUseId"]]
            self.journal.set_step_result(connection, step_id, encode(outcome))

    # Messages

    def message_added(self, message: Any) -> None:
        """Take the head when a model answer has become part of the conversation."""
        if not self._answered or message["role"] != "assistant":
            return
        self._answered, self._retry = False, 0
        self._rows += self.history.append(self.agent.messages, self._sources.describe)
        self.head.capture(self.invocation_state)
        wants_tools = any("toolUse" in block for block in message["content"])
        resume = "tools" if wants_tools else "model"
        self._move(self.progress.phase, resume=resume, attempt=0, ordinal=self.progress.ordinal + 1)  # type: ignore[arg-type]

    # Tools

    def begin_batch(self, message: Any) -> None:
        """The tools of ``message`` are about to run: find out which of them have run already."""
        if self.past is not None:
            self.past.carry(self.agent.event_loop_metrics)
        self._uses = [(index, block["toolUse"]) for index, block in enumerate(message["content"]) if "toolUse" in block]
        self._entries, self._replayed = Counter(), set()
        self._batch = (
            self.journal.latest(self.record.call_id, f"{self.progress.ordinal:06d}/") if self._may_have_batch else {}
        )
        if self.progress.phase != "tools":
            self._move("tools", resume="tools")

    @property
    def _may_have_batch(self) -> bool:
        return self.record.attempt > 1

    def tool_request(self, tool_use: Any, back: int = 0) -> ToolRequest:
        """Name a tool call. Ids repeat, even in one message; the input object tells twins apart."""
        tool_use_id = str(tool_use.get("toolUseId"))
        twins = [(index, use) for index, use in self._uses if str(use.get("toolUseId")) == tool_use_id]
        same = [index for index, use in twins if use.get("input") is tool_use.get("input")]
        index = same[0] if same else (twins[0][0] if twins else 0)
        retry = max(0, self._entries[index] - back)
        return ToolRequest(
            key=_keys.tool_key(self.progress.ordinal, index, tool_use_id, retry),
            name=str(tool_use.get("name")),
            tool_use_id=tool_use_id,
            index=index,
            input=tool_use.get("input"),
        )

    def recorded_tool(self, request: ToolRequest) -> StepRecord | None:
        """Return the last recorded attempt of a tool call."""
        return self._batch.get(request.key)

    def start_tool(self, request: ToolRequest, attempt: int) -> StepRecord:
        """Commit a tool's intent, with the answer that asked for it."""
        started_at = time.time()
        with self.journal.transaction("tool.start") as connection:
            self._flush(connection)
            step_id = self.journal.insert_step(
                connection,
                self.record.call_id,
                request.key,
                attempt,
                "tool",
                request.name,
                _title(request.input),
                started_at,
            )
        record = StepRecord(
            step_id=step_id, key=request.key, attempt=attempt, kind="tool", name=request.name, status="started",
            started_at=started_at,
        )  # fmt: skip
        self._batch[request.key] = record
        return record

    def finish_tool(
        self, request: ToolRequest, step: StepRecord | None, attempt: int, outcome: dict[str, Any], status: Any = "done"
    ) -> dict[str, Any]:
        """Commit a tool's outcome and return it as it was recorded. ``step`` is None where there was no intent."""
        error = _error_of(outcome)
        text = self._encoded(request, step, outcome)
        with self.journal.transaction("tool.done") as connection:
            self._flush(connection)
            step_id = step.step_id if step is not None else self._insert_late(connection, request, attempt)
            self.journal.end_step(connection, step_id, status, result=text, error=error)
        recorded: dict[str, Any] = decode(text)
        if status == "done":
            self._sources.returned(step_id, recorded["result"])
        self._batch[request.key] = StepRecord(
            step_id=step_id, key=request.key, attempt=attempt, kind="tool", name=request.name, status=status,
            result=recorded,
        )  # fmt: skip
        return recorded

    def reuse_tool(self, request: ToolRequest, step: StepRecord) -> dict[str, Any]:
        """Take a recorded outcome: make its changes of state and cancels again, but not its effects."""
        outcome: dict[str, Any] = step.result
        self._replayed.add(step.step_id)
        self.head.apply(outcome.get("state", {}))
        if self.invocation_state is not None:
            _changes.apply(outcome.get("invocation", []), self.invocation_state)
        if "cancel" in outcome:
            self.agent.cancel(**outcome["cancel"])
        self._sources.returned(step.step_id, outcome["result"])
        logger.debug("execution_id=<%s>, step=<%s> | step replayed", self.execution_id, request.key)
        return outcome

    def leave_tool(self, request: ToolRequest) -> None:
        """Count a finished pass through the tool stage; the next one for the same call is a hook's retry."""
        self._entries[request.index] += 1

    def interrupt_tool(self, request: ToolRequest, step: StepRecord | None, interrupts: list[dict[str, Any]]) -> None:
        """Record that a tool waits for a person."""
        if step is None:
            return
        with self.journal.transaction("tool.interrupted") as connection:
            text = encode({"interrupts": interrupts}, f"The interrupt of tool {request.name!r}")
            self.journal.end_step(connection, step.step_id, "interrupted", result=text)
        self._batch[request.key] = replace(step, status="interrupted", result={"interrupts": interrupts})

    def _encoded(self, request: ToolRequest, step: StepRecord | None, outcome: dict[str, Any]) -> str:
        try:
            return encode(outcome)
        except NotSerializableError as error:
            if step is not None:
                with self.journal.transaction("tool.unstorable") as connection:
                    self.journal.end_step(connection, step.step_id, "unstorable", error=describe_error(error))
            what = f"Execution {self.execution_id!r}: the result of tool {request.name!r} ({request.tool_use_id})"
            path = error.path.removeprefix("value['result']") or "value"
            raise NotSerializableError(what, f"result{path}", error.type_name, error.detail) from None

    def _insert_late(self, connection: sqlite3.Connection, request: ToolRequest, attempt: int) -> int:
        return self.journal.insert_step(
            connection,
            self.record.call_id,
            request.key,
            attempt,
            "tool",
            request.name,
            _title(request.input),
            time.time(),
        )

    # durable.step and its kin

    def open_effect(self, found: Frame, name: str, *, intent: bool = True) -> Effect:
        """Return a recorded side effect, or one that is about to happen."""
        occurrence = found.occurrences[name]
        found.occurrences[name] += 1
        key = _keys.effect_key(found.key, found.phase, name, occurrence)
        recorded = self.journal.latest(self.record.call_id, key).get(key)
        if recorded is not None and recorded.status == "done":
            return Effect(self, key, name, recorded, recorded.attempt)
        effect = Effect(self, key, name, None, 1 if recorded is None else recorded.attempt + 1)
        if intent:
            effect.start()
        return effect

    # Ending

    def fail(self, error: Exception) -> None:
        """Latch an error of ours, and unwind. The first one counts."""
        if self.failure is None:
            self.failure = error
        raise Abort

    def check(self) -> None:
        """Unwind if an error of ours was latched where Strands could swallow it."""
        if self.failure is not None or self.crash is not None:
            raise Abort

    def end(self, phase: Phase, result: dict[str, Any]) -> None:
        """Commit the end of the call, or that it waits for a person, and give up the lease."""
        self._capture()
        self._move(phase, resume=self.progress.resume)
        with self.journal.transaction("call.end") as connection:
            self._flush(connection)
            self.journal.end_call(connection, self.record.call_id, STATUS[phase], result)
            self.journal.lease.drop(connection)

    def end_failed(self, error: Exception) -> None:
        """Commit that an exception left the call. The head stays where it is, for the next try."""
        move(self.execution_id, self.progress.phase, "failed")  # type: ignore[arg-type]
        self._rows += self.history.sync(self.agent.messages, self._sources.describe)
        with self.journal.transaction("call.failed") as connection:
            self.journal.write_messages(connection, self.record.lineage, self._rows)
            self.journal.write_head(connection, self.record.call_id, [("closing", json.dumps(self.history.ranges))])
            self.journal.insert_failure(connection, self.record.call_id, self.record.attempt, describe_error(error))
            self.journal.end_call(connection, self.record.call_id, ExecutionStatus.FAILED)
            self.journal.lease.drop(connection)

    # Committing

    def _capture(self) -> None:
        self._rows += self.history.sync(self.agent.messages, self._sources.describe)
        self.head.capture(self.invocation_state)

    def _move(self, phase: Phase, **changes: Any) -> None:
        if phase != self.progress.phase:
            move(self.execution_id, self.progress.phase, phase)  # type: ignore[arg-type]
        self.progress = replace(self.progress, phase=phase, ranges=self.history.ranges, **changes)

    def _flush(self, connection: sqlite3.Connection) -> None:
        if self._rows:
            self.journal.write_messages(connection, self.record.lineage, self._rows)
            self._rows = []
        self.head.flush(connection, self.journal, self.record.call_id)
        progress = _compact(self.progress)
        if progress != self._written_progress:
            self.journal.write_head(connection, self.record.call_id, [("progress", progress)])
            self._written_progress = progress


class Effect:
    """One `durable.step`, recorded or under way."""

    def __init__(self, call: Call, key: str, name: str, recorded: StepRecord | None, attempt: int) -> None:
        self.recorded = recorded
        self._call, self._key, self._name, self._attempt = call, key, name, attempt
        self._step_id: int | None = None

    def start(self) -> None:
        """Commit the intent."""
        with self._call.journal.transaction("effect.start") as connection:
            self._step_id = self._insert(connection)

    def close(self, value: Any) -> Any:
        """Commit what came out, and return it as it was recorded."""
        text = encode(value, f"The result of durable.step {self._name!r}")
        with self._call.journal.transaction("effect.done") as connection:
            step_id = self._insert(connection) if self._step_id is None else self._step_id
            self._call.journal.end_step(connection, step_id, "done", result=text)
        return decode(text)

    def fail(self, error: Exception) -> None:
        """Record an attempt that ended in an error."""
        assert self._step_id is not None
        with self._call.journal.transaction("effect.failed") as connection:
            self._call.journal.end_step(connection, self._step_id, "failed", error=describe_error(error))

    def _insert(self, connection: sqlite3.Connection) -> int:
        return self._call.journal.insert_step(
            connection, self._call.record.call_id, self._key, self._attempt, "effect", self._name, "", time.time()
        )


def _compact(progress: Progress) -> str:
    return json.dumps(vars(progress), separators=(",", ":"))


def _title(value: Any) -> str:
    """Return a short form of a tool's input, for people."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _TITLE_LENGTH else text[: _TITLE_LENGTH - 1] + "…"


def _error_of(outcome: dict[str, Any]) -> Any:
    if "exception" in outcome:
        return outcome["exception"]
    if outcome["result"].get("status") == "error":
        return {"type": "ToolResult", "text": str(outcome["result"].get("content"))[:_TITLE_LENGTH]}
    return None
