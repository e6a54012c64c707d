"""What a list shows of an execution, as the memo of its workflow: it can be read without a worker and without a history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._records.change_sets import ChangeSet, rows_of
from ..._records.executions import ExecutionRecord, TokenUsage

TAGS, TOKENS, SECONDS, CREATED_AT = "tags", "tokens", "duration_seconds", "created_at"
WAITED, ERRORS = "waited_seconds", "tool_errors"


def tags_memo(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of a memo that has the tags, if there are any."""
    return {TAGS: dict(tags)} if tags else {}


def dispatched_tags(changes: ChangeSet) -> dict[str, str]:
    """Return the tags of what is dispatched."""
    return {row["name"]: row["value"] for row in rows_of(changes, "tags")}


def dispatched_at(changes: ChangeSet) -> float:
    """Return when an execution was dispatched, as it is recorded: a run that resumes it has the same time."""
    return float(rows_of(changes, "executions")[0][CREATED_AT])


def totals_memo(record: ExecutionRecord) -> dict[str, Any]:
    """Return the part of a memo that has what an execution has used."""
    used = record.tokens
    tokens = {} if used is None else {TOKENS: [used.input, used.output, used.total]}
    time = {} if record.duration_seconds is None else {SECONDS: record.duration_seconds}
    more = {WAITED: record.waited_seconds, ERRORS: record.tool_errors}
    return {**tokens, **time, **{name: value for name, value in more.items() if value}}


def tokens_of(memo: Mapping[str, Any]) -> TokenUsage | None:
    """Return the tokens that a memo has."""
    found = memo.get(TOKENS)
    return None if found is None else TokenUsage(input=found[0], output=found[1], total=found[2])
