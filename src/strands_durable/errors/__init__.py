"""Every error that strands-durable raises, in one tree.

    DurableError
    ├── InputMismatchError        the call was recorded with a different input
    ├── CallCancelledError        the caller of the recorded call cancelled it (also a TimeoutError)
    ├── DriftError                the agent differs from the one that was recorded
    ├── ExecutionBusyError        the execution is running, or cannot be run or removed right now
    ├── ExecutionFailedError      the recorded call failed
    ├── ExecutionCancelledError   the execution was cancelled
    ├── ExecutionNotFoundError    no execution has this id
    ├── ExecutionExistsError      an execution with this id is already there
    ├── ForkError                 the execution cannot be forked there, or so
    ├── ExecutionHeldError        the execution is held, and is not removed
    ├── ContentsRemovedError      what the execution recorded was removed, its status stays
    ├── BytesNotFoundError        the execution refers to no such bytes (also a KeyError)
    ├── InvalidExportError        a file is not the export of an execution, or damaged (also a ValueError)
    ├── InDoubtError              a step started and has no recorded result
    ├── InvalidIdError            the execution_id is not valid (also a ValueError)
    ├── InvalidTagError           a tag is not valid (also a ValueError)
    ├── NotSerializableError      a value cannot be recorded
    │   └── PayloadTooLargeError  a value exceeds the size limit of the engine
    ├── UnreadableError           a recorded value cannot be read by this process
    │   └── TypeNotRegisteredError  its type is not registered in this process
    ├── FormatVersionError        the store has a format that this version does not read
    ├── LeaseLostError            another process took over the execution
    ├── AgentNotRegisteredError   no agent of this name is registered in this process
    ├── UnknownToolError          tool_policies names a tool that the agent does not have (also a ValueError)
    ├── RerunError                a finished tool call could not be repeated for its effect on the process
    ├── WorkerLostError           every worker that ran the execution died
    ├── StepTooLongError          a step ran longer than the engine's processes may
    ├── BackendUnavailableError   the store or engine cannot be used
    │   └── CipherError           what is stored is encrypted, and the key is missing, wrong, or what it encrypted was changed
    ├── BackupError               the copy of a store could not be made
    └── UnsupportedFeatureError   this cannot be made durable

Facts go to ``args`` and the sentence is built in ``__str__``, so that every error survives pickling with its meaning.
"""

from __future__ import annotations

from typing import Any

from ._base import DurableError
from ._operating import (
    ContentsRemovedError,
    ExecutionExistsError,
    ExecutionHeldError,
    ForkError,
    InvalidExportError,
)
from ._stores import BackendUnavailableError, BackupError, CipherError, FormatVersionError
from ._values import (
    InvalidIdError,
    InvalidTagError,
    NotSerializableError,
    PayloadTooLargeError,
    TypeNotRegisteredError,
    UnreadableError,
)

RESUME_HINT = "To resume it, pass the recorded input or none; to start a new run, use another execution_id."

__all__ = [
    "AgentNotRegisteredError",
    "BackendUnavailableError",
    "BackupError",
    "BytesNotFoundError",
    "CallCancelledError",
    "CipherError",
    "ContentsRemovedError",
    "DriftError",
    "DurableError",
    "ExecutionBusyError",
    "ExecutionCancelledError",
    "ExecutionExistsError",
    "ExecutionFailedError",
    "ExecutionHeldError",
    "ExecutionNotFoundError",
    "ForkError",
    "FormatVersionError",
    "InDoubtError",
    "InputMismatchError",
    "InvalidExportError",
    "InvalidIdError",
    "InvalidTagError",
    "LeaseLostError",
    "NotSerializableError",
    "PayloadTooLargeError",
    "RerunError",
    "StepTooLongError",
    "TypeNotRegisteredError",
    "UnknownToolError",
    "UnreadableError",
    "UnsupportedFeatureError",
    "WorkerLostError",
]

for _error in list(vars().values()):
    if isinstance(_error, type) and _error.__module__.startswith(f"{__name__}."):
        _error.__module__ = __name__  # where it is recorded, pickled and printed


