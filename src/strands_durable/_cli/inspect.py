"""Commands that inspect executions and change nothing: ls, show, watch."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from .._dispatch.handles import ExecutionHandle
from .._records.executions import ExecutionStatus
from .._records.printable import masked, masked_text, one_line
from .._records.views import ExecutionDetail
from .exit_codes import INTERRUPTED, code_of_status, leave
from .filters import filter_options
from .hints import next_step
from .json_view import detail_json, execution_json, print_json, print_json_line, step_json
from .numbers import Count
from .options import BackendTarget, backend_option, cursor_of, execution_argument, json_option
from .prompts import listed
from .step_view import step_text, steps_named
from .wait_reasons import waits

T = TypeVar("T")


@click.command("ls")
@filter_options
@click.option("--waiting", is_flag=True, help="Only executions that wait, with what they wait for and why.")
@click.option(
    "--limit",
    type=Count(min=1),
    metavar="N",
    default=50,
    show_default=True,
    help="List at most N.",
)
@click.option(
    "--before",
    callback=cursor_of,
    metavar="CURSOR",
    help="Continue an earlier list: its note on stderr has the cursor.",
)
@click.option("--all", "is_all", is_flag=True, help="List all, without a limit.")
@backend_option
@json_option
def list_executions(
    place: BackendTarget, statuses: tuple[str, ...], waiting: bool, as_json: bool, **options: Any
) -> None:
    """List executions, the most recently changed first.

    A RUNNING execution whose owner is "gone" was left by a process that died: the next worker resumes it, or its script when
    it runs again. Below the table, "ls" prints why executions that a worker did not take are waiting, and why others cannot be
    read. No worker runs an execution that cannot be read; remove it with "rm".

    With --waiting: only executions that have not ended and that no process is running. Each is listed with what it waits for
    (a person, a worker that has its version of the agent, or its script) and why; if its agent has changed, with the changes.

    \b
    With --json: a list of objects
      execution_id             text
      kind                     dispatched or inline
      agent                    the agent's name
      status                   PENDING, RUNNING, SUSPENDED, COMPLETED,
                               FAILED or CANCELLED
      is_cancelling            true if it was asked to stop and has not yet
      note                     why a worker did not take it, or null
      unreadable               why it cannot be read; null if it can
      run                      number of the current run: 0, and 1 more each
                               time the id was started over
      calls, steps             root calls and ended steps of the current run
      tags                     an object: names and values
      imported                 how it was imported: {execution_id, exported_at,
                               imported_at, by}, or null
      is_held                  true if neither retention nor rm removes it
      contents_removed_at      when retention removed its contents, or null
      tokens                   {input, output, total} of the current run, or null
      duration_seconds         from start to end of its calls, without waits
                               for people; null before the first has begun
      waited_seconds           how long it waited for people, so far
      tool_errors              number of tool calls that ended in an error
      owner                    the process that runs it, or null
      created_at, updated_at   ISO 8601, UTC
      cursor                   for --before: list what follows
    and with --waiting also
      waits_for                person, worker (no worker has seen it yet),
                               agent (no worker has its agent), version
                               (workers have another version) or script
      reason                   text; several lines if the agent has changed
      questions                as in show --json
    If there are more executions than listed, a note is printed on stderr.
    """
    (_list_waits if waiting else _list)(place, Page.of(statuses, options), as_json)


@dataclass(frozen=True, kw_only=True)
class Page:
    """Which executions ``ls`` lists, and how many."""

    filters: dict[str, Any]
    """Arguments of `DurableBackend.list`."""
    limit: int | None

    @classmethod
    def of(cls, statuses: tuple[str, ...], options: dict[str, Any]) -> Page:
        """Return what the options of ``ls`` ask for."""
        filters = {name: options[name] for name in ("agent", "since", "tags", "search", "before", "with_errors")}
        asked = statuses or (("COMPLETED",) if options["with_errors"] else ())
        filters["status"] = [ExecutionStatus(status) for status in asked] or None
        return cls(filters=filters, limit=None if options["is_all"] else options["limit"])

    @property
    def one_more(self) -> int | None:
        """One more than the limit, to see whether there are more."""
        return None if self.limit is None else self.limit + 1

    def cut(self, items: list[T], cursor: Callable[[T], str] | None = None) -> list[T]:
        """Return at most ``limit`` items, with a note on stderr if there are more."""
        if self.limit is None or len(items) <= self.limit:
            return items
        shown = items[: self.limit]
        following = "" if cursor is None else f", --before {shlex.quote(cursor(shown[-1]))} to continue"
        click.echo(
            f"Showing the {self.limit} most recently changed. Use --limit N to list more, --all to list all{following}.",
            err=True,
        )
        return shown


def _list(place: BackendTarget, page: Page, as_json: bool) -> None:
    listed = place.visited().list(**page.filters, limit=page.one_more)
    records = page.cut(asyncio.run(listed), lambda record: record.cursor)
    if as_json:
        print_json([execution_json(record) for record in records])
    elif records:
        from .tables import console, execution_table, print_notes

        out = console()
        out.print(execution_table(records, out.width))
        print_notes(out, records)
    else:
        click.echo("No matching executions." if any(page.filters.values()) else "No executions yet.")


def _list_waits(place: BackendTarget, page: Page, as_json: bool) -> None:
    refused = ("status", "before", "with_errors")
    filters = {name: value for name, value in page.filters.items() if name not in refused}
    if any(page.filters[name] for name in refused):
        raise click.UsageError("--status, --before and --with-errors cannot be combined with --waiting.")
    waiting = page.cut(asyncio.run(waits(place.visited(), filters, page.one_more)))
    if as_json:
        print_json(masked([wait.to_json() for wait in waiting]))
    elif waiting:
        from .tables import console, print_waits

        print_waits(console(), waiting, place)
    else:
        click.echo("No executions are waiting.")


@click.command()
@execution_argument
@click.argument("step", required=False)
@click.option("--full", "is_full", is_flag=True, help="Show all inputs, results and errors, not shortened.")
@click.option("--run", type=Count(), metavar="N", help="Show run N, if the id was started over.")
@click.option("--unmasked", is_flag=True, help="Do not mask values that look like secrets.")
@backend_option
@json_option
def show(
    execution_id: str, step: str | None, run: int | None, place: BackendTarget, as_json: bool, **how: bool
) -> None:
    """Show one execution: its calls, and a timeline of their steps.

    A step is named "model 2", the second model call, or "2.0 book_hotel", the tool call in block 0 of that model's answer. A
    step is "in doubt" if it started and its process died before it recorded a result. Tokens are input/output. Inputs and
    errors are shortened.

    STEP is a number or name from the timeline ("2", "2.0", "2.0 book_hotel"): show that step only, with its whole input and
    result, one attempt after the other. With --full, show all steps this way. Values that look like secrets are masked, also in
    JSON.

    \b
    With --json: an object with
      execution   as in ls --json
      run         the number of the run that is shown
      runs        all runs of this id: a list of
                  {run, status, calls, steps, started_at, ended_at}
      calls       a list of objects
        kind, position, member, depth, scope, started_at, ended_at
        input, is_redacted, phase, attempt, stop_reason, structured_output
        status      as for an execution
        failures    a list of {attempt, error, at, traceback}
        questions   open questions: a list of
                    {interrupt_id, name, reason, answers, expires_at}
        answers     recorded answers: a list of
                    {interrupt_id, name, answer, by, at, is_taken}
        unreadable  why a part of it cannot be read, or null
        steps       a list of objects, one for each attempt
          key, number, name, input, result, attempt, error, traceback
          kind        model, tool, effect or node
          status      started, done, error (of a tool), failed,
                      interrupted, unstorable or discarded
          state       what became of it, as shown in the timeline
          in_doubt, started_at, ended_at, duration_seconds
          usage       {inputTokens, outputTokens, totalTokens, ...}
          state_changes   of a tool: {state, invocation_state}, each
                      {set: {path: value}, deleted: [path]}
      undelivered   a list of {event, at, tries, error, gave_up_at}
    With STEP: a list of such steps.
    Values are not shortened; bytes are in their recorded form. Times are ISO 8601, UTC. Unknown values are null.
    """
    detail = asyncio.run(_detail(place, execution_id, run))
    if step is not None:
        _show_step(detail, step, how["unmasked"], as_json)
    elif as_json:
        print_json(_shown(detail_json(detail), how["unmasked"]))
    else:
        _print_timeline(detail, place, **how)


def _print_timeline(detail: ExecutionDetail, place: BackendTarget, **how: bool) -> None:
    from .tables import How, console, print_detail

    print_detail(console(), detail, place, How(**how))


def _shown(value: Any, unmasked: bool) -> Any:
    return value if unmasked else masked(value)


def _show_step(detail: ExecutionDetail, name: str, unmasked: bool, as_json: bool) -> None:
    matches = steps_named(detail, name)
    if not matches:
        labels = list(dict.fromkeys(one_line(step.label) for step in detail.steps))
        raise click.UsageError(
            f"Execution {detail.execution.execution_id!r} has no step {name!r}. Its steps: {', '.join(labels)}"
        )
    if as_json:
        print_json(_shown([step_json(step) for _, step in matches], unmasked))
    else:
        click.echo("\n\n".join(step_text(call, step, unmasked=unmasked) for call, step in matches))


async def _detail(place: BackendTarget, execution_id: str, run: int | None = None) -> ExecutionDetail:
    handle = await place.visited().get(execution_id)
    return await handle.detail(run)


@click.command()
@execution_argument
@click.option("--after", type=Count(), default=0, metavar="N", help="Start after step number N.", show_default=True)
@click.option("--unmasked", is_flag=True, help="With --json: do not mask values that look like secrets.")
@backend_option
@json_option
def watch(execution_id: str, after: int, place: BackendTarget, as_json: bool, unmasked: bool) -> None:
    """Follow an execution live, from its first step.

    Prints a line for each committed step; on a terminal also the text that the model is streaming (not on Temporal, which
    delivers only committed steps). Returns when the execution has ended or waits for a person; the exit code says which.
    Ctrl-C stops watching; the execution keeps running.

    \b
    With --json: a line for each event, an object with
      number      of a committed step: its number in the execution;
                  of a chunk: its number in the attempt
      recorded    true: a committed step; false: a chunk of a running step
      step, attempt, kind, name
      status, result, error, usage   committed steps only
      data, event                    chunks only: the text, and the event
    and a last line {execution_id, status}. Values that look like secrets are masked; one that comes in several chunks is
    only recognized in the committed step. With --unmasked, nothing is masked.
    """
    seen = [after]
    try:
        status = asyncio.run(_followed(place, execution_id, seen, as_json=as_json, unmasked=unmasked))
    except KeyboardInterrupt:
        again = place.command(f"watch {execution_id} --after {seen[0]}")
        click.echo(f"\nStopped watching; the execution keeps running. To continue watching: {again}", err=True)
        leave(INTERRUPTED)
    leave(code_of_status(status))


async def _followed(
    place: BackendTarget, execution_id: str, seen: list[int], *, as_json: bool, unmasked: bool
) -> ExecutionStatus:
    from .stream_view import Lines

    handle = await place.visited().get(execution_id)
    await _warn_if_idle(handle, place)
    lines = Lines(sys.stdout, is_live=sys.stdout.isatty())
    async for event in handle.stream(seen[0]):
        if as_json:
            print_json_line(_shown(event, unmasked))
        else:
            lines.print(event)
        if event["recorded"]:
            seen[0] = event["number"]
    status = await handle.status()
    if as_json:
        print_json_line({"execution_id": execution_id, "status": status.value})
    else:
        await _print_end(handle, place)
    return status


async def _warn_if_idle(handle: ExecutionHandle, place: BackendTarget) -> None:
    """Warn if no process is running what is to be watched: it may never change."""
    detail = await handle.detail()
    is_unfinished = detail.execution.status in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)
    if not is_unfinished or detail.execution.owner is not None:
        return
    if place.invoker is None:
        click.echo(f"No process is running it now. Next: {next_step(detail, place)}", err=True)
    elif detail.execution.note is not None:
        click.echo(f"It waits: {one_line(masked_text(detail.execution.note.splitlines()[0]))}", err=True)


async def _print_end(handle: ExecutionHandle, place: BackendTarget) -> None:
    detail = await handle.detail()
    click.echo(f"{handle.execution_id} is {detail.execution.status.value}.")
    if questions := await handle.interrupts():
        click.echo(listed(questions))
    if (then := next_step(detail, place)) is not None:
        click.echo(f"Next: {then}")
