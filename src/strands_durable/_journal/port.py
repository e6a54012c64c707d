"""The port between what a call means and where it is recorded: the journal of one execution.

`_calls` and `_execution` know this and no store. Its one implementation is `_sqlite`, in a file or in memory; an engine with a
log of its own keeps the rows that it writes (`_enginekit`). The parts are calls, steps, heads, messages and answers; what they
write inside one transaction is committed together.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .._records.calls import CallAddress, CallKind, CallMaker, CallProgress, CallRecord
from .._records.executions import ExecutionStatus
from .._records.origins import Origin
from .._records.steps import FinishedTool, StepEnd, StepKind, StepRecord


class Observer(Protocol):
    """Acts on what a writer meets in the journal."""

    def cancel_requested(self) -> None:
        """The execution is to be cancelled."""

    def step_ended(self) -> None:
        """A step ends in the transaction that is open."""


class ChunkWriter(Protocol):
    """Takes the chunks that one attempt of a step streams."""

    def write(self, event: Any) -> None:
        """Add a chunk."""

    def close(self) -> None:
        """Accept no more; the commit that ends the step deletes what was written."""


class Calls(Protocol):
    """The calls of one execution, and its status as far as it follows from them."""

    def call(self, call_id: int) -> CallRecord:
        """Return one call."""

    def call_at(self, position: int) -> CallRecord | None:
        """Return the root call recorded at ``position`` of the current run."""

    def call_in(self, parent: int, place: str, position: int = 0) -> CallRecord | None:
        """Return the call recorded at a place of another call, or of none."""

    def call_after(self, scope: str, position: int) -> CallRecord | None:
        """Return the first root call of ``scope`` that was recorded after ``position``."""

    def last_position(self) -> int:
        """Return the position of the last root call of the current run; -1 before the first."""

    def calls(self) -> list[CallRecord]:
        """Return all root calls of the current run."""

    def calls_in(self, parent: int, prefix: str) -> list[CallRecord]:
        """Return the calls at places of another call that start with ``prefix``, in order."""

    def calls_of_member(self, lineage: int, member: str) -> list[CallRecord]:
        """Return the calls that ``member`` made inside calls that share a log, in order."""

    def calls_by(self, member: str) -> list[CallRecord]:
        """Return the calls that ``member`` made anywhere inside the current run, in order."""

    def makers(self) -> dict[int, CallMaker]:
        """Return who made each call of the current run."""

    def insert_call(
        self,
        address: CallAddress,
        kind: CallKind,
        *,
        given: Any,
        config_id: int,
        lineage: int | None = None,
    ) -> tuple[int, int]:
        """Record that a call begins; return its id and the id of the log its messages go to.

        A root agent has one log in an execution; an agent inside another call begins one unless ``lineage`` names its log.
        """

    def set_base(self, call_id: int, ranges: list[list[int]]) -> None:
        """Record the messages that a call found."""

    def reopen_call(self, call: CallRecord) -> None:
        """Record that a call resumes after a failure, an answer or the death of its owner."""

    def end_call(
        self, call: CallRecord, status: ExecutionStatus, result: Any = None, *, keeps_lease: bool = False
    ) -> None:
        """Record how a call ended, or that it waits; with a root call the lease is given up, unless it is kept."""

    def end_left(self, call: CallRecord, error: dict[str, Any]) -> None:
        """Record that a root call which its caller had left has failed; the lease is kept for the call that follows."""

    def cancel(self) -> None:
        """Record that the execution was cancelled, with every call of it that has no end."""

    def insert_failure(self, call_id: int, attempt: int, error: dict[str, Any]) -> None:
        """Record what a call failed with. Rows of this table are never changed."""

    def last_failure(self, call_id: int) -> dict[str, Any]:
        """Return what a call failed with last."""

    def input_of(self, call_id: int) -> Any:
        """Return the input of a call."""

    def redact_input(self, call_id: int) -> None:
        """Forget the text of an input; its hash stays."""

    def hash(self, given: Any) -> str:
        """Return a keyed hash of an input: it can be compared, but not guessed back after a redaction."""


class Steps(Protocol):
    """The steps of one execution."""

    def insert_step(
        self,
        call_id: int,
        key: str,
        attempt: int,
        kind: StepKind,
        name: str,
        title: str,
        started_at: float,
        *,
        config_id: int | None = None,
        end: StepEnd | None = None,
    ) -> int:
        """Record that a step starts: its intent. With ``end``, a step that had none is recorded as a whole."""

    def end_step(self, step_id: int, end: StepEnd) -> None:
        """Record how a step ended."""

    def set_step_result(self, step_id: int, result: str) -> None:
        """Overwrite a recorded result: only a redaction does this."""

    def discard_step(self, step_id: int) -> None:
        """Mark a model answer as given up; it stays on record."""

    def step(self, step_id: int) -> StepRecord:
        """Return one step."""

    def load_steps(self, call_id: int) -> None:
        """Read all steps of a call that resumes, at once; they are kept until the execution is written to."""

    def latest(self, call_id: int, prefix: str) -> dict[str, StepRecord]:
        """Return the last attempt of each step whose key starts with ``prefix``."""

    def nodes(self, call_id: int) -> list[StepRecord]:
        """Return every visit of a node in a call, attempt by attempt, in the order in which they began."""

    def finished_tools(self) -> list[FinishedTool]:
        """Return the tool calls of the current run that have succeeded, in the order in which they ended."""

    def failed_attempts(self, call_id: int, key: str) -> int:
        """Return how many attempts of a step ended in an error."""

    def errors_before(self, call_id: int, key: str) -> list[dict[str, Any]]:
        """Return what the attempts of a step ended in that failed since the call itself has failed last."""

    def usages(self, call_id: int) -> list[tuple[str, dict[str, int]]]:
        """Return, for each model answer of the loop, its key, and its usage with its place in the loop, in order."""

    def tool_counts(self, call_id: int) -> list[tuple[str, int, int, float]]:
        """Return runs, successes and seconds of each tool of a call. A run that ended in a question is one, too."""

    def results(self, step_ids: list[int]) -> dict[int, Any]:
        """Return the recorded results of many steps."""


class Heads(Protocol):
    """Head and state of each call of one execution, and what its agents were made of."""

    def write_head(self, call_id: int, parts: Iterable[tuple[str, str]]) -> None:
        """Overwrite parts of a call's head; what they were when earlier steps ended is kept apart."""

    def forget_part(self, call_id: int, part: str) -> None:
        """Forget a part of a call's head, and what it was: only a redaction does this."""

    def head(self, call_id: int) -> tuple[CallProgress, dict[str, str]]:
        """Return where a call stands, and the other parts of its head."""

    def closing(self, call_id: int) -> CallProgress:
        """Return where a call has come to; a failed one beyond its head."""

    def share_state(self, call_id: int, lineage: int, found: dict[str, str]) -> bool:
        """Let a new call share the state with which the one before it completed, if it found just that."""

    def write_state(self, call_id: int, changes: dict[str, str | None]) -> None:
        """Apply changes of the agent's state; None deletes. A call that shared its state gets one of its own first."""

    def clear_state(self, call_id: int) -> None:
        """Forget the state of a call whose state object was replaced; the new one is written right after."""

    def state(self, call_id: int) -> dict[str, Any]:
        """Return the agent's state as of a call's head."""

    def config(self, config_id: int) -> dict[str, Any]:
        """Return what an agent or orchestrator was made of."""

    def config_id(self, digest: str, data: dict[str, Any]) -> int:
        """Record what an agent is made of, once; return its id."""


