"""Commands that look, and change nothing: ls, show, watch."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from .._dispatch.ports import ExecutionHandle
from .._records.executions import ExecutionStatus
from .._records.printable import masked, one_line
from .._records.views import ExecutionDetail
from .exit_codes import INTERRUPTED, code_of_status, leave
from .hints import next_step
from .json_view import detail_json, execution_json, print_json, print_json_line, step_json
from .options import BackendTarget, backend_option, execution_argument, json_option, moment_of
from .prompts import listed
from .step_view import step_text, steps_named
from .wait_reasons import waits

T = TypeVar("T")


@click.command("ls")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([status.value for status in ExecutionStatus], case_sensitive=False),
    multiple=True,
    help="Only executions with this status. May be given more than once.",
)
@click.option("--agent", metavar="NAME", help="Only executions of this agent.")
@click.option(
    "--since", callback=moment_of, metavar="WHEN", help="Only what changed since then: 30m, 2h, 3d or an ISO time."
)
@click.option("--waiting", is_flag=True, help="Only what waits: for a person, a worker or its script; with the reason.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option("--all", "is_all", is_flag=True, help="All of them, however many there are.")
@backend_option
@json_option
def list_executions(
    place: BackendTarget, statuses: tuple[str, ...], waiting: bool, as_json: bool, **given: Any
) -> None:
    """List executions, the one that changed last first; the last 50 unless more are asked for.

    A RUNNING execution whose owner is gone was left behind by a process that died: the next worker resumes it, or its script
    when it is run again. Below the table stands why executions wait, where a worker has left them, and what
    is wrong with those that cannot be read: no worker runs them, "rm" removes them.

    With --waiting, those that nobody works on and that are not over: each with what it waits for (a person, a worker that has
    its agent in the same version, its script) and why; where its agent has changed, with the difference.

    \b
    With --json: a list of objects
      execution_id             text
      kind                     dispatched or inline
      agent                    the agent's name
      status                   PENDING, RUNNING, SUSPENDED, COMPLETED,
                               FAILED or CANCELLED
      is_cancelling            somebody has asked to cancel it
      note                     why a worker has left it; null if none has
      unreadable               why it cannot be read; null if it can
      run                      how often it was started over under its id
      calls, steps             how many the current run has recorded
      owner                    the process at work on it; null if there is none
      created_at, updated_at   ISO 8601, UTC
    and with --waiting also
      waits_for                person, worker (none has looked at it),
                               agent (no worker had it), version (workers
                               had another one) or script
      reason                   text, of several lines where the agent changed
      questions                as in show --json
    If there are more than were asked for, a line on stderr says so.
    """
    if waiting and statuses:
        raise click.UsageError("--waiting says which statuses: leave --status out.")
    asked = Asked(
        statuses=[ExecutionStatus(status) for status in statuses] or None,
        agent=given["agent"],
        since=given["since"],
        limit=None if given["is_all"] else given["limit"],
    )
    (_list_waits if waiting else _list)(place, asked, as_json)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What ``ls`` was asked for."""

    statuses: list[ExecutionStatus] | None
    agent: str | None
    since: float | None
    limit: int | None

    @property
    def one_more(self) -> int | None:
        """One more than was asked for: to see whether there are more."""
        return None if self.limit is None else self.limit + 1

    def cut(self, found: list[T]) -> list[T]:
        """Return as many as were asked for, and say so if there are more."""
        if self.limit is None or len(found) <= self.limit:
            return found
        click.echo(f"Only the last {self.limit} are listed. --limit N lists more, --all lists all.", err=True)
        return found[: self.limit]


def _list(place: BackendTarget, asked: Asked, as_json: bool) -> None:
    listing = place.visited().list(status=asked.statuses, agent=asked.agent, since=asked.since, limit=asked.one_more)
    found = asked.cut(asyncio.run(listing))
    if as_json:
        print_json([execution_json(record) for record in found])
    elif found:
        from .tables import console, execution_table, print_notes

        out = console()
        out.print(execution_table(found, out.width))
        print_notes(out, found)
    else:
        is_filtered = asked.statuses or asked.agent or asked.since
        click.echo("No such executions." if is_filtered else "No executions yet.")


def _list_waits(place: BackendTarget, asked: Asked, as_json: bool) -> None:
    found = asked.cut(asyncio.run(waits(place.visited(), asked.agent, asked.since, asked.one_more)))
    if as_json:
        print_json(masked([wait.to_json() for wait in found]))
    elif found:
        from .tables import console, print_waits

        print_waits(console(), found, place)
    else:
        click.echo("Nothing waits.")


