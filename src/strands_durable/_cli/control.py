"""Commands that control executions: respond, resume, cancel. They record a request; no agent runs here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from .._dispatch.handles import ExecutionHandle
from .._dispatch.ports import DurableBackend
from .._records.executions import OTHER_VERSION, ExecutionRecord, ExecutionStatus
from .._records.printable import masked, one_line
from .._records.results import OpenInterrupt
from .._records.views import ExecutionDetail
from ..errors import DurableError, ExecutionCancelledError, InDoubtError
from .bulk import OPEN, Change, SkippedError, change_matching, record_of, refuse_both
from .exit_codes import USAGE, leave, print_error
from .filters import Filters, bulk_options
from .hints import is_dispatched, next_step
from .json_view import execution_json, print_json, questions_json
from .options import BackendTarget, backend_option, execution_argument, json_option, optional_execution_argument
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
        left = masked(questions_json(await handle.interrupts()))
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
@optional_execution_argument
@click.option("--accept-drift", is_flag=True, help="Let a worker with a changed version of its agent resume it.")
@bulk_options
@backend_option
@json_option
def resume(execution_id: str | None, accept_drift: bool, place: BackendTarget, as_json: bool, **options: Any) -> None:
    """Retry failed executions from the failed step: one, or all that match filters.

    The failure stays on record. If there is nothing to resume, the command changes nothing. An execution that was started
    inline is retried when its script runs again.

    If the agent has changed, its execution waits for a worker with the version that dispatched it, or fails with a DriftError;
    "ls --waiting" and "show" list the changes. With --accept-drift, the next worker that has the agent resumes it, as with
    on_drift="warn": the changes are logged, and finished tools do not run again. From then on the execution is bound to the
    version that resumed it.

    In place of ID, filters as in ls name the executions; without --status, those that are FAILED, and with --accept-drift also
    those that wait for another version of their agent. They are listed, you are
    asked once, and each is reported. One that has changed in the meantime is skipped. If one cannot be resumed, the others
    are, and the exit code is not 0.

    \b
    With --json and ID: an object as in ls --json.
    With --json and filters: an object with
      resumed     a list of ids
      skipped     a list of {execution_id, reason}
      failed      a list of {execution_id, error}
    With --json and --dry-run: a list as in ls --json.
    """
    filters = Filters.of(options, (S.FAILED,))
    refuse_both(execution_id, filters)
    if filters is not None and accept_drift and not options["statuses"]:
        filters = replace(filters, statuses=frozenset((S.FAILED, S.PENDING, S.RUNNING)), is_wanted=_waits_for_drift)
    if execution_id is None:
        assert filters is not None
        change = Change(verb="resume", done="resumed", question="Resume {what}?", make=_resumed(accept_drift))
        change_matching(place, filters, change, **_how(options), as_json=as_json)
        return
    _refuse_dry(options)
    asyncio.run(_resume(place, execution_id, accept_drift, as_json))


def _how(options: dict[str, Any]) -> dict[str, bool]:
    return {name: options[name] for name in ("is_dry", "yes")}


def _refuse_dry(options: dict[str, Any]) -> None:
    if options["is_dry"]:
        raise click.UsageError("--dry-run is for filters such as --status, --since or --tag.")


def _resumed(accept_drift: bool) -> Callable[[DurableBackend, ExecutionRecord], Awaitable[str]]:
    async def make(backend: DurableBackend, record: ExecutionRecord) -> str:
        if not _can_resume(record, accept_drift):
            raise SkippedError(f"it is {record.status.value}: nothing to resume")
        if not is_dispatched(record):
            raise SkippedError("it was started inline; run its script again to retry it")
        try:
            await (await backend.get(record.execution_id)).resume(accept_drift=accept_drift)
        except ExecutionCancelledError:
            raise SkippedError("it was cancelled in the meantime") from None
        return f"Resumed {one_line(record.execution_id)}."

    return make


def _waits_for_drift(record: ExecutionRecord) -> bool:
    """Return whether an execution has failed, or waits for a version of its agent that no worker has."""
    is_waiting = record.owner is None and OTHER_VERSION in (record.note or "").partition("\n")[0]
    return record.status is S.FAILED or is_waiting


def _can_resume(record: ExecutionRecord, accept_drift: bool) -> bool:
    return record.status is S.FAILED or (accept_drift and record.status in OPEN and record.owner is None)


async def _resume(place: BackendTarget, execution_id: str, accept_drift: bool, as_json: bool) -> None:
    backend = place.visited()
    handle = await backend.get(execution_id)
    before = (await handle.detail()).execution
    await handle.resume(accept_drift=accept_drift)
    detail = await handle.detail()
    if as_json:
        print_json(execution_json(detail.execution))
    elif _can_resume(before, accept_drift):
        print_next("Requested." if is_dispatched(detail.execution) else "It was started inline.", detail, place)
        await warn_unattended(backend, detail.execution)
    else:
        status = detail.execution.status.value
        print_next(f"{execution_id} is {status}: nothing to resume.", detail, place)


@click.command()
@optional_execution_argument
@bulk_options
@backend_option
@json_option
def cancel(execution_id: str | None, place: BackendTarget, as_json: bool, **options: Any) -> None:
    """Cancel executions: one, or all that match filters.

    A cancelled execution cannot be resumed; what it recorded is kept. A running tool gets its cancel signal, and no further
    step starts. An execution that has ended is not changed.

    In place of ID, filters as in ls name the executions; without --status, those that have not ended. They are listed, you are
    asked once, and each is reported. One that has ended in the meantime is skipped. If one cannot be cancelled, the others
    are, and the exit code is not 0.

    \b
    With --json and ID: an object as in ls --json.
    With --json and filters: an object with
      cancelled   a list of ids; a running one is CANCELLED as soon as its
                  owner has stopped it
      skipped     a list of {execution_id, reason}
      failed      a list of {execution_id, error}
    With --json and --dry-run: a list as in ls --json.
    """
    filters = Filters.of(options, OPEN)
    refuse_both(execution_id, filters)
    if execution_id is None:
        assert filters is not None
        question = "Cancel {what}? Cancelled executions cannot be resumed"
        change = Change(verb="cancel", done="cancelled", question=question, make=_cancelled)
        change_matching(place, filters, change, **_how(options), as_json=as_json)
        return
    _refuse_dry(options)
    asyncio.run(_cancel(place, execution_id, as_json))


async def _cancelled(backend: DurableBackend, listed: ExecutionRecord) -> str:
    handle = await backend.get(listed.execution_id)
    if listed.status not in OPEN:
        raise SkippedError(f"it is {listed.status.value}: nothing to cancel")
    await handle.cancel()
    record = await record_of(handle)
    if record.status not in (*OPEN, S.CANCELLED):
        raise SkippedError(f"it has ended in the meantime, and is {record.status.value}")
    return _end_of_cancel(record)


async def _cancel(place: BackendTarget, execution_id: str, as_json: bool) -> None:
    handle = await place.visited().get(execution_id)
    await handle.cancel()
    record = await record_of(handle)
    if as_json:
        print_json(execution_json(record))
    else:
        click.echo(_end_of_cancel(record))


def _end_of_cancel(record: ExecutionRecord) -> str:
    execution_id = record.execution_id
    if record.status is S.CANCELLED:
        return f"{execution_id} is CANCELLED."
    if record.is_cancelling:
        owner = one_line(record.owner or "its owner")
        return f"Requested. {execution_id} is CANCELLED as soon as {owner} has stopped it."
    return f"{execution_id} is {record.status.value}: nothing to cancel."


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
