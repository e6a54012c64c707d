"""Commands that look, and change nothing: ls, show, watch."""

from __future__ import annotations

import asyncio
import sys

import click

from .._handle import ExecutionHandle
from .._records import ExecutionRecord, ExecutionStatus
from .._summaries import ExecutionDetail
from .advice import next_step
from .exits import INTERRUPTED, code_of_status, leave
from .options import Place, backend_option, execution_argument, json_option, moment_of
from .questions import listed
from .shapes import detail_json, execution_json, print_json, print_json_line


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
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@backend_option
@json_option
def list_executions(
    place: Place, statuses: tuple[str, ...], agent: str | None, since: float | None, limit: int | None, as_json: bool
) -> None:
    """List executions, the one that changed last first.

    A RUNNING execution whose owner is gone was left behind by a process that died: the next worker goes on with it, or its
    script when it is run again. Below the table stands why executions wait, where a worker has left them, and what is wrong
    with those that cannot be read: no worker runs them, "rm" removes them.

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
    """
    wanted = [ExecutionStatus(status) for status in statuses] or None
    listing = place.visited().list(status=wanted, agent=agent, since=since, limit=limit)
    found = asyncio.run(listing)
    if as_json:
        print_json([execution_json(record) for record in found])
    elif found:
        _print_table(found)
    else:
        click.echo("No such executions." if statuses or agent or since else "No executions yet.")


def _print_table(found: list[ExecutionRecord]) -> None:
    from .tables import console, execution_table, print_notes

    out = console()
    out.print(execution_table(found))
    print_notes(out, found)


@click.command()
@execution_argument
@backend_option
@json_option
def show(execution_id: str, place: Place, as_json: bool) -> None:
    """Show one execution: its calls, and the timeline of their steps.

    A step is "model 2", the second model call, or "2.0 book_hotel", the first block of its answer. A step is "in doubt" when
    it had started, and nobody lived to record its result. Tokens are input/output. Inputs and errors are shortened; what looks
    like a secret is masked.

    \b
    With --json: an object with
      execution   as in ls --json
      calls       a list of objects
        kind, position, member, depth, scope
        input, phase, attempt, stop_reason
        status      as that of an execution
        started_at, ended_at
        failures    a list of {attempt, error, at}
        questions   what it waits for: a list of {interrupt_id, name, reason}
        unreadable  why something of it cannot be read; null if all can
        steps       a list of objects, one for each attempt
          key, number, name, input, attempt, error
          kind        model, tool, effect or node
          status      as recorded: started, done, failed, interrupted,
                      unstorable or discarded
          state       what became of it, in the words of the table
          in_doubt    true or false
          started_at, ended_at, duration_seconds
          usage       {inputTokens, outputTokens, totalTokens, ...}
    Times are ISO 8601, UTC. What is not known is null.
    """
    detail = asyncio.run(_detail(place, execution_id))
    if as_json:
        print_json(detail_json(detail))
    else:
        from .tables import console, print_detail

        print_detail(console(), detail, place)


async def _detail(place: Place, execution_id: str) -> ExecutionDetail:
    handle = await place.visited().get(execution_id)
    return await handle.detail()


@click.command()
@execution_argument
@click.option("--after", default=0, metavar="N", help="Begin after step number N.", show_default=True)
@backend_option
@json_option
def watch(execution_id: str, after: int, place: Place, as_json: bool) -> None:
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


async def _followed(place: Place, execution_id: str, seen: list[int], as_json: bool) -> ExecutionStatus:
    from .following import Lines

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


async def _tell_if_waiting(handle: ExecutionHandle, place: Place) -> None:
    """Say so if nobody is at work on what is to be watched: it may stay as it is for ever."""
    detail = await handle.detail()
    is_going = detail.execution.status in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)
    if is_going and detail.execution.owner is None:
        click.echo(f"Nobody is at work on it now; {next_step(detail, place)}", err=True)


async def _print_end(handle: ExecutionHandle, place: Place) -> None:
    detail = await handle.detail()
    click.echo(f"{handle.execution_id} is {detail.execution.status.value}.")
    if questions := await handle.interrupts():
        click.echo(listed(questions))
    if (then := next_step(detail, place)) is not None:
        click.echo(f"Next: {then}.")