@click.command()
@execution_argument
@click.argument("step", required=False)
@click.option("--full", "is_full", is_flag=True, help="With all that was given, said and returned, nothing shortened.")
@click.option("--run", type=click.IntRange(min=0), metavar="N", help="An earlier run of an id that was started over.")
@click.option("--unmasked", is_flag=True, help="Also what looks like a secret.")
@backend_option
@json_option
def show(
    execution_id: str,
    step: str | None,
    is_full: bool,
    run: int | None,
    unmasked: bool,
    place: BackendTarget,
    as_json: bool,
) -> None:
    """Show one execution: its calls, and the timeline of their steps.

    A step is "model 2", the second model call, or "2.0 book_hotel", the first block of its answer. A step is "in doubt" when it
    had started, and nobody lived to record its result. Tokens are input/output. Inputs and errors are shortened.

    With STEP, a number or name from the timeline ("2", "2.0", "2.0 book_hotel"): that step alone, with all it was given and
    gave, attempt by attempt. With --full, all steps so. What looks like a secret is masked, in JSON too.

    \b
    With --json: an object with
      execution   as in ls --json
      run         which run is shown
      runs        all runs under this id: a list of
                  {run, status, calls, steps, started_at, ended_at}
      calls       a list of objects
        kind, position, member, depth, scope
        input, is_redacted, phase, attempt, stop_reason, structured_output
        status      as that of an execution
        started_at, ended_at
        failures    a list of {attempt, error, at}
        questions   what it waits for: a list of
                    {interrupt_id, name, reason, answers}
        answers     what was answered: a list of
                    {interrupt_id, name, answer, by, at, is_taken}
        unreadable  why something of it cannot be read; null if all can
        steps       a list of objects, one for each attempt
          key, number, name, input, result, attempt, error
          kind        model, tool, effect or node
          status      as recorded: started, done, failed, interrupted,
                      unstorable or discarded
          state       what became of it, in the words of the table
          in_doubt    true or false
          started_at, ended_at, duration_seconds
          usage       {inputTokens, outputTokens, totalTokens, ...}
    With STEP: a list of such steps.
    Values are whole, bytes in the form in which they are recorded. Times are ISO 8601, UTC. What is not known is null.
    """
    detail = asyncio.run(_detail(place, execution_id, run))
    if step is not None:
        _show_step(detail, step, unmasked, as_json)
    elif as_json:
        print_json(_shown(detail_json(detail), unmasked))
    else:
        from .tables import How, console, print_detail

        print_detail(console(), detail, place, How(is_full=is_full, unmasked=unmasked))


def _shown(value: Any, unmasked: bool) -> Any:
    return value if unmasked else masked(value)


def _show_step(detail: ExecutionDetail, name: str, unmasked: bool, as_json: bool) -> None:
    found = steps_named(detail, name)
    if not found:
        labels = list(dict.fromkeys(one_line(step.label) for step in detail.steps))
        raise click.UsageError(
            f"Execution {detail.execution.execution_id!r} has no step {name!r}. It has: {', '.join(labels)}"
        )
    if as_json:
        print_json(_shown([step_json(step) for _, step in found], unmasked))
    else:
        click.echo("\n\n".join(step_text(call, step, unmasked=unmasked) for call, step in found))


async def _detail(place: BackendTarget, execution_id: str, run: int | None = None) -> ExecutionDetail:
    handle = await place.visited().get(execution_id)
    return await handle.detail(run)


@click.command()
@execution_argument
@click.option("--after", default=0, metavar="N", help="Begin after step number N.", show_default=True)
@backend_option
@json_option
def watch(execution_id: str, after: int, place: BackendTarget, as_json: bool) -> None:
    """Follow an execution as it goes, from its first step on.

    Prints a line for each committed step; on a terminal also the text that the model is just saying, except on Temporal,
    which carries only what is recorded. Ends when the execution has ended or waits for a person; the exit code tells which.
    Ctrl-C stops watching, not the execution.

    \b
    With --json: a line for each event, an object with
      number      of a committed step: its number in the execution;
                  of a piece: its number in the attempt
      recorded    true: a committed step. false: a piece of one under way
      step, attempt, kind, name
      status, result, error, usage   of a committed step
      data, event                    of a piece: its text, and as streamed
    and a last line {execution_id, status}.
    """
    seen = [after]
    try:
        status = asyncio.run(_followed(place, execution_id, seen, as_json))
    except KeyboardInterrupt:
        again = place.command(f"watch {execution_id} --after {seen[0]}")
        click.echo(f"\nNo longer watching; the execution goes on. To watch on: {again}", err=True)
        leave(INTERRUPTED)
    leave(code_of_status(status))


async def _followed(place: BackendTarget, execution_id: str, seen: list[int], as_json: bool) -> ExecutionStatus:
    from .stream_view import Lines

    handle = await place.visited().get(execution_id)
    await _tell_if_waiting(handle, place)
    lines = Lines(sys.stdout, is_live=sys.stdout.isatty())
    async for event in handle.stream(seen[0]):
        if as_json:
            print_json_line(event)
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


async def _tell_if_waiting(handle: ExecutionHandle, place: BackendTarget) -> None:
    """Say so if nobody is at work on what is to be watched: it may stay as it is for ever."""
    detail = await handle.detail()
    is_going = detail.execution.status in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)
    if is_going and detail.execution.owner is None:
        click.echo(f"Nobody is at work on it now; {next_step(detail, place)}", err=True)


async def _print_end(handle: ExecutionHandle, place: BackendTarget) -> None:
    detail = await handle.detail()
    click.echo(f"{handle.execution_id} is {detail.execution.status.value}.")
    if questions := await handle.interrupts():
        click.echo(listed(questions))
    if (then := next_step(detail, place)) is not None:
        click.echo(f"Next: {then}.")
