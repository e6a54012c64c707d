"""Every error that strands-durable raises, in one tree.

    DurableError
    ├── InputMismatchError        the recorded call had another input
    ├── CallCancelledError        its caller cancelled the recorded call (also a TimeoutError)
    ├── DriftError                the agent is not the one that was recorded
    ├── ExecutionBusyError        another owner is working on it
    ├── ExecutionFailedError      the recorded call failed
    ├── ExecutionCancelledError   somebody cancelled it
    ├── ExecutionNotFoundError    no such execution
    ├── InDoubtError              nobody can say whether a step happened
    ├── InvalidIdError            that is no execution_id (also a ValueError)
    ├── NotSerializableError      a value has no recorded form
    │   └── PayloadTooLargeError  a value is larger than the engine takes
    ├── UnreadableError           what is recorded cannot be read here
    │   └── TypeNotRegisteredError  it has a type that this process has not registered
    ├── FormatVersionError        the file is of another format
    ├── LeaseLostError            the execution has a new owner
    ├── AgentNotRegisteredError   the worker does not know the agent
    ├── UnknownToolError          a policy is for a tool that is not there (also a ValueError)
    ├── RerunError                a finished tool call could not be repeated for its effect on the process
    ├── WorkerLostError           the workers that tried it died
    ├── BackendUnavailableError   the store or engine does not answer
    └── UnsupportedFeatureError   we cannot make this durable, and say so

Facts go to ``args`` and the sentence is built in ``__str__``, so that every error survives pickling with its meaning.
"""

from __future__ import annotations

from typing import Any

RESUME_HINT = "Pass the recorded input (or none) to resume it, or use another execution_id to start a new run."


class DurableError(Exception):
    """Base of every error of this package: catch it to catch them all."""


class InputMismatchError(DurableError):
    """The call at this position was recorded with another input, so going on would mix two conversations."""

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
            f"{self.recorded}, but now got {self.given}. {hint}"
        )


class CallCancelledError(DurableError, TimeoutError):
    """The caller of a recorded call cancelled it before it ended, and called the agent with something else.

    A timeout around a call is the most frequent reason. It is a `TimeoutError` too, so that a script which handles that takes
    the same way when it is run again.
    """

    def __init__(self, execution_id: str, position: int) -> None:
        super().__init__(execution_id, position)
        self.execution_id, self.position = execution_id, position

    def __str__(self) -> str:
        return (
            f"Call {self.position} of execution {self.execution_id!r} was cancelled by its caller before it ended: a timeout, "
            f"a cancelled task or a stream that was closed. A later call is recorded, so it is not resumed any more."
        )


class DriftError(DurableError):
    """The agent that wants to go on is not the one that was recorded."""

    def __init__(self, execution_id: str, step: str, changes: list[str]) -> None:
        super().__init__(execution_id, step, changes)
        self.execution_id, self.step, self.changes = execution_id, step, changes

    def __str__(self) -> str:
        lines = "\n".join(f"  - {change}" for change in self.changes)
        return (
            f"Execution {self.execution_id!r} no longer matches its journal at {self.step}:\n{lines}\n"
            f'Resume with the agent version that started it, or pass on_drift="warn" to go on as it is, '
            f'or on_drift="rerun" to ask the model again where no tool has started. A dispatched execution can also be resumed '
            f"with this version: strands-durable resume {self.execution_id} --accept-drift."
        )


class ExecutionBusyError(DurableError):
    """The execution is not free: ``owner`` works on it, or, if that is empty, ``detail`` says what has to happen first."""

    def __init__(self, execution_id: str, owner: str, detail: str = "") -> None:
        super().__init__(execution_id, owner, detail)
        self.execution_id, self.owner, self.detail = execution_id, owner, detail

    def __str__(self) -> str:
        if not self.owner:
            return f"Execution {self.execution_id!r} {self.detail}"
        hint = "Its lease is alive. Wait for it to end, or stop that process and run this one again."
        return f"Execution {self.execution_id!r} is being worked on by {self.owner}. {self.detail or hint}"


