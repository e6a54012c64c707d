"""Commands that record what is to become of an execution: respond, resume, cancel, rm. No agent runs here."""

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
from .exit_codes import USAGE, leave, tell
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
    help="The answer, for scripts. Without an id if one question is open, else once for each.",
)
@click.option("--by", metavar="NAME", help="Who answers, for the record.  [default: user@host]")
@backend_option
@json_option
def respond(execution_id: str, answers: tuple[str, ...], by: str | None, place: BackendTarget, as_json: bool) -> None:
    """Answer the questions that an execution waits for.

    Without --answer each open question is asked on the terminal. What you type is taken as JSON if it is JSON, else as text.
    The answers are on record when the command ends, with who gave them. A worker resumes the execution; one that was run inline
    resumes when its script is run again.

    A question about a step in doubt takes "retry" (run it again), "fail" (the model gets an error that says the outcome is
    unknown) or {"result": ...} (it happened, with this result); a question about a model call takes the first two. null is no
    answer.

    \b
    With --json: an object with
      execution   as in ls --json
      answered    the ids of the interrupts that were answered
      questions   what is still open: a list of {interrupt_id, name, reason}
    """
    asyncio.run(_respond(place, execution_id, answers, by, as_json))


async def _respond(
    place: BackendTarget, execution_id: str, given: Sequence[str], by: str | None, as_json: bool
) -> None:
    backend = place.visited()
    handle = await backend.get(execution_id)
    open_questions = await handle.interrupts()
    if not open_questions and not all("=" in text for text in given or ("",)):
        raise _NothingAskedError(execution_id, (await handle.status()).value)
    if given:
        answered = read(given, open_questions)
        await handle.respond(answered, by=by)
    else:
        answered = await _asked(handle, place, open_questions, by)
    detail = await handle.detail()
    if as_json:
        left = questions_json(await handle.interrupts())
        print_json({"execution": execution_json(detail.execution), "answered": list(answered), "questions": left})
    else:
        _tell_next("Recorded.", detail, place)
        await warn_unattended(backend, detail.execution)


async def _asked(
    handle: ExecutionHandle, place: BackendTarget, questions: list[OpenInterrupt], by: str | None
) -> dict[str, Any]:
    if not is_terminal():
        click.echo(f"Error: {handle.execution_id} waits for answers, and there is no terminal to ask on:", err=True)
        click.echo(listed(questions), err=True)
        one = place.command(f"respond {handle.execution_id} --answer")
        click.echo(f"Answer with: {one} {'JSON' if len(questions) == 1 else 'INTERRUPT_ID=JSON ...'}", err=True)
        leave(USAGE)
    return await asked(handle, questions, by)


async def asked(handle: ExecutionHandle, questions: list[OpenInterrupt], by: str | None = None) -> dict[str, Any]:
    """Ask questions on the terminal and record the answers; what is no answer is asked again."""
    while True:
        answers = ask(questions)
        try:
            await handle.respond(answers, by=by)
            return answers
        except InDoubtError as error:
            tell(error)


class _NothingAskedError(DurableError):
    """There is no question to answer."""

    def __str__(self) -> str:
        execution_id, status = self.args
        return f"Execution {execution_id!r} is {status} and waits for no answer."


@click.command()
@execution_argument
@click.option("--accept-drift", is_flag=True, help="Let another version of its agent resume it.")
@backend_option
@json_option
def resume(execution_id: str, accept_drift: bool, place: BackendTarget, as_json: bool) -> None:
    """Have a failed execution tried again, from the failed step.

    The failure stays on record. Nothing happens where there is nothing to resume. One that was run inline is tried again when
    its script is run again.

    An execution whose agent has changed since waits for a worker with the version that dispatched it, or has failed with a
    DriftError; "ls --waiting" and "show" tell what changed. With --accept-drift, the next worker that has the agent resumes it,
    as on_drift="warn" does: what changed is logged, and a finished tool does not run again. From then on the execution belongs
    to the version that resumed it.

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
        _tell_next("Recorded." if is_dispatched(detail.execution) else "It belongs to a script.", detail, place)
        await warn_unattended(backend, detail.execution)
    else:
        status = detail.execution.status.value
        _tell_next(f"{execution_id} is {status}: there is nothing to resume.", detail, place)


@click.command()
@execution_argument
@backend_option
@json_option
def cancel(execution_id: str, place: BackendTarget, as_json: bool) -> None:
    """Stop an execution for good.

    What is recorded stays. A running tool sees its cancel signal; nothing more starts. Nothing happens to one that has ended.

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
        click.echo(f"Asked {owner} to stop; {execution_id} is CANCELLED as soon as it has.")
    else:
        click.echo(f"{execution_id} is {record.status.value}: there is nothing to cancel.")


@click.command("rm")
@click.argument("execution_ids", metavar="[ID]...", nargs=-1)
@click.option("--all-completed", is_flag=True, help="Remove all that are COMPLETED.")
@click.option(
    "--older-than",
    callback=seconds_of,
    metavar="SPAN",
    help="With --all-completed: that did not change for 12h, 7d, ...",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
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
    """Remove executions with all they recorded.

    Their text is gone, and their ids can be used anew. An execution whose owner is alive is refused, on Temporal one that has
    not ended: cancel it first. There, one that ended a moment ago takes half a minute.

    With --json: an object {removed: a list of ids}.
    """
    if bool(execution_ids) == all_completed:
        raise click.UsageError("Name the executions to remove, or pass --all-completed.")
    if older_than is not None and not all_completed:
        raise click.UsageError("--older-than goes with --all-completed.")
    asyncio.run(_remove(place, execution_ids, older_than, yes, as_json))


async def _remove(
    place: BackendTarget, given: tuple[str, ...], older_than: float | None, yes: bool, as_json: bool
) -> None:
    backend = place.visited()
    found = [await _record(await backend.get(each)) for each in dict.fromkeys(given)] or await _old(backend, older_than)
    if found and not yes:
        _confirm(found)
    removed = []
    for record in found:
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


def _confirm(found: list[ExecutionRecord]) -> None:
    """Ask before anything is lost."""
    if not is_terminal():
        raise click.UsageError("There is no terminal to ask on. Pass --yes to remove without asking.")
    for record in found:
        click.echo(f"  {record.execution_id}  {record.status.value}, {record.steps} steps", err=True)
    what = "this execution" if len(found) == 1 else f"these {len(found)} executions"
    click.confirm(f"Remove {what}? What is recorded is lost", abort=True, err=True)


async def _record(handle: ExecutionHandle) -> ExecutionRecord:
    return (await handle.detail()).execution


async def warn_unattended(backend: DurableBackend, record: ExecutionRecord | None = None) -> None:
    """Say on stderr that nobody works on what is dispatched there, if that is so and the execution waits for it."""
    if record is not None and (record.owner is not None or record.status not in (S.PENDING, S.RUNNING)):
        return
    said = await backend.unattended()
    if said is not None:
        click.echo(f"Nobody works on it: {said}", err=True)


def _tell_next(done: str, detail: ExecutionDetail, place: BackendTarget) -> None:
    then = next_step(detail, place)
    click.echo(done if then is None else f"{done} Next: {then}.")
