"""What ``--json`` prints, in the shapes that the help of each command describes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from .._records.executions import ExecutionRecord
from .._records.origins import ImportOrigin, Origin
from .._records.printable import masked, masked_text
from .._records.questions import answers_to
from .._records.results import OpenInterrupt
from .._records.views import CallSummary, ExecutionDetail, Question, StepSummary


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value))


def execution_json(record: ExecutionRecord) -> dict[str, Any]:
    """Return an execution as ``ls --json`` prints it. Texts that may quote an error are masked; names and tags are not."""
    return {
        "execution_id": record.execution_id,
        "kind": record.kind,
        "agent": record.agent,
        "status": record.status.value,
        "is_cancelling": record.is_cancelling,
        "note": None if record.note is None else masked_text(record.note),
        "unreadable": None if record.unreadable is None else masked_text(record.unreadable),
        "run": record.run,
        "calls": record.calls,
        "steps": record.steps,
        "tags": dict(record.tags),
        "imported": None if record.imported is None else _import_json(record.imported),
        "is_held": record.is_held,
        "contents_removed_at": _iso(record.contents_removed_at),
        "tokens": None if record.tokens is None else vars(record.tokens),
        "duration_seconds": None if record.duration_seconds is None else round(record.duration_seconds, 3),
        "waited_seconds": round(record.waited_until(time.time()), 3),
        "tool_errors": record.tool_errors,
        "owner": record.owner,
        "created_at": _iso(record.created_at),
        "updated_at": _iso(record.updated_at),
        "cursor": record.cursor,
        "origin": None if record.origin is None else _origin_json(record.origin),
    }


def _origin_json(found: Origin) -> dict[str, Any]:
    return {**vars(found), "forked_at": _iso(found.forked_at), "drift": masked(found.drift)}


def _import_json(found: ImportOrigin) -> dict[str, Any]:
    return {**vars(found), "imported_at": _iso(found.imported_at)}


def detail_json(detail: ExecutionDetail) -> dict[str, Any]:
    """Return an execution as ``show --json`` prints it."""
    return {
        "execution": execution_json(detail.execution),
        "run": detail.run,
        "runs": [
            {
                **vars(run),
                "status": run.status.value,
                "started_at": _iso(run.started_at),
                "ended_at": _iso(run.ended_at),
            }
            for run in detail.runs
        ],
        "calls": [_call_json(call) for call in detail.calls],
        "undelivered": [
            {**vars(each), "at": _iso(each.at), "gave_up_at": _iso(each.gave_up_at)} for each in detail.undelivered
        ],
    }


def questions_json(questions: Iterable[OpenInterrupt | Question]) -> list[dict[str, Any]]:
    """Return open questions, with the answers that questions about a step in doubt accept."""
    return [
        {
            "interrupt_id": question.interrupt_id,
            "name": question.name,
            "reason": question.reason,
            "answers": answers_to(question.name),
            "expires_at": _iso(getattr(question, "expires_at", None)),
        }
        for question in questions
    ]


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _call_json(call: CallSummary) -> dict[str, Any]:
    return {
        "kind": call.kind,
        "position": call.position,
        "member": call.member,
        "depth": call.depth,
        "scope": call.scope,
        "input": call.input,
        "is_redacted": call.is_redacted,
        "status": call.status.value,
        "phase": call.phase,
        "attempt": call.attempt,
        "stop_reason": call.stop_reason,
        "started_at": _iso(call.started_at),
        "ended_at": _iso(call.ended_at),
        "failures": [{**vars(failure), "at": _iso(failure.at)} for failure in call.failures],
        "questions": questions_json(call.questions),
        "answers": [{**vars(answer), "at": _iso(answer.at)} for answer in call.answers],
        "structured_output": call.structured_output,
        "steps": [step_json(step) for step in call.steps],
        "unreadable": call.unreadable,
    }


def step_json(step: StepSummary) -> dict[str, Any]:
    """Return one attempt of a step."""
    duration = step.duration_seconds
    return {
        "key": step.key,
        "number": step.number,
        "ordinal": step.ordinal,
        "kind": step.kind,
        "name": step.name,
        "input": step.input,
        "status": step.status,
        "state": step.state,
        "in_doubt": step.in_doubt,
        "attempt": step.attempt,
        "started_at": _iso(step.started_at),
        "ended_at": _iso(step.ended_at),
        "duration_seconds": None if duration is None else round(duration, 3),
        "usage": step.usage,
        "result": step.result,
        "error": step.error,
        "traceback": step.traceback,
        "state_changes": step.state_changes,
    }
