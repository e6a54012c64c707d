"""What to do with a tool call when things go wrong: unknown outcomes, errors, timeouts, and effects lost with a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

InDoubt = Literal["retry", "verify", "ask", "fail"]
ModelInDoubt = Literal["retry", "ask", "fail"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DoubtfulStep:
    """The step in doubt that a ``verify`` callback has to judge."""

    execution_id: str
    key: str
    idempotency_key: str
    attempt: int
    tool: str
    tool_use_id: str
    input: dict[str, Any]
    started_at: float


@dataclass(frozen=True, kw_only=True)
class FailedAttempt:
    """An attempt of a tool call that ended in an error result, as passed to a ``retry_on`` callback."""

    tool: str
    input: dict[str, Any]
    result: dict[str, Any]
    """The tool result, with ``status`` "error"."""
    exception: Exception | None
    """The exception the tool raised; None if it returned the error result itself, as the tools of MCP servers do."""
    attempt: int


Verify = Callable[[DoubtfulStep], "Any | Awaitable[Any]"]
RetryOn = type[Exception] | tuple[type[Exception], ...] | Callable[[FailedAttempt], bool]
OnResume = Literal["reuse", "rerun"] | Callable[[dict[str, Any]], bool]


@dataclass(frozen=True, kw_only=True)
class ToolPolicy:
    """What to do with the calls of one tool when things go wrong.

    Attributes:
        in_doubt: What to do with a call that had started before a crash and has no result. ``retry`` runs it again with the
            same idempotency key, ``verify`` asks the callback, ``ask`` asks a person through an interrupt, ``fail`` returns
            an error result to the model: the outcome is unknown.
        verify: ``verify(step)`` returns the result if the call happened, or None if it did not. May be async.
        retries: How often a call is retried after an error result before the model sees the error.
        retry_on: Which error results are retried: an exception type, a tuple of them, or a function that takes a
            `FailedAttempt` and returns True to retry. None: every error result.
        backoff_seconds: How long to wait before the first retry. Other tools run meanwhile.
        backoff_factor: The factor by which the wait grows with each further retry.
        backoff_max_seconds: The longest wait between two attempts.
        timeout: Seconds after which a call is given up and in doubt. A sync tool cannot be stopped and keeps running in its
            thread: ``retry`` and ``verify`` wait for it once more for as long, and never run it concurrently with itself.
        inline: Run the tool without recording an intent; its result is still recorded.
        on_resume: What to do with finished calls when a run is resumed on an agent that has not made them itself. ``reuse``:
            nothing, their recorded results are enough. ``rerun``: run those that succeeded again, in order and before
            anything else, because their effect lives in the process; the model still sees the recorded results. A function
            of the tool's input returns True for the calls to run again. None: ``reuse``, except for the tools of
            strands-agents-tools whose effect lives in the process.
        opaque: Record a call as one step, with the agents, Graphs and Swarms that the tool calls: their model and tool calls
            are then no steps of their own, and share the tool's idempotency key. One with a `Durability` is still recorded.
    """

    in_doubt: InDoubt = "retry"
    verify: Verify | None = None
    retries: int = 0
    retry_on: RetryOn | None = None
    backoff_seconds: float = 0.0
    backoff_factor: float = 2.0
    backoff_max_seconds: float = 60.0
    timeout: float | None = None
    inline: bool = False
    on_resume: OnResume | None = None
    opaque: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        if self.in_doubt not in ("retry", "verify", "ask", "fail"):
            raise ValueError(f'in_doubt={self.in_doubt!r}: use "retry", "verify", "ask" or "fail"')
        if (self.in_doubt == "verify") != (self.verify is not None):
            raise ValueError('in_doubt="verify" and verify=callback go together: pass both or neither')
        if self.retries < 0 or (self.timeout is not None and self.timeout <= 0):
            raise ValueError(
                f"retries={self.retries}, timeout={self.timeout}: retries must be 0 or more, timeout greater than 0"
            )
        if self.backoff_seconds < 0 or self.backoff_factor < 1 or self.backoff_max_seconds < 0:
            raise ValueError("backoff_seconds and backoff_max_seconds must be 0 or more, backoff_factor 1 or more")
        if self.retries == 0 and (self.retry_on is not None or self.backoff_seconds > 0):
            raise ValueError("retry_on and backoff_seconds apply to retries: pass retries=1 or more with them")

    def _check_types(self) -> None:
        wrong = {
            "verify": self.verify is not None and not callable(self.verify),
            "retries": not isinstance(self.retries, int) or isinstance(self.retries, bool),
            "retry_on": not _is_retry_on(self.retry_on),
            "backoff_seconds": not _is_number(self.backoff_seconds),
            "backoff_factor": not _is_number(self.backoff_factor),
            "backoff_max_seconds": not _is_number(self.backoff_max_seconds),
            "timeout": self.timeout is not None and not _is_number(self.timeout),
            "inline": not isinstance(self.inline, bool),
            "opaque": not isinstance(self.opaque, bool),
            "on_resume": self.on_resume not in (None, "reuse", "rerun") and not callable(self.on_resume),
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise TypeError(f"ToolPolicy({name}={getattr(self, name)!r}): {_EXPECTED[name]}")

    def wait_before(self, retry: int) -> float:
        """Return how many seconds to wait before retry number ``retry``, counted from 1."""
        if not self.backoff_seconds:
            return 0.0
        try:
            return min(self.backoff_seconds * self.backoff_factor ** (retry - 1), self.backoff_max_seconds)
        except OverflowError:
            return self.backoff_max_seconds

    def repeats(self, failed: FailedAttempt) -> bool:
        """Return True if an error result is one to retry."""
        if self.retry_on is None:
            return True
        if isinstance(self.retry_on, (type, tuple)):
            return isinstance(failed.exception, self.retry_on)
        return bool(self.retry_on(failed))


_NUMBER = "give a number"
_EXPECTED = {
    "verify": "give a function",
    "retries": "give a whole number",
    "retry_on": "give an exception type, a tuple of them, or a function",
    "backoff_seconds": _NUMBER,
    "backoff_factor": _NUMBER,
    "backoff_max_seconds": _NUMBER,
    "timeout": _NUMBER,
    "inline": "give True or False",
    "opaque": "give True or False",
    "on_resume": 'give "reuse", "rerun" or a function of the tool\'s input',
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_retry_on(value: Any) -> bool:
    types = value if isinstance(value, tuple) else (value,)
    if any(isinstance(item, type) for item in types):
        return all(isinstance(item, type) and issubclass(item, Exception) for item in types)
    return value is None or (callable(value) and not isinstance(value, tuple))


DEFAULT = ToolPolicy()
MARK = "_strands_durable_policy"
"""The attribute of a tool, or of its function, that has the policy of its decorator."""


def policy(
    *,
    in_doubt: InDoubt = "retry",
    verify: Verify | None = None,
    retries: int = 0,
    retry_on: RetryOn | None = None,
    backoff_seconds: float = 0.0,
    backoff_factor: float = 2.0,
    backoff_max_seconds: float = 60.0,
    timeout: float | None = None,
    inline: bool = False,
    on_resume: OnResume | None = None,
    opaque: bool = False,
) -> Callable[[T], T]:
    """Set a tool's policy where it is defined: put it above ``@tool``. Takes the arguments of `ToolPolicy`."""
    chosen = ToolPolicy(
        in_doubt=in_doubt,
        verify=verify,
        retries=retries,
        retry_on=retry_on,
        backoff_seconds=backoff_seconds,
        backoff_factor=backoff_factor,
        backoff_max_seconds=backoff_max_seconds,
        timeout=timeout,
        inline=inline,
        on_resume=on_resume,
        opaque=opaque,
    )

    def mark(tool: T) -> T:
        setattr(tool, MARK, chosen)
        return tool

    return mark


def checked_policies(given: Any) -> dict[str, ToolPolicy]:
    """Return ``tool_policies`` as a dict if they are policies by tool name; raise otherwise."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"tool_policies is a {_kind(given)}: pass a dict of ToolPolicy by tool name")
    for name, found in given.items():
        if not isinstance(name, str):
            raise TypeError(f"tool_policies has a key that is a {_kind(name)}: use the names of tools as keys")
        if found is ToolPolicy:
            raise TypeError(f"tool_policies[{name!r}] is the class ToolPolicy: pass an object, ToolPolicy(...)")
        if not isinstance(found, ToolPolicy):
            raise TypeError(f"tool_policies[{name!r}] is a {_kind(found)}: pass a ToolPolicy, ToolPolicy(in_doubt=...)")
    return dict(given)


def _kind(value: Any) -> str:
    return type(value).__name__