class ExecutionFailedError(DurableError):
    """The recorded call failed; ``cause`` is what it failed with."""

    def __init__(self, execution_id: str, cause: str, hint: str = "") -> None:
        super().__init__(execution_id, cause, hint)
        self.execution_id, self.cause, self.hint = execution_id, cause, hint

    def __str__(self) -> str:
        hint = self.hint or 'Run it with on_failed="resume" to try again from the failed step.'
        return f"Execution {self.execution_id!r} has failed: {self.cause}. {hint}"


class ExecutionCancelledError(DurableError):
    """The execution was cancelled and does not go on."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} was cancelled. What it recorded is still there "
            f"(strands-durable show {self.execution_id}); use another execution_id to start anew."
        )


class ExecutionNotFoundError(DurableError):
    """There is no execution with this id."""

    def __init__(self, execution_id: str, store: str) -> None:
        super().__init__(execution_id, store)
        self.execution_id, self.store = execution_id, store

    def __str__(self) -> str:
        return f"No execution {self.execution_id!r} in {self.store}. 'strands-durable ls' lists what is there."


class InDoubtError(DurableError):
    """A step had started and has no result, and nothing can say whether it happened."""

    def __init__(self, execution_id: str, step: str, reason: str, hint: str = "") -> None:
        super().__init__(execution_id, step, reason, hint)
        self.execution_id, self.step, self.reason, self.hint = execution_id, step, reason, hint

    def __str__(self) -> str:
        hint = self.hint or "Fix the cause and run it again, or change the step's in_doubt policy."
        return (
            f"Execution {self.execution_id!r}: step {self.step} had started and has no result, and {self.reason}. "
            f"Nothing was run. {hint}"
        )


class InvalidIdError(DurableError, ValueError):
    """An execution id has characters that we do not let near a path or a query."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return (
            f"{str(self.execution_id)[:80]!r} is not an execution_id: use 1 to 200 letters, digits and . _ : @ + = - , "
            f"starting with a letter or digit."
        )


class NotSerializableError(DurableError):
    """A value has no recorded form; ``path`` says where inside the value."""

    def __init__(self, what: str, path: str, type_name: str, detail: str = "") -> None:
        super().__init__(what, path, type_name, detail)
        self.what, self.path, self.type_name, self.detail = what, path, type_name, detail

    def __str__(self) -> str:
        return (
            f"{self.what} cannot be recorded: {self.path} is a {self.type_name}{self.detail}. Use JSON data, or a type that "
            f"comes back as it was, such as bytes, tuple, set, datetime, Decimal, UUID or Path; convert anything else to "
            f"one of these, or register its class with strands_durable.register_type."
        )


class PayloadTooLargeError(NotSerializableError):
    """A value is larger than the engine takes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        DurableError.__init__(self, what, size, limit)
        self.what, self.size, self.limit = what, size, limit
        self.path, self.type_name, self.detail = "", "payload", ""

    def __str__(self) -> str:
        return (
            f"{self.what} has {self.size:,} bytes, and the engine takes {self.limit:,}. Have less returned, or name a place "
            f"for large payloads in the backend's URL: payloads=file:///shared/folder, payloads=s3://bucket/folder."
        )


class UnreadableError(DurableError):
    """Something that is recorded cannot be read by this process; everything else in the store can."""

    def __init__(self, reason: str, hint: str = "", execution_id: str | None = None) -> None:
        super().__init__(reason, hint, execution_id)
        self.reason, self.execution_id = reason, execution_id
        self.hint = hint or "Nothing was changed. Restore the file from a backup, or remove the execution."

    def of(self, execution_id: str | None) -> UnreadableError:
        """Return the error with the id of the execution it is about, if it has none yet."""
        if self.execution_id is None:
            self.execution_id = execution_id
            self.args = (*self.args[:-1], execution_id)
        return self

    def __str__(self) -> str:
        what = "A recorded value" if self.execution_id is None else f"Execution {self.execution_id!r}"
        return f"{what} cannot be read: {self.reason}. {self.hint}"


class TypeNotRegisteredError(UnreadableError):
    """A recorded value is of a type that was registered where it was recorded, and is not registered here."""

    def __init__(self, name: str, known: list[str], execution_id: str | None = None) -> None:
        DurableError.__init__(self, name, known, execution_id)
        self.name, self.known, self.execution_id = name, known, execution_id
        self.reason = f"it has a value of the type {name!r}, which is not registered in this process"
        self.hint = (
            f"Call strands_durable.register_type for the class that was recorded as {name!r} before the execution is read, "
            f"best where the class is defined (registered here: {', '.join(known) or 'none'})."
        )


class FormatVersionError(DurableError):
    """The file was not written by a format that this version reads; it was left untouched."""

    def __init__(self, store: str, found: str, expected: str) -> None:
        super().__init__(store, found, expected)
        self.store, self.found, self.expected = store, found, expected

    def __str__(self) -> str:
        return (
            f"{self.store} is {self.found}; this version reads {self.expected}. The file was left untouched. "
            f"Use the strands-durable version that wrote it, or another path."
        )


class LeaseLostError(DurableError):
    """Another owner took this execution over; this process wrote nothing more."""

    def __init__(self, execution_id: str, owner: str) -> None:
        super().__init__(execution_id, owner)
        self.execution_id, self.owner = execution_id, owner

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} was taken over by {self.owner} while this process did not renew its "
            f"lease. Nothing more was written here. Let the new owner finish."
        )


class AgentNotRegisteredError(DurableError):
    """No agent of this name is registered in this process."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        known = ", ".join(sorted(self.known)) or "none"
        return f"No agent {self.name!r} is registered here (known: {known}). Start the worker with the file that defines it."


