"""The port of an engine whose log is a sequence of operations, and what such a log records.

The engine runs a function again from its beginning, and returns the recorded results of its operations without running them.
Operations are made one after the other, on one thread. Each step of ours returns one JSON object, a `Message`: the rows that
have changed, the steps that wait for their turn, and how the function continues. Everything that decides which operation comes
next is in the message before it, so that the function makes the same operations whenever it runs again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from ..._records.change_sets import ChangeSet
from ..._records.notifications import Event
from ..._records.step_gate import StepTicket
from ..pieces import Piece
from ..time_limit import TimeLimit
from .row_store import RowStore

DISPATCH, START, INTERRUPTED, PIECE = "dispatch", "start the agent", "resume after an interruption", "large batch"
ACCEPT_DRIFT = "accept drift"
"""The callback by which a function that refuses an execution is allowed to run it with another version."""
ERROR_LENGTH = 10_000
_NAME_LENGTH = 256
_REASON_BYTES = 100_000

Notify = Callable[[str, dict[str, Any]], None]
"""Called with a callback id and the question: execution_id, interrupt_id, name, reason, rejected."""


class InterruptedOperationError(Exception):
    """A step that must not run twice had begun when its process died."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """How a callback has ended: with a text, or with the reason why there is none."""

    text: str | None = None
    error: str | None = None


class Callback(Protocol):
    """A question that the engine keeps until a reply comes from outside."""

    @property
    def callback_id(self) -> str:
        """What a reply has to name."""

    def reply(self) -> Reply | None:
        """Return the reply; None if there is none yet."""

    def wait(self) -> Reply:
        """Return the reply; if there is none yet, leave this process until there is one to any callback."""


class Operations(Protocol):
    """The operations of one execution, in the process that runs it now."""

    limit: TimeLimit
    """The time of this process."""
    owner: str
    """Distinguishes this process from every other one."""

    @property
    def count(self) -> int:
        """How many operations were made so far, on record or not."""

    @property
    def is_full(self) -> bool:
        """Whether the log should be continued elsewhere."""

    @property
    def is_overfull(self) -> bool:
        """Whether the log will soon refuse more."""

    def step(self, name: str, body: Callable[[], str], *, once: bool) -> str:
        """Return the text of a step; if it is not on record, call its body and record what that returns.

        Raises:
            InterruptedOperationError: With ``once``, it had begun when its process died.
        """

    def attempt(self, name: str, body: Callable[[], None]) -> str | None:
        """Call a body a few times until it does not raise; return the last error if it always did."""

    def start(self, name: str, given: Callable[[], dict[str, Any]]) -> str | None:
        """Start another execution of this function, which nothing waits for, with an input; return why that was impossible.

        A process that dies meanwhile leaves this to the next one. Only the first start of a name has an effect.
        """

    def wait(self, seconds: int) -> None:
        """Leave this process for some seconds."""

    def ask(self, name: str, seconds: int) -> Callback:
        """Create a callback, which is open for some seconds; 0: as long as the execution may take."""

    def check(self) -> None:
        """Raise if the engine accepts nothing more from this process."""

    def is_stop(self, error: BaseException) -> bool:
        """Return whether an error says that the execution was stopped."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How a function runs agents."""

    agents: frozenset[str]
    payload_store: RowStore
    notify: Notify | None = None
    answer_seconds: int = 0
    """How long a question stays open; 0: as long as the execution may take."""
    stop_poll_seconds: float = 3.0
    """How often a running step looks whether the execution was stopped; each look is a request to the engine."""
    exits: bool = True
    """Whether the process ends if a tool's thread outlives the run: a frozen thread would continue in a later one."""
    handover_bytes: int | None = None
    """How large the rows may be with which another log continues; None: none can."""
    hooks_key: Hashable = None
    """Finds the hooks that are called when an execution waits, fails or completes."""


class Question(TypedDict):
    """A question to a person."""

    id: str
    name: str
    reason: Any


class NoticeRecord(TypedDict):
    """An event that is to be reported, as it is recorded."""

    id: str
    event: Event
    at: float


class Message(TypedDict, total=False):
    """What a step of ours returns. With a cipher, its rows and all texts that may hold contents are encrypted."""

    piece: Piece
    """Part of the rows of a later message; it has nothing else."""
    rows: ChangeSet
    turns: list[list[Any]]
    """The steps that the next operation lets run: call, key and attempt of each. A refusal has those that never began."""
    strict: bool
    """Whether one of them must not run twice: the next operation is recorded before it begins."""
    next: str
    """The name of the next operation."""
    status: str
    """How the execution has ended, or SUSPENDED."""
    error: Any
    questions: list[Question]
    notify: bool
    """Whether the function has a hook that is called with each new question."""
    notice: NoticeRecord
    """The report of its status, if the function has a hook for it: the next operation starts what delivers it."""
    answered: list[str]
    rejected: dict[str, Any]
    """Questions whose answer cannot be used, and why; they are asked again."""
    wait: int
    """How many seconds the function waits before the next operation."""
    segment: bool
    """Whether another log continues this one."""
    refused: Any
    """Why the function cannot run the execution now; in plain text if it lacks the key."""
    execution_id: str
    """That of an execution which the function itself has recorded, if its rows are encrypted."""


def packed(message: Message) -> str:
    """Return the text that is recorded."""
    return json.dumps(message, separators=(",", ":"))


def operation_name(tickets: Iterable[StepTicket]) -> str:
    """Return what the next operation does, as the engine shows it."""
    named = [ticket.name if ticket.until else f"{ticket.kind} {ticket.name}" for ticket in tickets]
    return plain_name(", ".join(named) or "continue")


def callback_name(question: str) -> str:
    """Return the name of the callback that answers a question."""
    return plain_name(f"answer {question}")


def reason_bytes(questions: int) -> int:
    """Return how large the reason of each question may be where questions are shown to people; the rows have it in full."""
    return _REASON_BYTES // max(5, questions)


def plain_name(text: str) -> str:
    """Return a name of at most 256 characters of printable ASCII; one that had to be changed ends with a digest."""
    name = re.sub(r"[^\x20-\x7e]", "?", text)
    if name == text and len(name) <= _NAME_LENGTH:
        return name
    return f"{name[:200]} {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
