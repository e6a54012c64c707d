"""Errors of the place where executions are recorded."""

from __future__ import annotations

from ._base import DurableError


class FormatVersionError(DurableError):
    """The store has a format that this version does not read; the file was not changed."""

    def __init__(self, store: str, found: str, expected: str) -> None:
        super().__init__(store, found, expected)
        self.store, self.found, self.expected = store, found, expected

    def __str__(self) -> str:
        return (
            f"{self.store} is {self.found}; this version of strands-durable reads {self.expected}. The file was not changed. "
            f"Use the version that wrote it, or another path."
        )


class BackendUnavailableError(DurableError):
    """The store or engine cannot be used; what was recorded is kept, and a later run resumes it."""

    def __init__(self, backend: str, reason: str, hint: str = "") -> None:
        super().__init__(backend, reason, hint)
        self.backend, self.reason, self.hint = backend, reason, hint

    def __str__(self) -> str:
        hint = self.hint or "What was recorded is kept. Fix the cause, then run it again to resume."
        return f"{self.backend} cannot be used: {self.reason}. {hint}"


class CipherError(BackendUnavailableError):
    """What is stored cannot be decrypted, or must not be written in plain text. ``key_id`` names the key."""

    def __init__(self, backend: str, reason: str, hint: str = "", key_id: str | None = None) -> None:
        super().__init__(backend, reason, hint)
        self.args = (backend, reason, hint, key_id)
        self.key_id = key_id


class BackupError(DurableError):
    """The copy of a store could not be made; the store is unchanged, and there is no incomplete copy."""

    def __init__(self, target: str, reason: str, hint: str = "") -> None:
        super().__init__(target, reason, hint)
        self.target, self.reason, self.hint = target, reason, hint

    def __str__(self) -> str:
        return f"A backup to {self.target} was not made: {self.reason}. {self.hint}".strip()
