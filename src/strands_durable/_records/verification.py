"""What a check of a whole store has found: what is wrong, and what is lost of each execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Check = Literal["pages", "format", "checksum", "reference", "bytes", "count", "phase", "cipher"]
"""pages: SQLite's own pages and indexes. format: tables that are not those of the format. checksum: a row that is not as it was
written. reference: a row, message or step that another one refers to and that is not there. bytes: large bytes that are missing
or changed. count: a recorded number of rows that is not right. phase: a status that the rest of the record contradicts.
cipher: a cell of an encrypted store that is not what was encrypted there."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong in a store."""

    check: Check
    text: str
    table: str | None = None
    """Where, if it is about rows."""
    execution_id: str | None = None
    """Whose, if that is known."""


@dataclass(frozen=True, kw_only=True)
class DamagedExecution:
    """An execution of which something is wrong."""

    execution_id: str
    status: str
    problems: tuple[Problem, ...]
    lost: tuple[str, ...]
    """What cannot be read of it any more, in words."""
    can_resume: bool | None
    """Whether it can still be resumed; None if it has completed or was cancelled."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a check of a whole store has found."""

    store: str
    format: int
    executions: int
    rows: int
    """How many rows were compared with their checksums."""
    blobs: int
    """How many large values were compared with their digests."""
    problems: tuple[Problem, ...]
    """Everything that is wrong."""
    damaged: tuple[DamagedExecution, ...]
    """The executions that it is about."""
    is_locked: bool = False
    """Whether contents are encrypted and there was no key: they were compared with their checksums, and not decrypted."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "store": self.store,
            "format": self.format,
            "is_sound": self.is_sound,
            "is_locked": self.is_locked,
            "executions": self.executions,
            "rows": self.rows,
            "blobs": self.blobs,
            "problems": [dict(vars(problem)) for problem in self.problems],
            "damaged": [
                {
                    "execution_id": each.execution_id,
                    "status": each.status,
                    "lost": list(each.lost),
                    "can_resume": each.can_resume,
                    "problems": len(each.problems),
                }
                for each in self.damaged
            ],
        }