class InputMismatchError(DurableError):
    """The call at this position was recorded with a different input; resuming it would mix two conversations."""

    def __init__(
        self, execution_id: str, position: int, status: str, recorded: str, given: str, hint: str = ""
    ) -> None:
        super().__init__(execution_id, position, status, recorded, given, hint)
        self.execution_id, self.position, self.status = execution_id, position, status
        self.recorded, self.given, self.hint = recorded, given, hint

    def __str__(self) -> str:
        hint = self.hint or RESUME_HINT
        return (
            f"Execution {self.execution_id!r}: call {self.position} is {self.status} and was recorded with "
            f"{self.recorded}, but got {self.given}. {hint}"
        )


class CallCancelledError(DurableError, TimeoutError):
    """The caller cancelled this call before it ended, and a later call is recorded.

    The usual cause is a timeout around the call. This error is also a `TimeoutError`, so a script that handles timeouts takes
    the same branch when it runs again.
    """

    def __init__(self, execution_id: str, position: int) -> None:
        super().__init__(execution_id, position)
        self.execution_id, self.position = execution_id, position

    def __str__(self) -> str:
        return (
            f"Call {self.position} of execution {self.execution_id!r} was cancelled by its caller before it ended (a timeout, "
            f"a cancelled task or a closed stream), and a later call is recorded, so it can no longer be resumed. Handle this "
            f"error as a TimeoutError, or use another execution_id to start a new run."
        )


class DriftError(DurableError):
    """The agent differs from the one that was recorded, so the execution was not resumed."""

    def __init__(self, execution_id: str, step: str, changes: list[str]) -> None:
        super().__init__(execution_id, step, changes)
        self.execution_id, self.step, self.changes = execution_id, step, changes

    def __str__(self) -> str:
        lines = "\n".join(f"  - {change}" for change in self.changes)
        return (
            f"Execution {self.execution_id!r} no longer matches its journal at {self.step}:\n{lines}\n"
            f'Resume it with the agent version that started it. To resume it with this version, pass on_drift="warn" (log the '
            f'changes and continue) or on_drift="rerun" (call the model again where no tool has started); for a dispatched '
            f"execution, run 'strands-durable resume {self.execution_id} --accept-drift'."
        )


class ExecutionBusyError(DurableError):
    """The execution is running, or cannot be run or removed right now.

    ``owner`` is the process that runs it, and ``detail`` says what to do instead of waiting for that process or stopping it. If
    ``owner`` is empty, no process runs it, and ``detail`` completes the sentence "Execution 'trip' ...".
    """

    def __init__(self, execution_id: str, owner: str, detail: str = "") -> None:
        super().__init__(execution_id, owner, detail)
        self.execution_id, self.owner, self.detail = execution_id, owner, detail

    def __str__(self) -> str:
        if self.detail and not self.owner:
            return f"Execution {self.execution_id!r} {self.detail}"
        hint = self.detail or "Wait for it to end, or stop that process and run this one again."
        return f"Execution {self.execution_id!r} is running in {self.owner or 'another process'}. {hint}"


class ExecutionFailedError(DurableError):
    """The recorded call failed; ``cause`` is the error it failed with."""

    def __init__(self, execution_id: str, cause: str, hint: str = "") -> None:
        super().__init__(execution_id, cause, hint)
        self.execution_id, self.cause, self.hint = execution_id, cause, hint

    def __str__(self) -> str:
        hint = self.hint or 'To retry it from the failed step, run it again with on_failed="resume".'
        return f"Execution {self.execution_id!r} failed: {self.cause.removesuffix('.')}. {hint}"


