"""The command line: look at executions, and see one survive.

Commands print, and nothing else: what they show is read by `_catalog`. Strands and rich are imported only where they are
needed, because looking must be quick. Exit codes: 0 done, 1 an error of ours, 2 wrong usage, 3 no such execution.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import click

from . import __version__
from ._catalog import CallSummary, Catalog, ExecutionDetail, StepSummary
from ._records import ExecutionRecord, ExecutionStatus
from .errors import DurableError, ExecutionNotFoundError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_DEFAULT_STORE = "sqlite:///.strands/durable.db"
_PIPED_WIDTH = 200
_STYLES = {
    "done": "green", "COMPLETED": "green", "running": "cyan", "RUNNING": "cyan", "answered": "dim", "discarded": "dim",
    "error": "red", "failed": "red", "FAILED": "red", "CANCELLED": "dim", "not storable": "red",
    "in doubt": "yellow", "waiting for a person": "magenta", "SUSPENDED": "magenta",
}  # fmt: skip
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))

F = TypeVar("F", bound=Callable[..., Any])


class _Commands(click.Group):
    """Commands whose errors are one clear line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DurableError as error:
            text = "".join(character if character.isprintable() else " " for character in str(error))
            click.echo(f"Error: {' '.join(text.split())}", err=True)
            ctx.exit(3 if isinstance(error, ExecutionNotFoundError) else 1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="strands-durable")
def main() -> None:
    """Durable execution for Strands agents.

    An agent with Durability records every model call and every tool call in a store. These commands look at that store;
    they change nothing, and they work while agents run.

    \b
    New here?             strands-durable demo
    What is there?        strands-durable ls
    What happened there?  strands-durable show trip-42

    \b
    Exit codes: 0 done, 1 an error, 2 wrong usage, 3 no such execution.
    """


def _store_option(command: F) -> F:
    return click.option(
        "--store",
        metavar="PATH_OR_URL",
        envvar="STRANDS_DURABLE_BACKEND",
        default=_DEFAULT_STORE,
        show_default=True,
        show_envvar=True,
        help="The store to look at: the path of its file, or sqlite:///PATH.",
    )(command)


def _json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shape described above.")(command)


@main.command()
def demo() -> None:
    """Watch an agent get killed and go on.

    A travel agent with a scripted model runs in a process of its own, and is killed with SIGKILL in the middle of a booking.
    A second process goes on where the first one died. In the end a ledger shows that everything was done exactly once.

    Takes about ten seconds. Needs no key and no network, and writes only to a new temporary folder.
    """
    from ._demo import run

    sys.exit(run())


@main.command("ls")
@_store_option
@click.option(
    "--status",
    "statuses",
    type=click.Choice([status.value for status in ExecutionStatus], case_sensitive=False),
    multiple=True,
    help="Only executions with this status. May be given more than once.",
)
@_json_option
def list_executions(store: str, statuses: tuple[str, ...], as_json: bool) -> None:
    """List the executions of a store, the one that changed last first.

    A RUNNING execution whose owner is gone was left behind by a process that died: run its script again, and it goes on.

    \b
    With --json: a list of objects
      execution_id, kind       text
      status                   PENDING, RUNNING, SUSPENDED, COMPLETED,
                               FAILED or CANCELLED
      run                      how often it was started over under its id
      calls, steps             how many the current run has recorded
      owner                    the process at work on it; null if there is none
      created_at, updated_at   ISO 8601, UTC
    """
    found = [record for record in Catalog(store).executions() if not statuses or record.status.value in statuses]
    if as_json:
        _print_json([_execution_json(record) for record in found])
    elif not found:
        click.echo("No executions with this status." if statuses else "No executions yet.")
    else:
        _console().print(_execution_table(found))


@main.command()
@click.argument("execution_id", metavar="ID")
@_store_option
@_json_option
def show(execution_id: str, store: str, as_json: bool) -> None:
    """Show one execution: its calls, and the timeline of their steps.

    A step is "model 2", the second model call, or "2.0 book_hotel", the first block of its answer. A step is "in doubt" when
    it had started, and nobody lived to record its result. Tokens are input/output. Inputs and errors are shortened; what looks
    like a secret is masked.

    \b
    With --json: an object with
      execution   as in ls --json
      calls       a list of objects
        position, scope, input, phase, attempt, stop_reason
        status      as that of an execution
        started_at, ended_at
        failures    a list of {attempt, error, at}
        questions   what it waits for: a list of {interrupt_id, name, reason}
        steps       a list of objects, one for each attempt
          key, number, name, input, attempt, error
          kind        model, tool or effect
          status      as recorded: started, done, failed, interrupted,
                      unstorable or discarded
          state       what became of it, in the words of the table
          in_doubt    true or false
          started_at, ended_at, duration_seconds
          usage       {inputTokens, outputTokens, totalTokens, ...}
    Times are ISO 8601, UTC. What is not known is null.
    """
    detail = Catalog(store).execution(execution_id)
    if as_json:
        _print_json(_detail_json(detail))
    else:
        _print_detail(_console(), detail)


