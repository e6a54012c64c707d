"""Errors of what people do with recorded executions: fork, export, import, remove."""

from __future__ import annotations

from datetime import UTC, datetime

from ._base import DurableError


class ExecutionExistsError(DurableError):
    """A fork or an import was asked to create an execution under an id that another one has."""

    def __init__(self, execution_id: str, where: str) -> None:
        super().__init__(execution_id, where)
        self.execution_id, self.where = execution_id, where

    def __str__(self) -> str:
        return (
            f"There is already an execution {self.execution_id!r} in {self.where}. Nothing was written. Choose another "
            f"execution_id, or remove that one first."
        )


class ForkError(DurableError):
    """The execution cannot be forked at this step, or with these changes. Nothing was written."""

    def __init__(self, execution_id: str, reason: str, hint: str = "") -> None:
        super().__init__(execution_id, reason, hint)
        self.execution_id, self.reason, self.hint = execution_id, reason, hint

    def __str__(self) -> str:
        text = f"Execution {self.execution_id!r} was not forked: {self.reason}."
        return f"{text} {self.hint}" if self.hint else text


class ExecutionHeldError(DurableError):
    """The execution is held: neither retention nor a command removes it."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return (
            f"Execution {self.execution_id!r} is held and was not removed. To remove it, run 'strands-durable release "
            f"{self.execution_id}' first."
        )


class ContentsRemovedError(DurableError):
    """The contents of the execution were removed by retention; ``at`` says when, in seconds since the epoch.

    Its id, status, times and tags are still known. It has ended and is not run again: to ask for it once more is not to do it
    once more.
    """

    def __init__(self, execution_id: str, at: float) -> None:
        super().__init__(execution_id, at)
        self.execution_id, self.at = execution_id, at

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")
        return (
            f"Execution {self.execution_id!r} has ended, and its contents were removed by retention at {when}: its input, "
            f"result, messages and state are gone, and it cannot be resumed. It was not run again. 'strands-durable show "
            f"{self.execution_id}' shows what is still known. To start a new run, use another execution_id."
        )


class InvalidExportError(DurableError, ValueError):
    """A file is not the export of an execution, or it is damaged; nothing was written."""

    def __init__(self, name: str, reason: str, hint: str = "") -> None:
        super().__init__(name, reason, hint)
        self.name, self.reason, self.hint = name, reason, hint

    def __str__(self) -> str:
        hint = self.hint or "Export the execution again: 'strands-durable export ID --to FILE'."
        return f"{self.name} cannot be used as an export: {self.reason}. Nothing was written. {hint}"
