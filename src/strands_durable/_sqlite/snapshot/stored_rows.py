"""The rows of one execution as they stand in a store, as JSON data, each compared with its checksum."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..._records.change_sets import Row
from ..._records.executions import ExecutionStatus
from .. import checksums
from ..connection import Connection
from ..tables import tables

S = ExecutionStatus
_STAYS = {"sum", "kept", "version", "lease_seconds"}
"""Columns that only a file has."""
_FREE = {"fence": 0, "beat": 0, "lease_until": 0.0}
_LEASE = {*_FREE, "owner", "listened_until", "cancel_asked_at"}
"""Columns of a lease, and what stands in them: a snapshot has no owner."""
_OPEN = (S.PENDING.value, S.RUNNING.value, S.SUSPENDED.value)
_OF_CALLS = ("failures", "answers", "replies", "steps", "heads", "state")


def current_root(calls: list[Row]) -> Row:
    """Return the root call by which an execution stands: the last one that has not ended, or the last one."""
    roots = sorted((row for row in calls if row["parent"] == 0), key=lambda row: int(row["position"]))
    return next((row for row in reversed(roots) if row["status"] in _OPEN), roots[-1])


class StoredRows:
    """The rows of an execution, as they stand in the store."""

    def __init__(self, connection: Connection, execution: int, run: int, *, with_past: bool, keeps_past: bool) -> None:
        self._connection, self.execution, self.run = connection, execution, run
        self.with_past, self.keeps_past = with_past, keeps_past

    def as_they_are(self) -> dict[str, list[Row]]:
        """Return all rows of all runs."""
        calls = self.calls()
        for run in {self.run, *(row["run"] for row in calls)}:
            checksums.refuse_incomplete_run(self._connection, self.execution, run)
        found = self._of_execution(calls)
        for table in _OF_CALLS:
            found[table] = self.unversioned(self.of_calls(table, calls))
        found["messages"] = self.messages({row["lineage"] for row in calls})
        if self.with_past:
            found.update({table: self.of_calls(table, calls) for table in ("past_heads", "past_state")})
        return found | {"configs": self.configs(calls, found["steps"])}

    def of_moment(self, calls: list[Row], kept: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Return the rows of the execution itself, with those that were chosen."""
        found = self._of_execution(calls) | kept | {"configs": self.configs(calls, kept["steps"])}
        (execution,) = found["executions"]
        last = current_root(calls)
        is_answered = last["status"] == S.SUSPENDED.value and kept["replies"] and found["dispatches"]
        found["executions"] = [{**execution, "status": S.PENDING.value if is_answered else last["status"]}]
        return found

    def _of_execution(self, calls: list[Row]) -> dict[str, list[Row]]:
        (execution,) = self.read("executions", "id = ?", self.execution)
        return {
            "executions": [{**{name: cell for name, cell in execution.items() if name not in _LEASE}, **_FREE}],
            "dispatches": self.read("dispatches", "execution = ?", self.execution),
            "tags": self.read("tags", "execution = ?", self.execution),
            "calls": calls,
        }

    def calls(self, run: int | None = None) -> list[Row]:
        """Return the calls of all runs, or of one, in the order in which they began."""
        if run is None:
            return self.read("calls", "execution = ? ORDER BY id", self.execution)
        return self.read("calls", "execution = ? AND run = ? ORDER BY id", self.execution, run)

    def of_calls(self, table: str, calls: list[Row]) -> list[Row]:
        """Return the rows that calls have in a table."""
        order = {"steps": "id", "failures": "rowid"}.get(table, "call")
        where = f"call IN (SELECT value FROM json_each(?)) ORDER BY {order}"
        return self.read(table, where, json.dumps([row["id"] for row in calls]))

    def unversioned(self, rows: list[Row]) -> list[Row]:
        """Return rows without their versions, unless what was before them is wanted too."""
        return rows if self.with_past else [{name: row[name] for name in row if name != "version"} for row in rows]

    def messages(self, lineages: Iterable[int]) -> list[Row]:
        """Return the messages of some logs."""
        where = "lineage IN (SELECT value FROM json_each(?)) ORDER BY lineage, seq"
        return self.read("messages", where, json.dumps(sorted(lineages)))

    def configs(self, *referring: list[Row]) -> list[Row]:
        """Return what the agents of calls and steps were made of."""
        ids = {row["config"] for rows in referring for row in rows if row.get("config")}
        return self.read("configs", "id IN (SELECT value FROM json_each(?)) ORDER BY id", json.dumps(sorted(ids)))

    def numbers_before(self) -> int:
        """Return how many steps had ended when the current run began."""
        query = "SELECT max(number) FROM steps WHERE call IN (SELECT id FROM calls WHERE execution = ? AND run < ?)"
        return int(self._connection.execute(query, (self.execution, self.run)).fetchone()[0] or 0)

    def refuse_incomplete(self) -> None:
        """Raise if a row of the current run cannot be found any more."""
        checksums.refuse_incomplete_run(self._connection, self.execution, self.run)

    def read(self, table: str, where: str, *values: Any) -> list[Row]:
        """Return rows as JSON data, without the columns that have their default."""
        found, versions = tables()[table], table in ("heads", "state") and self.keeps_past
        names = [name for name in found.columns if name not in _STAYS]
        names += ["rowid"] if found.key == ("rowid",) else ["version"] if versions else []
        rows = self._connection.rows(table, ", ".join(names), where, *values)
        return [
            {
                name: cell
                for name, cell in zip(names, row, strict=True)
                if name == "version" or cell != found.defaults.get(name)  # one that is missing is not known, and not 0
            }
            for row in rows
        ]