# JSON


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _execution_json(record: ExecutionRecord) -> dict[str, Any]:
    return {
        "execution_id": record.execution_id,
        "kind": record.kind,
        "status": record.status.value,
        "run": record.run,
        "calls": record.calls,
        "steps": record.steps,
        "owner": record.owner,
        "created_at": _iso(record.created_at),
        "updated_at": _iso(record.updated_at),
    }


def _detail_json(detail: ExecutionDetail) -> dict[str, Any]:
    return {"execution": _execution_json(detail.execution), "calls": [_call_json(call) for call in detail.calls]}


def _call_json(call: CallSummary) -> dict[str, Any]:
    return {
        "kind": call.kind,
        "position": call.position,
        "member": call.member,
        "depth": call.depth,
        "scope": call.scope,
        "input": call.input,
        "status": call.status.value,
        "phase": call.phase,
        "attempt": call.attempt,
        "stop_reason": call.stop_reason,
        "started_at": _iso(call.started_at),
        "ended_at": _iso(call.ended_at),
        "failures": [{**vars(failure), "at": _iso(failure.at)} for failure in call.failures],
        "questions": [dict(vars(question)) for question in call.questions],
        "steps": [_step_json(step) for step in call.steps],
    }


def _step_json(step: StepSummary) -> dict[str, Any]:
    duration = step.duration_seconds
    return {
        "key": step.key,
        "number": step.number,
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
        "error": step.error,
    }


# Tables


def _console() -> Console:
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


def _execution_table(records: list[ExecutionRecord]) -> Table:
    right = {"justify": "right", "no_wrap": True}
    fold = {"overflow": "fold"}
    table = _table(
        [
            ("ID", fold),
            ("STATUS", {"no_wrap": True}),
            ("CALLS", right),
            ("STEPS", right),
            ("OWNER", fold),
            ("UPDATED", right),
        ]
    )
    now = time.time()
    for record in records:
        table.add_row(
            _plain(record.execution_id),
            _word(record.status.value),
            str(record.calls),
            str(record.steps),
            _plain(_owner(record)),
            _ago(now - record.updated_at),
        )
    return table


def _owner(record: ExecutionRecord) -> str:
    if record.owner is not None:
        return record.owner
    return "gone" if record.status is ExecutionStatus.RUNNING else ""


def _ago(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(0.0, seconds) // 1:.0f} s ago"


def _print_detail(console: Console, detail: ExecutionDetail) -> None:
    execution, now = detail.execution, time.time()
    console.print(_plain(f"Execution {execution.execution_id}"), style="bold")
    console.print("status  ", _word(execution.status.value), sep="")
    again = "the first" if execution.run == 0 else "started over; earlier runs are kept"
    console.print(f"run     {execution.run} ({again})")
    if execution.owner is not None:
        console.print(_plain(f"owner   {execution.owner}"), soft_wrap=True)
    elif execution.status is ExecutionStatus.RUNNING:
        console.print("owner   gone: run its script again, and it goes on")
    console.print(f"begun   {_moment(execution.created_at, now)}")
    console.print(f"updated {_moment(execution.updated_at, now)}")
    for call in detail.calls:
        _print_call(console, call, now)


def _moment(seconds: float, now: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S} ({_ago(now - seconds)})"


def _print_call(console: Console, call: CallSummary, now: float) -> None:
    from rich.text import Text

    attempts = f"attempt {call.attempt}"
    facts = [attempts, f"phase {call.phase}"] + ([f"ended with {call.stop_reason}"] if call.stop_reason else [])
    console.print()
    title = f"Call {call.position}" if call.depth == 0 else f"{'  ' * call.depth}> {call.kind} {call.member}"
    console.print(Text.assemble((f"{title}  ", "bold"), _word(call.status.value), f"  {', '.join(facts)}"))
    console.print(_plain(f"input   {call.input or '(none)'}"), soft_wrap=True)
    for failure in call.failures:
        console.print(
            _plain(f"failed  attempt {failure.attempt}, {_ago(now - failure.at)}: {failure.error}"), soft_wrap=True
        )
    for question in call.questions:
        reason = f": {question.reason}" if question.reason else ""
        console.print(_plain(f"waits   {question.name}{reason} (interrupt {question.interrupt_id})"), soft_wrap=True)
    if call.steps:
        console.print()
        console.print(_timeline(call, now))


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
