"""Large bytes in what is shown of an execution: stored apart, and shown by their size. Knows no store."""

from __future__ import annotations


class StoredBytes(str):
    """``<200000 bytes>`` in the place of bytes that are stored apart; `ExecutionHandle.recorded_bytes` reads them."""

    digest: str
    """Their SHA-256, in hexadecimal digits."""

    @classmethod
    def of(cls, size: int, digest: str) -> StoredBytes:
        """Return what is shown of so many bytes."""
        found = cls(f"<{size} bytes>")
        found.digest = digest
        return found
