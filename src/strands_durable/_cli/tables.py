"""Executions as tables and timelines for people."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .._records import ExecutionRecord, ExecutionStatus
from .._summaries import CallSummary, ExecutionDetail, StepSummary
from .advice import next_step
from .exits import one_line
from .options import Place

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_PIPED_WIDTH = 200
_STYLES = {
    "done": "green", "COMPLETED": "green", "running": "cyan", "RUNNING": "cyan", "answered": "dim", "discarded": "dim",
    "PENDING": "yellow", "error": "red", "failed": "red", "FAILED": "red", "CANCELLED": "dim", "not storable": "red",
    "unreadable": "red",
    "in doubt": "yellow", "waiting for a person": "magenta", "SUSPENDED": "magenta",
}  # fmt: skip
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def console() -> Console:
    """Return where tables are printed: as wide as the terminal, or wide enough for a program to read."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    is_wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, markup=False, emoji=False, width=_PIPED_WIDTH if is_wide else None)


def _table(columns: Iterable[tuple[str, dict[str, Any]]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name, options in columns:
        table.add_column(name, **options)
    return table


def _word(text: str) -> Text:
    from rich.text import Text

    return Text(text, style=_STYLES.get(text, ""))


def _plain(text: str) -> Text:
    from rich.text import Text

    return Text(text)


def _cut(text: str) -> Text:
    """A cell that gives way in a narrow terminal."""
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="ellipsis")


def execution_table(records: list[ExecutionRecord]) -> Table:
    """Return executions as a table."""
    right, fold = {"justify": "right", "no_wrap": True}, {"overflow": "fold"}
    columns: list[tuple[str, dict[str, Any]]] = [
        ("ID", fold), ("AGENT", fold), ("STATUS", {}), ("STEPS", right), ("OWNER", fold), ("UPDATED", right),
    ]  # fmt: skip
    table = _table(columns)
    now = time.time()
    for record in records:
        table.add_row(
            _plain(record.execution_id),
            _plain(record.agent or ""),
            _status(record),
            str(record.steps),
            _plain(_owner(record)),
            ago(now - record.updated_at),
        )
    return table


def print_notes(out: Console, records: list[ExecutionRecord]) -> None:
    """Print why executions wait, where a worker has left them."""
    for record in records:
        if record.unreadable is not None:
            text = f"{record.execution_id} cannot be read: {one_line(record.unreadable)}"
            out.print(_plain(text), style="red", soft_wrap=True)
        elif record.note is not None:
            out.print(_plain(f"{record.execution_id} waits: {one_line(record.note)}"), style="yellow", soft_wrap=True)


def _status(record: ExecutionRecord) -> Text:
    if record.unreadable is not None:
        return _word("unreadable")
    status = _word(record.status.value)
    return status.append(", cancelling", style="dim") if record.is_cancelling else status


def _owner(record: ExecutionRecord) -> str:
    if record.owner is not None:
        return record.owner
    return "gone" if record.status is ExecutionStatus.RUNNING else ""


def ago(seconds: float) -> str:
    """Return how long ago something was, in one unit."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(0.0, seconds) // 1:.0f} s ago"


def print_detail(out: Console, detail: ExecutionDetail, place: Place) -> None:
    """Print an execution: where it stands, what to do about it, and the timeline of each call."""
    execution, now = detail.execution, time.time()
    again = "the first" if execution.run == 0 else "started over; earlier runs are kept"
    out.print(_plain(f"Execution {execution.execution_id}"), style="bold")
    _print_fact(out, "agent", f"{execution.agent or 'unknown'} ({execution.kind})")
    out.print("status  ", _status(execution), sep="")
    out.print(f"run     {execution.run} ({again})")
    if _owner(execution):
        _print_fact(out, "owner", _owner(execution))
    out.print(f"begun   {_moment(execution.created_at, now)}")
    out.print(f"updated {_moment(execution.updated_at, now)}")
    if execution.unreadable is not None:
        _print_fact(out, "damage", f"it cannot be read: {one_line(execution.unreadable)}")
    elif execution.note is not None:
        _print_fact(out, "waits", one_line(execution.note))
    if (then := next_step(detail, place)) is not None:
        _print_fact(out, "next", then)
    for call in detail.calls:
        _print_call(out, call, now)


def _print_fact(out: Console, name: str, text: str) -> None:
    out.print(_plain(f"{name:<7} {text}"), soft_wrap=True)


def _moment(seconds: float, now: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S} ({ago(now - seconds)})"


def _print_call(out: Console, call: CallSummary, now: float) -> None:
    from rich.text import Text

    attempts = f"attempt {call.attempt}"
    facts = [attempts, f"phase {call.phase}"] + ([f"ended with {call.stop_reason}"] if call.stop_reason else [])
    out.print()
    title = f"Call {call.position}" if call.depth == 0 else f"{'  ' * call.depth}> {call.kind} {call.member}"
    out.print(Text.assemble((f"{title}  ", "bold"), _word(call.status.value), f"  {', '.join(facts)}"))
    out.print(_plain(f"input   {call.input or '(none)'}"), soft_wrap=True)
    for failure in call.failures:
        out.print(
            _plain(f"failed  attempt {failure.attempt}, {ago(now - failure.at)}: {failure.error}"), soft_wrap=True
        )
    for question in call.questions:
        reason = f": {question.reason}" if question.reason else ""
        out.print(_plain(f"waits   {question.name}{reason} (interrupt {question.interrupt_id})"), soft_wrap=True)
    if call.steps:
        out.print()
        out.print(_timeline(call, now))


def _timeline(call: CallSummary, now: float) -> Table:
    right, line = {"justify": "right", "no_wrap": True}, {"no_wrap": True}
    columns: list[tuple[str, dict[str, Any]]] = [
        ("STEP", line), ("INPUT", {"max_width": 60}), ("STATUS", line), ("ATTEMPT", right), ("STARTED", right),
        ("TOOK", right), ("TOKENS", right),
    ]  # fmt: skip
    has_errors = any(step.error for step in call.steps)
    table = _table([*columns, ("ERROR", {"overflow": "fold"})] if has_errors else columns)
    for step in call.steps:
        cells: list[Text | str] = [_plain(step.label), _cut(step.input), _word(step.state), str(step.attempt)]
        cells += [_offset(step, call.started_at), _took(step, now), _tokens(step)]
        table.add_row(*cells, *([_plain(step.error or "")] if has_errors else []))
    return table


def _offset(step: StepSummary, begin: float) -> str:
    return "" if step.started_at is None else f"+{max(0.0, step.started_at - begin):.2f} s"


def _took(step: StepSummary, now: float) -> str:
    if step.duration_seconds is not None:
        return f"{step.duration_seconds:.2f} s"
    return f"{now - step.started_at:.0f} s so far" if step.state == "running" and step.started_at is not None else ""


def _tokens(step: StepSummary) -> str:
    if step.usage is None or step.kind != "model":
        return ""
    return f"{step.usage.get('inputTokens', 0)}/{step.usage.get('outputTokens', 0)}"