class UnknownToolError(DurableError, ValueError):
    """``tool_policies`` names a tool that is not there, so that the policy would never be followed."""

    def __init__(self, subject: str, name: str, close: str | None, known: list[str]) -> None:
        super().__init__(subject, name, close, known)
        self.subject, self.name, self.close, self.known = subject, name, close, known

    def __str__(self) -> str:
        meant = "" if self.close is None else f", did you mean {self.close!r}?"
        return (
            f"tool_policies names {self.name!r}, and {self.subject} has no such tool{meant or '.'} "
            f"Its tools, with those of the agents inside it: {', '.join(self.known) or 'none'}. Nothing was run. Correct the "
            f"name; a tool that is added later, or belongs to an agent that a tool builds, takes @policy(...) where it is "
            f"defined, or a Durability(tool_policies=...) on that agent."
        )


class RerunError(DurableError):
    """A finished tool call whose effect lives in the process could not be repeated in the process that resumes."""

    def __init__(self, execution_id: str, tool: str, step: str, reason: str) -> None:
        super().__init__(execution_id, tool, step, reason)
        self.execution_id, self.tool, self.step, self.reason = execution_id, tool, step, reason

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r}: tool {self.tool!r} had succeeded in step {self.step}. Its effect lives in the "
            f"process, so it is run again before the run is resumed, and now {self.reason}. Nothing else was run. Fix the "
            f'cause and run it again, or pass tool_policies={{{self.tool!r}: ToolPolicy(on_resume="reuse")}} to resume '
            f"without that effect."
        )


class WorkerLostError(DurableError):
    """An execution was tried alone several times, and each time its worker died without a word."""

    def __init__(self, execution_id: str, deaths: int, owner: str) -> None:
        super().__init__(execution_id, deaths, owner)
        self.execution_id, self.deaths, self.owner = execution_id, deaths, owner

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} was tried alone {self.deaths} times, and each time its worker died before a "
            f"step ended, the last time {self.owner}. 'strands-durable show {self.execution_id}' tells which step was under "
            f"way. Mend it (memory, a crash in native code, a kill) and resume the execution."
        )


class BackendUnavailableError(DurableError):
    """The store or engine does not answer; what was recorded is kept, and a later run goes on."""

    def __init__(self, backend: str, reason: str, hint: str = "") -> None:
        super().__init__(backend, reason, hint)
        self.backend, self.reason, self.hint = backend, reason, hint

    def __str__(self) -> str:
        hint = self.hint or "What was recorded is safe; fix the store and run it again to resume."
        return f"{self.backend} is not usable: {self.reason}. {hint}"


class UnsupportedFeatureError(DurableError):
    """This cannot be made durable, and half durable would be worse."""

    def __init__(self, feature: str, reason: str, instead: Any = "") -> None:
        super().__init__(feature, reason, instead)
        self.feature, self.reason, self.instead = feature, reason, instead

    def __str__(self) -> str:
        return f"{self.feature} is not supported: {self.reason}. {self.instead}".strip()
