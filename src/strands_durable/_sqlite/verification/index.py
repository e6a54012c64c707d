"""Which execution a row belongs to, and what is known of executions and calls while a store is checked."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ..blobs import REFERENCE_MARK, digests_in


@dataclass(kw_only=True)
class Known:
    """One execution or call, as far as it can be read."""

    execution: int
    status: Any
    cells: dict[str, Any]


@dataclass
class Index:
    """Executions and calls of a store by their numbers, and who refers to which steps and bytes."""

    executions: dict[int, Known] = field(default_factory=dict)
    calls: dict[int, Known] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    """Executions whose removal, or that of their contents, was begun: the next pass deletes what is left."""
    uses: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How often rows refer to large bytes."""
    users: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The executions that do."""
    cited: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By log: the steps that its messages refer to."""
    steps: set[int] = field(default_factory=set)
    heads: dict[int, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    """By call: what its head says of its phase and its messages."""
    configs: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    """What agents were made of: the digest, and the text."""
    is_locked: bool = False
    """Whether contents are encrypted and cannot be decrypted: what they say is not known."""

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> Index:
        """Read what rows belong to; a row that cannot be read is left out."""
        found = cls()
        for row in _rows(connection, "executions", ("id", "execution_id", "status", "run")):
            found.executions[row["id"]] = Known(execution=row["id"], status=row["status"], cells=row)
        names = ("id", "execution", "run", "parent", "position", "lineage", "state_of", "status", "base", "config")
        for row in _rows(connection, "calls", names):
            found.calls[row["id"]] = Known(execution=row["execution"], status=row["status"], cells=row)
        found.removed = {row["execution"] for row in _rows(connection, "removals", ("execution",))}
        emptied = _rows(connection, "emptied", ("execution", "is_done"))  # not there in an earlier format
        found.removed |= {row["execution"] for row in emptied if not row["is_done"]}
        return found

    def execution_of(self, table: str, cells: dict[str, Any]) -> int | None:
        """Return the number of the execution that a row belongs to; None if that is not known."""
        if table == "executions":
            return _number(cells["id"])
        if "execution" in cells:
            return _number(cells["execution"])
        known = self.calls.get(cells.get("call", cells.get("lineage", -1)))
        return None if known is None else _number(known.execution)

    def id_of(self, execution: int | None) -> str | None:
        """Return the id of an execution by its number."""
        known = None if execution is None else self.executions.get(execution)
        return None if known is None else _words(known.cells["execution_id"])

    def note(self, table: str, cells: dict[str, Any]) -> None:
        """Remember what a row refers to."""
        if table == "steps":
            self.steps.add(cells["id"])
        execution = self.execution_of(table, cells)
        for text in cells.values():
            if type(text) is str and REFERENCE_MARK in text:
                for digest in digests_in(text):
                    self.uses[digest] += 1
                    if execution is not None:
                        self.users[digest].add(execution)
        if table == "messages" and type(cells["data"]) is str:
            self.cited[cells["lineage"]].update(_steps_in(cells["data"]))
        if table == "heads" and cells["part"] in ("progress", "closing"):
            self.heads[cells["call"]][cells["part"]] = cells["data"]
        if table == "configs":
            self.configs[cells["id"]] = (cells["digest"], cells["data"])


def _rows(connection: sqlite3.Connection, table: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    try:
        for row in connection.execute(f"SELECT {', '.join(names)} FROM {table} NOT INDEXED"):
            rows.append(dict(zip(names, row, strict=True)))
    except sqlite3.Error:
        pass  # the check of the rows says so
    return rows


def _steps_in(data: str) -> set[int]:
    """Return the steps that a message refers to; of one that is damaged, none."""
    try:
        form = json.loads(data)
        found = [form["step"]] if "step" in form else [*form.get("blocks", ())]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return set()
    return {each for each in found if isinstance(each, int)}


def _number(found: Any) -> int | None:
    return found if isinstance(found, int) else None


def _words(found: Any) -> str:
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
