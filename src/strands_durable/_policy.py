"""What to do with a tool whose outcome is unknown, and how often to try one that failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

InDoubt = Literal["retry", "verify", "ask", "fail"]
ModelInDoubt = Literal["retry", "ask", "fail"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DoubtfulStep:
    """What a ``verify`` callback is told about the step it has to judge."""

    execution_id: str
    key: str
    idempotency_key: str
    attempt: int
    tool: str
    tool_use_id: str
    input: dict[str, Any]
    started_at: float


Verify = Callable[[DoubtfulStep], "Any | Awaitable[Any]"]


@dataclass(frozen=True, kw_only=True)
class ToolPolicy:
    """How one tool is treated when things go wrong.

    Attributes:
        in_doubt: What to do with a call that had started before a crash and has no result. ``retry`` runs it again with the
            same idempotency key, ``verify`` asks the callback, ``ask`` asks a person through an interrupt, ``fail`` tells
            the model that the outcome is unknown.
        verify: ``verify(step)`` returns the result if the call happened, or None if it did not. May be async.
        retries: How often an error result is tried again before the model sees it.
        timeout: Seconds after which a call is given up and in doubt. A sync tool runs on in its thread, and cannot be stopped:
            ``retry`` and ``verify`` wait for it once more for as long, and never run it beside itself.
        inline: Run the tool without recording an intent; its result is recorded all the same.
    """

    in_doubt: InDoubt = "retry"
    verify: Verify | None = None
    retries: int = 0
    timeout: float | None = None
    inline: bool = False

    def __post_init__(self) -> None:
        if self.in_doubt not in ("retry", "verify", "ask", "fail"):
            raise ValueError(f'in_doubt={self.in_doubt!r}: use "retry", "verify", "ask" or "fail"')
        if (self.in_doubt == "verify") != (self.verify is not None):
            raise ValueError('in_doubt="verify" and verify=callback go together: give both or none')
        if self.retries < 0 or (self.timeout is not None and self.timeout <= 0):
            raise ValueError(
                f"retries={self.retries}, timeout={self.timeout}: neither may be negative, nor timeout zero"
            )


_DEFAULT = ToolPolicy()


def policy(
    *,
    in_doubt: InDoubt = "retry",
    verify: Verify | None = None,
    retries: int = 0,
    timeout: float | None = None,
    inline: bool = False,
) -> Callable[[T], T]:
    """Give a tool its policy where it is defined: put it above ``@tool``."""
    chosen = ToolPolicy(in_doubt=in_doubt, verify=verify, retries=retries, timeout=timeout, inline=inline)

    def mark(tool: T) -> T:
        tool._strands_durable_policy = chosen  # type: ignore[attr-defined]
        return tool

    return mark


def policy_of(tool: Any, name: str, given: dict[str, ToolPolicy]) -> ToolPolicy:
    """Return the policy of a tool: by name from ``tool_policies`` first, then from its decorator."""
    if name in given:
        return given[name]
    marked = getattr(tool, "_strands_durable_policy", None) or getattr(
        getattr(tool, "_tool_func", None), "_strands_durable_policy", None
    )
    return marked if isinstance(marked, ToolPolicy) else _DEFAULT
