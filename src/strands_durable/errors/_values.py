"""Errors of values: what cannot be recorded, read back, or used as an id or a tag."""

from __future__ import annotations

from ._base import DurableError


class InvalidIdError(DurableError, ValueError):
    """An execution_id has the wrong length, or characters that are not safe in a path or a query."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return (
            f"{str(self.execution_id)[:80]!r} is not a valid execution_id: use 1 to 200 characters, letters, digits and any of "
            f". _ : @ + = -, starting with a letter or digit."
        )


class InvalidTagError(DurableError, ValueError):
    """A tag has a name or a value that cannot be recorded, or there are too many."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{str(self.name)[:80]!r} is not a valid tag: {self.reason}."


class NotSerializableError(DurableError):
    """A value cannot be recorded; ``path`` is where inside it the problem is."""

    def __init__(self, what: str, path: str, type_name: str, detail: str = "") -> None:
        super().__init__(what, path, type_name, detail)
        self.what, self.path, self.type_name, self.detail = what, path, type_name, detail

    def __str__(self) -> str:
        return (
            f"{self.what} cannot be recorded: {self.path} is a {self.type_name}{self.detail}. Use JSON data, or one of the "
            f"types that are restored unchanged, such as bytes, tuple, set, datetime, Decimal, UUID or Path. Convert other "
            f"values to one of these, or register their class with strands_durable.register_type."
        )


class PayloadTooLargeError(NotSerializableError):
    """A value exceeds the size limit of the engine."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        DurableError.__init__(self, what, size, limit)
        self.what, self.size, self.limit = what, size, limit
        self.path, self.type_name, self.detail = "", "payload", ""

    def __str__(self) -> str:
        return (
            f"{self.what} has {self.size:,} bytes; the engine accepts at most {self.limit:,}. Reduce its size, or offload "
            f"large payloads: add payloads=file:///shared/folder or payloads=s3://bucket/folder to the backend URL."
        )


class UnreadableError(DurableError):
    """A recorded value cannot be read by this process; the rest of the store can."""

    def __init__(self, reason: str, hint: str = "", execution_id: str | None = None) -> None:
        super().__init__(reason, hint, execution_id)
        self.reason, self.execution_id = reason, execution_id
        self.hint = hint or (
            "Nothing was changed. Restore the store from a backup, or remove the execution with 'strands-durable rm'."
        )

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
    """A recorded value has a type that was registered in the process that recorded it, but not in this one."""

    def __init__(self, name: str, known: list[str], execution_id: str | None = None) -> None:
        DurableError.__init__(self, name, known, execution_id)
        self.name, self.known, self.execution_id = name, known, execution_id
        self.reason = f"it has a value of type {name!r}, which is not registered in this process"
        self.hint = (
            f"Register the class that was recorded as {name!r} with strands_durable.register_type before the execution is "
            f"read, preferably where the class is defined (registered now: {', '.join(known) or 'none'})."
        )
