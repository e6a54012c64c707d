"""Commands that control an execution: respond, resume, cancel, rm. They record a request; no agent runs here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import click

from .._dispatch.ports import DurableBackend, ExecutionHandle
from .._records.executions import ExecutionRecord, ExecutionStatus
from .._records.printable import one_line
from .._records.results import OpenInterrupt
from .._records.views import ExecutionDetail
from ..errors import DurableError, InDoubtError
from .exit_codes import USAGE, leave, print_error
from .hints import is_dispatched, next_step
from .json_view import execution_json, print_json, questions_json
from .options import BackendTarget, backend_option, execution_argument, json_option, seconds_of
from .prompts import ask, is_terminal, listed, read

S = ExecutionStatus


@click.command()
@execution_argument
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="[INTERRUPT_ID=]JSON",
    help="Answer without a prompt. The id is optional if one question is open; repeat for several.",
)
@click.option("--by", metavar="NAME", help="Name to record with the answer.  [default: user@host]")
@backend_option
@json_option
def respond(execution_id: str, answers: tuple[str, ...], by: str | None, place: BackendTarget, as_json: bool) -> None:
    """Answer the open questions of an execution.

    Without --answer, each open question is asked on the terminal. Input that parses as JSON is used as JSON, anything else as
    text; null is not accepted. The answers, and who gave them, are recorded when the command returns. A worker then resumes
    the execution; if it was started inline, run its script again to resume it.

    A question about a step in doubt accepts "retry" (run the step again), "fail" (the model gets an error saying that the
    outcome is unknown) or {"result": ...} (the step happened, with this result). A question about a model call accepts "retry"
    and "fail".

    \b
    With --json: an object with
      execution   as in ls --json
      answered    the ids of the interrupts that were answered
      questions   the questions still open: a list of
                  {interrupt_id, name, reason, answers}
    """
    asyncio.run(_respond(place, execution_id, answers, by, as_json))


async def _respond(
    place: BackendTarget, execution_id: str, texts: Sequence[str], by: str | None, as_json: bool
) -> None:
    backend = place.visited()
    handle = await backend.get(execution_id)
    open_questions = await handle.interrupts()
    if not open_questions and not all("=" in text for text in texts or ("",)):
        raise _NothingAskedError(execution_id, (await handle.status()).value)
    if texts:
        answered = read(texts, open_questions)
        await handle.respond(answered, by=by)
    else:
        answered = await _asked(handle, place, open_questions, by)
    detail = await handle.detail()
    if as_json:
        left = questions_json(await handle.interrupts())
        print_json({"execution": execution_json(detail.execution), "answered": list(answered), "questions": left})
    else:
        print_next("Answer recorded.", detail, place)
        await warn_unattended(backend, detail.execution)


async def _asked(
    handle: ExecutionHandle, place: BackendTarget, questions: list[OpenInterrupt], by: str | None
) -> dict[str, Any]:
    if not is_terminal():
        click.echo(f"Error: {handle.execution_id} waits for answers, and stdin is not a terminal:", err=True)
        click.echo(listed(questions), err=True)
        one = place.command(f"respond {handle.execution_id} --answer")
        click.echo(f"Answer with: {one} {'JSON' if len(questions) == 1 else 'INTERRUPT_ID=JSON ...'}", err=True)
        leave(USAGE)
    return await asked(handle, questions, by)


async def asked(handle: ExecutionHandle, questions: list[OpenInterrupt], by: str | None = None) -> dict[str, Any]:
    """Ask questions on the terminal and record the answers; ask again after an answer that is not valid."""
    while True:
        answers = ask(questions)
        try:
            await handle.respond(answers, by=by)
            return answers
        except InDoubtError as error:
            print_error(error)


class _NothingAskedError(DurableError):
    """The execution has no open question."""

    def __str__(self) -> str:
        execution_id, status = self.args
        return f"Execution {execution_id!r} is {status} and has no open question."


@click.command()
@execution_argument
@click.option("--accept-drift", is_flag=True, help="Let a worker with a changed version of its agent resume it.")
@backend_option
@json_option
def resume(execution_id: str, accept_drift: bool, place: BackendTarget, as_json: bool) -> None:
    """Retry a failed execution from the failed step.

    The failure stays on record. If there is nothing to resume, the command changes nothing. An execution that was started
    inline is retried when its script runs again.

    If the agent has changed, its execution waits for a worker with the version that dispatched it, or fails with a DriftError;
    "ls --waiting" and "show" list the changes. With --accept-drift, the next worker that has the agent resumes it, as with
    on_drift="warn": the changes are logged, and finished tools do not run again. From then on the execution is bound to the
    version that resumed it.

    With --json: an object as in ls --json.
    """
    asyncio.run(_resume(place, execution_id, accept_drift, as_json))


async def _resume(place: BackendTarget, execution_id: str, accept_drift: bool, as_json: bool) -> None:
    backend = place.visited()
    handle = await backend.get(execution_id)
    before = (await handle.detail()).execution
    await handle.resume(accept_drift=accept_drift)
    detail = await handle.detail()
    is_waiting = before.status in (S.PENDING, S.RUNNING, S.SUSPENDED) and before.owner is None
    if as_json:
        print_json(execution_json(detail.execution))
    elif before.status is S.FAILED or (accept_drift and is_waiting):
        print_next("Requested." if is_dispatched(detail.execution) else "It was started inline.", detail, place)
        await warn_unattended(backend, detail.execution)
    else:
        status = detail.execution.status.value
        print_next(f"{execution_id} is {status}: nothing to resume.", detail, place)


@click.command()
@execution_argument
@backend_option
@json_option
def cancel(execution_id: str, place: BackendTarget, as_json: bool) -> None:
    """Cancel an execution.

    A cancelled execution cannot be resumed; what it recorded is kept. A running tool gets its cancel signal, and no further
    step starts. An execution that has ended is not changed.

    With --json: an object as in ls --json.
    """
    asyncio.run(_cancel(place, execution_id, as_json))


async def _cancel(place: BackendTarget, execution_id: str, as_json: bool) -> None:
    handle = await place.visited().get(execution_id)
    await handle.cancel()
    record = await _record(handle)
    if as_json:
        print_json(execution_json(record))
    elif record.status is S.CANCELLED:
        click.echo(f"{execution_id} is CANCELLED.")
    elif record.is_cancelling:
        owner = one_line(record.owner or "its owner")
        click.echo(f"Requested. {execution_id} is CANCELLED as soon as {owner} has stopped it.")
    else:
        click.echo(f"{execution_id} is {record.status.value}: nothing to cancel.")


@click.command("rm")
@click.argument("execution_ids", metavar="[ID]...", nargs=-1)
@click.option("--all-completed", is_flag=True, help="Remove all COMPLETED executions.")
@click.option(
    "--older-than",
    callback=seconds_of,
    metavar="SPAN",
    help="With --all-completed: only those unchanged for this long, such as 12h or 7d.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@backend_option
@json_option
def remove(
    execution_ids: tuple[str, ...],
    all_completed: bool,
    older_than: float | None,
    yes: bool,
    place: BackendTarget,
    as_json: bool,
) -> None:
    """Remove executions and everything they recorded.

    This cannot be undone. The ids can be used again. An execution that a process is running is refused, and on Temporal one
    that has not ended: cancel it first. On Temporal, removing one that has just ended takes about half a minute.

    With --json: an object {removed: a list of ids}.
    """
    if bool(execution_ids) == all_completed:
        raise click.UsageError("Pass the ids of the executions to remove, or --all-completed.")
    if older_than is not None and not all_completed:
        raise click.UsageError("--older-than needs --all-completed.")
    asyncio.run(_remove(place, execution_ids, older_than, yes, as_json))


async def _remove(
    place: BackendTarget, ids: tuple[str, ...], older_than: float | None, yes: bool, as_json: bool
) -> None:
    backend = place.visited()
    records = [await _record(await backend.get(each)) for each in dict.fromkeys(ids)]
    records = records or await _old(backend, older_than)
    if records and not yes:
        _confirm(records)
    removed = []
    for record in records:
        await backend.remove(record.execution_id)
        removed.append(record.execution_id)
        if not as_json:
            click.echo(f"Removed {record.execution_id}.")
    if as_json:
        print_json({"removed": removed})
    elif not removed:
        click.echo("Nothing to remove.")


async def _old(backend: DurableBackend, older_than: float | None) -> list[ExecutionRecord]:
    before = time.time() - (older_than or 0.0)
    return [record for record in await backend.list(status=S.COMPLETED) if record.updated_at <= before]


def _confirm(records: list[ExecutionRecord]) -> None:
    """Ask before anything is lost."""
    if not is_terminal():
        raise click.UsageError("stdin is not a terminal. Pass --yes to remove without confirmation.")
    for record in records:
        click.echo(f"  {record.execution_id}  {record.status.value}, {record.steps} steps", err=True)
    what = "this execution" if len(records) == 1 else f"these {len(records)} executions"
    click.confirm(f"Remove {what} and everything recorded? This cannot be undone", abort=True, err=True)


async def _record(handle: ExecutionHandle) -> ExecutionRecord:
    return (await handle.detail()).execution


async def warn_unattended(backend: DurableBackend, record: ExecutionRecord | None = None) -> None:
    """Warn on stderr if no worker takes what is dispatched there and the execution waits for one."""
    if record is not None and (record.owner is not None or record.status not in (S.PENDING, S.RUNNING)):
        return
    warning = await backend.unattended()
    if warning is not None:
        click.echo(f"Warning: {warning}", err=True)


def print_next(done: str, detail: ExecutionDetail, place: BackendTarget) -> None:
    """Print what was done, and what makes the execution continue."""
    then = next_step(detail, place)
    click.echo(done if then is None else f"{done} Next: {then}")