class ExecutionCancelledError(DurableError):
    """The execution was cancelled and cannot be resumed."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} was cancelled and cannot be resumed. 'strands-durable show {self.execution_id}' "
            f"shows what it recorded. To start a new run, use another execution_id."
        )


class ExecutionNotFoundError(DurableError):
    """No execution in the store has this id."""

    def __init__(self, execution_id: str, store: str) -> None:
        super().__init__(execution_id, store)
        self.execution_id, self.store = execution_id, store

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} was not found in {self.store}. 'strands-durable ls' lists all executions."
        )


class BytesNotFoundError(DurableError, KeyError):
    """The execution refers to no bytes with this digest."""

    def __init__(self, execution_id: str, digest: str) -> None:
        super().__init__(execution_id, digest)
        self.execution_id, self.digest = execution_id, digest

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} refers to no bytes with the digest {self.digest!r}. Pass a digest from its "
            "detail; what was redacted is no longer recorded."
        )


class InDoubtError(DurableError):
    """A step started and has no recorded result, so it is not known whether it took effect."""

    def __init__(self, execution_id: str, step: str, reason: str, hint: str = "") -> None:
        super().__init__(execution_id, step, reason, hint)
        self.execution_id, self.step, self.reason, self.hint = execution_id, step, reason, hint

    def __str__(self) -> str:
        hint = self.hint or "Fix the cause and run it again, or change the step's in_doubt policy."
        what = f"Execution {self.execution_id!r}: step {self.step} started but has no recorded result"
        return f"{what}, and {self.reason}. Nothing was run. {hint}"


class LeaseLostError(DurableError):
    """Another process took over this execution; this process records nothing more."""

    def __init__(self, execution_id: str, owner: str) -> None:
        super().__init__(execution_id, owner)
        self.execution_id, self.owner = execution_id, owner

    def __str__(self) -> str:
        why = "because this process did not renew its lease in time. This process recorded nothing more"
        return f"Execution {self.execution_id!r} was taken over by {self.owner} {why}. Let the new owner finish."


class AgentNotRegisteredError(DurableError):
    """No agent of this name is registered in this process."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        known = ", ".join(sorted(self.known)) or "none"
        hint = "Start the worker with the file that defines it: 'strands-durable worker FILE'."
        return f"Agent {self.name!r} is not registered in this process (registered: {known}). {hint}"


class UnknownToolError(DurableError, ValueError):
    """``tool_policies`` names a tool that the agent does not have, so the policy would never apply."""

    def __init__(self, subject: str, name: str, close: str | None, known: list[str]) -> None:
        super().__init__(subject, name, close, known)
        self.subject, self.name, self.close, self.known = subject, name, close, known

    def __str__(self) -> str:
        meant = "" if self.close is None else f" Did you mean {self.close!r}?"
        return (
            f"tool_policies names {self.name!r}, but {self.subject} has no such tool.{meant} "
            f"Its tools, including those of nested agents: {', '.join(self.known) or 'none'}. Nothing was run. Fix the name. "
            f"If the tool is added later, or belongs to an agent that a tool builds, put @policy(...) on the tool or pass "
            f"Durability(tool_policies=...) to that agent."
        )


class RerunError(DurableError):
    """A finished tool call has an effect that only its process had, and repeating it in this process did not work."""

    def __init__(self, execution_id: str, tool: str, step: str, reason: str) -> None:
        super().__init__(execution_id, tool, step, reason)
        self.execution_id, self.tool, self.step, self.reason = execution_id, tool, step, reason

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r}: tool {self.tool!r} succeeded in step {self.step}, but its effect was lost with "
            f"its process, so the tool runs again before the execution resumes. This time {self.reason}. Nothing else was run. "
            f"Fix the cause and run it again, or resume without that effect: "
            f'tool_policies={{{self.tool!r}: ToolPolicy(on_resume="reuse")}}.'
        )


class WorkerLostError(DurableError):
    """The execution ran alone in a worker several times, and each time the worker died."""

    def __init__(self, execution_id: str, deaths: int, owner: str) -> None:
        super().__init__(execution_id, deaths, owner)
        self.execution_id, self.deaths, self.owner = execution_id, deaths, owner

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} ran alone in a worker {self.deaths} times, and each time the worker died before "
            f"a step ended; the last one was {self.owner}. 'strands-durable show {self.execution_id}' shows which step was "
            f"running. Fix the cause (out of memory, native crash, SIGKILL), then run "
            f"'strands-durable resume {self.execution_id}'."
        )


class StepTooLongError(DurableError):
    """A step ran longer than the processes of its engine may live."""

    def __init__(self, execution_id: str, step: str, seconds: int) -> None:
        super().__init__(execution_id, step, seconds)
        self.execution_id, self.step, self.seconds = execution_id, step, seconds

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r}: {self.step!r} was still running when the function's timeout of {self.seconds} s "
            f"was almost over. Raise the timeout (at most 900 s), give the tool a shorter one with tool_policies, or split it "
            f"into steps; then run 'strands-durable resume {self.execution_id}'."
        )


class UnsupportedFeatureError(DurableError):
    """This cannot be made durable; running it partly durable would be worse than refusing it."""

    def __init__(self, feature: str, reason: str, instead: Any = "") -> None:
        super().__init__(feature, reason, instead)
        self.feature, self.reason, self.instead = feature, reason, instead

    def __str__(self) -> str:
        return f"{self.feature} is not supported: {self.reason}. {self.instead}".strip()