class Messages(Protocol):
    """The messages of one execution."""

    def write_messages(self, lineage: int, rows: list[tuple[int, str]]) -> None:
        """Append messages to the log."""

    def overwrite_message(self, lineage: int, seq: int, data: str) -> None:
        """Overwrite a message: only a redaction does this."""

    def last_ranges(self, call_id: int, lineage: int) -> list[list[int]]:
        """Return the messages in sight when the call before ``call_id`` in the same log was written last."""

    def next_seq(self, lineage: int) -> int:
        """Return the first free number of a log."""

    def message_rows(self, lineage: int, ranges: list[list[int]]) -> list[str]:
        """Return the recorded forms of the messages in ``ranges``, in order."""


class Answers(Protocol):
    """The answers of one execution."""

    def insert_answers(self, call_id: int, answers: dict[str, Any]) -> None:
        """Record a person's answers."""

    def replies(self, call_id: int) -> dict[str, Any]:
        """Return the answers that were given from outside, and that the call has not taken up yet."""

    def expire_questions(self, record: CallRecord) -> None:
        """Answer the questions of a waiting call whose time is over with their default answers."""

    def answers(self, call_id: int, given: Any = None) -> dict[str, Any]:
        """Return the recorded answers of a call; also those that it began with, if ``given`` is its input."""


class Journal(Calls, Steps, Heads, Messages, Answers, Protocol):
    """What is recorded of one execution, for reading and for writing under its lease."""

    execution_id: str
    run: int
    """The number of the current run: an execution that was started again has several."""

    @property
    def max_text(self) -> int | None:
        """How long the recorded form of a result may be; None for any length."""

    @property
    def store_path(self) -> str:
        """The store, as this process and its errors name it."""

    def scrub(self) -> None:
        """Remove overwritten text from the store's files too, as soon as no reader is in the way."""

    def transaction(self, label: str, *, lasting: bool = True) -> AbstractContextManager[object]:
        """Commit what the block writes, all of it or nothing; it fails if the lease is lost."""

    def is_dispatched(self) -> bool:
        """Return True if the execution was dispatched, and belongs to workers."""

    def is_cancel_due(self) -> bool:
        """Return True if a cancel was requested from an owner that died before it could cancel."""

    def status(self) -> ExecutionStatus:
        """Return what the execution as a whole is doing."""

    def start_run(self) -> None:
        """Leave the recorded run as it is and begin another under the same id."""

    def chunk_writer(self, call_id: int, key: str, attempt: int, kind: StepKind, name: str) -> ChunkWriter:
        """Return the writer of the chunks that a running step streams."""

    def withdraw(self, call_id: int, key: str, attempt: int) -> None:
        """Take back the intent of a step that surely has not begun: it is not in doubt."""

    def origin(self) -> Origin | None:
        """Return what the execution was forked from; None if it is no fork."""

    def note_drift(self, call_id: int, changes: list[str]) -> bool:
        """Record how an agent that takes up a call of a fork differs from that of the origin.

        Return False, and record nothing, if a step of the call has ended since the fork, or if the execution is no fork.
        """

    def last_config(self, call: CallRecord) -> tuple[str, dict[str, Any]] | None:
        """Return the last model step of a call and what the agent was then; None before the first."""
