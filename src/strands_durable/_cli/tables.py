"""Executions as tables and timelines for people."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.printable import masked, masked_text, one_line, printable
from .._records.views import ERROR_LENGTH, INPUT_LENGTH, CallSummary, ExecutionDetail, StepSummary, Undelivered, short
from .hints import next_step
from .options import BackendTarget
from .step_view import step_text, written
from .wait_reasons import Wait, lines_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_PIPED_WIDTH = 200
_GAP, _BESIDE_ID = 2, 40
_NUMBERS = ("TOKENS", "TOOK", "WAITED")
_STYLES = {
    "done": "green", "COMPLETED": "green", "running": "cyan", "RUNNING": "cyan", "answered": "dim", "discarded": "dim",
    "PENDING": "yellow", "error": "red", "failed": "red", "FAILED": "red", "CANCELLED": "dim", "not storable": "red",
    "unreadable": "red",
    "in doubt": "yellow", "waiting for a person": "magenta", "SUSPENDED": "magenta",
}  # fmt: skip
_WORTH_SAYING = 0.3
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


@dataclass(frozen=True, kw_only=True)
class How:
    """How much of an execution to print."""

    is_full: bool = False
    unmasked: bool = False

    def shown(self, value: Any, length: int = INPUT_LENGTH) -> str:
        """Return a value shortened to one line, or in full."""
        if value is None or not self.is_full:
            return short(value, length)
        return written(value if self.unmasked else masked(value))


def console(*, err: bool = False) -> Console:
    """Return the console for tables: as wide as the terminal, or wide enough for a program to read."""
    from rich.console import Console

    out = sys.stderr if err else sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="replace")
    is_wide = not out.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, markup=False, emoji=False, width=_PIPED_WIDTH if is_wide else None, stderr=err)


def _table(columns: Iterable[tuple[str, dict[str, Any]]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name, options in columns:
        table.add_column(name, **options)
    return table


def _word(text: str) -> Text:
    from rich.text import Text

    return Text(one_line(text), style=_STYLES.get(text, ""))


def _plain(text: str) -> Text:
    """Return untrusted text of several lines made printable; all text printed here passes through one of these functions."""
    from rich.text import Text

    return Text(printable(text))


def _cut(text: str) -> Text:
    """Return a cell that is cut in a narrow terminal."""
    from rich.text import Text

    return Text(one_line(text), no_wrap=True, overflow="ellipsis")


def execution_table(records: list[ExecutionRecord], width: int) -> Table:
    """Return executions as a table; a narrow one omits tokens, time, tags and owner, and cuts the names of agents."""
    now = time.time()
    ids, ages = [_plain(each.execution_id) for each in records], [ago(now - each.updated_at) for each in records]
    wide = _beside(records)
    while wide and _width(records, ages, wide) > width:
        del wide[next(iter(wide))]
    is_narrow = "OWNER" not in wide
    statuses = [_status(each, is_narrow) for each in records]
    right = {"justify": "right", "no_wrap": True}
    columns: list[tuple[str, dict[str, Any]]] = [
        ("ID", {"overflow": "fold", "min_width": min(max(map(len, ids)), width - _BESIDE_ID)}),
        ("AGENT", {"max_width": max(5, width - max(map(len, ids)) - _BESIDE_ID) if is_narrow else None}),
        ("STATUS", {"no_wrap": True, "min_width": max(map(len, statuses))}),
        ("STEPS", {**right, "min_width": 5}),
        *((name, right if name in _NUMBERS else {"overflow": "fold"}) for name in wide),
        ("UPDATED", {**right, "min_width": max(map(len, ages))}),
    ]
    table = _table(columns)
    for place, (record, execution_id, status, age) in enumerate(zip(records, ids, statuses, ages, strict=True)):
        more = [_plain(cells[place]) for cells in wide.values()]
        table.add_row(execution_id, _cut(record.agent or ""), status, str(record.steps), *more, age)
    return table


def _beside(records: list[ExecutionRecord]) -> dict[str, list[str]]:
    """Return the columns that only a wide table has, in the order in which they are omitted, without empty ones."""
    now = time.time()
    columns = {
        "TOKENS": ["" if each.tokens is None else f"{each.tokens.total:,}" for each in records],
        "TOOK": [_seconds(each.duration_seconds) for each in records],
        "WAITED": [waited_text(each.waited_until(now)) for each in records],
        "TAGS": [tags_text(each.tags) for each in records],
        "ORIGIN": ["" if each.imported is None else "import" for each in records],
        "OWNER": [_owner(each) for each in records],
    }
    return {name: cells for name, cells in columns.items() if name == "OWNER" or any(cells)}


def tags_text(tags: Mapping[str, str]) -> str:
    """Return tags in one line."""
    return one_line(" ".join(f"{name}={value}" for name, value in tags.items()))


def duration_text(seconds: float | None, waited: float) -> str:
    """Return how long a run took, and how long people took besides, unless that does not count."""
    text = waited_text(waited) if seconds is not None else ""
    return _seconds(seconds) + (f" (waited {text})" if text else "")


def waited_text(seconds: float) -> str:
    """Return how long people took, unless that does not count."""
    return _seconds(seconds) if seconds >= _WORTH_SAYING else ""


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _width(records: list[ExecutionRecord], ages: list[str], wide: dict[str, list[str]]) -> int:
    """Return the width of the table with nothing cut and nothing omitted."""
    columns = {
        "ID": [record.execution_id for record in records],
        "AGENT": [record.agent or "" for record in records],
        "STATUS": [_status(record).plain for record in records],
        "STEPS": [],
        **wide,
        "UPDATED": ages,
    }
    return sum(max(map(len, (name, *cells))) + _GAP for name, cells in columns.items()) - _GAP


def print_notes(out: Console, records: list[ExecutionRecord]) -> None:
    """Print why executions that a worker did not take wait: the first line, ``show`` has the rest."""
    for record in records:
        if record.unreadable is not None:
            text = f"{record.execution_id} cannot be read: {one_line(masked_text(record.unreadable))}"
            out.print(_plain(text), style="red", soft_wrap=True)
        elif record.note is not None:
            why = one_line(masked_text(record.note.partition("\n")[0]))
            out.print(_plain(f"{record.execution_id} waits: {why}"), style="yellow", soft_wrap=True)


def print_waits(out: Console, waits: list[Wait], place: BackendTarget) -> None:
    """Print what executions wait for."""
    now = time.time()
    for wait in waits:
        out.print(_plain("\n".join(lines_of(wait, place, ago(now - wait.record.updated_at)))), soft_wrap=True)


def _status(record: ExecutionRecord, is_narrow: bool = False) -> Text:
    if record.unreadable is not None:
        return _word("unreadable")
    status = _word(record.status.value)
    if is_narrow and _owner(record) == "gone":
        status.append(", gone", style="dim")
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


def print_detail(out: Console, detail: ExecutionDetail, place: BackendTarget, how: How) -> None:
    """Print an execution: its status, what to do next, and the timeline of each call."""
    execution, now = detail.execution, time.time()
    out.print(_plain(f"Execution {execution.execution_id}"), style="bold")
    _print_fact(out, "agent", one_line(f"{execution.agent or 'unknown'} ({execution.kind})"))
    out.print("status  ", _status(execution), sep="")
    _print_runs(out, detail, place)
    if _owner(execution):
        _print_fact(out, "owner", one_line(_owner(execution)))
    if (came := execution.imported) is not None:
        text = f"{ago(now - came.imported_at)} by {came.by}, exported from {came.execution_id} at {came.exported_at}"
        _print_fact(out, "import", one_line(text))
    out.print(f"begun   {_moment(execution.created_at, now)}")
    out.print(f"updated {_moment(execution.updated_at, now)}")
    _print_totals(out, execution)
    if execution.is_held:
        _print_fact(out, "held", "neither retention nor rm removes it")
    if execution.contents_removed_at is not None:
        removed = (
            f"removed by retention {ago(now - execution.contents_removed_at)}: inputs, results, messages and state"
        )
        _print_fact(out, "content", removed)
    if execution.unreadable is not None:
        _print_fact(out, "damage", f"it cannot be read: {one_line(masked_text(execution.unreadable))}")
    elif execution.note is not None:
        _print_fact(out, "waits", masked_text(execution.note))
    for each in detail.undelivered:
        _print_fact(out, "notify", _undelivered_text(each, now))
    if (then := next_step(detail, place)) is not None:
        _print_fact(out, "next", then)
    for call in detail.calls:
        _print_call(out, call, now, how)


def _undelivered_text(found: Undelivered, now: float) -> str:
    outcome = "not delivered yet" if found.gave_up_at is None else f"given up {ago(now - found.gave_up_at)}"
    why = "" if found.error is None else f": {one_line(masked_text(found.error))}"
    return f"{found.event}, {ago(now - found.at)}, {outcome} ({found.tries} tries){why}"


def _print_totals(out: Console, execution: ExecutionRecord) -> None:
    if execution.tags:
        _print_fact(out, "tags", tags_text(execution.tags))
    if (origin := execution.origin) is not None:
        changed = f", with other {' and '.join(origin.changed)}" if origin.changed else ""
        _print_fact(
            out, "forked", f"from {origin.execution_id} at step {origin.step}{changed}, by {one_line(origin.by)}"
        )
        for change in origin.drift:
            _print_fact(out, "drift", one_line(masked_text(change)))
    if (used := execution.tokens) is not None:
        _print_fact(out, "tokens", f"{used.total:,} ({used.input:,} input, {used.output:,} output)")
    if execution.duration_seconds is not None:
        _print_fact(out, "took", duration_text(execution.duration_seconds, execution.waited_until(time.time())))


def _print_runs(out: Console, detail: ExecutionDetail, place: BackendTarget) -> None:
    again = "the first" if detail.run == 0 else "started over; earlier runs are kept"
    out.print(f"run     {detail.run} ({again})")
    others = [run for run in detail.runs if run.run != detail.run]
    if others:
        listed = ", ".join(f"{run.run} {run.status.value} ({run.steps} steps)" for run in others)
        command = place.command(f"show {detail.execution.execution_id} --run {others[0].run}")
        _print_fact(out, "others", f"{listed}: {command}")


def _print_fact(out: Console, name: str, text: str) -> None:
    first, *others = text.split("\n")
    out.print(_plain("\n".join([f"{name:<7} {first}", *(f"        {line}" for line in others)])), soft_wrap=True)


def _moment(seconds: float, now: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S} ({ago(now - seconds)})"


def _print_call(out: Console, call: CallSummary, now: float, how: How) -> None:
    from rich.text import Text

    facts = [f"attempt {call.attempt}", f"phase {one_line(call.phase)}"]
    facts += [f"ended with {one_line(call.stop_reason)}"] if call.stop_reason else []
    out.print()
    title = f"Call {call.position}" if call.depth == 0 else f"{'  ' * call.depth}> {call.kind} {one_line(call.member)}"
    out.print(Text.assemble((f"{title}  ", "bold"), _word(call.status.value), f"  {', '.join(facts)}"))
    for name, text in _facts_of(call, now, how):
        _print_fact(out, name, text)
    if how.is_full:
        for step in call.steps:
            out.print()
            out.print(_plain(step_text(call, step, unmasked=how.unmasked)), soft_wrap=True)
    elif call.steps:
        out.print()
        out.print(_timeline(call, now))
        for step in call.steps:
            if step.error is not None:
                out.print(
                    _plain(f"{one_line(step.label)}: {short(step.error, ERROR_LENGTH)}"), style="red", soft_wrap=True
                )


def _facts_of(call: CallSummary, now: float, how: How) -> Iterator[tuple[str, str]]:
    """Yield what is printed of a call above its steps."""
    yield "input", how.shown(call.input) or ("(redacted)" if call.is_redacted else "(none)")
    for failure in call.failures:
        yield "failed", f"attempt {failure.attempt}, {ago(now - failure.at)}: {how.shown(failure.error, ERROR_LENGTH)}"
        if failure.traceback is not None and how.is_full:
            yield "trace", how.shown(failure.traceback)
    for question in call.questions:
        reason = how.shown(question.reason)
        name, interrupt_id = one_line(question.name), one_line(question.interrupt_id)
        yield "waits", f"{name}{f': {reason}' if reason else ''} (interrupt_id {interrupt_id})"
        if question.answers:
            yield "", f"answers: {question.answers}"
        if question.expires_at is not None:
            yield "", f"answered with {how.shown(question.default)} in {_seconds(max(0.0, question.expires_at - now))}"
    for answer in call.answers:
        by = one_line(answer.by or "its script")
        taken = "" if answer.is_taken else ", not used yet"
        name, interrupt_id = one_line(answer.name or ""), one_line(answer.interrupt_id)
        text = f"{name}: {how.shown(answer.answer)}" if name else how.shown(answer.answer)
        yield "answer", f"{text}, by {by}, {ago(now - answer.at)}{taken} (interrupt_id {interrupt_id})"
    if call.structured_output is not None and how.is_full:
        yield "output", how.shown(call.structured_output)


def _timeline(call: CallSummary, now: float) -> Table:
    right, line = {"justify": "right", "no_wrap": True}, {"no_wrap": True}
    columns: list[tuple[str, dict[str, Any]]] = [
        ("#", right), ("STEP", line), ("INPUT", {"max_width": 60, "min_width": 8}), ("STATUS", line), ("TRY", right),
        ("STARTED", right), ("TOOK", right), ("TOKENS", right),
    ]  # fmt: skip
    table = _table(columns)
    for step in call.steps:
        number = "" if step.ordinal is None else str(step.ordinal)
        cells: list[Text | str] = [_cut(step.label), _cut(short(step.title)), _word(step.state), str(step.attempt)]
        table.add_row(number, *cells, _offset(step, call.started_at), _took(step, now), _tokens(step))
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
