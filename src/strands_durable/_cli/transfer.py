"""Commands that move an execution: export it to a file, and import it from one."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from .._dispatch.connect import connect
from .._records.executions import ExecutionStatus
from .control import warn_unattended
from .hints import is_dispatched, next_step
from .json_view import execution_json, print_json
from .options import BackendTarget, backend_option, execution_argument, json_option

S = ExecutionStatus
_STDIO = "-"


@click.command("export")
@execution_argument
@click.option(
    "--to",
    "target",
    default=_STDIO,
    metavar="FILE",
    callback=lambda ctx, param, text: _target(ctx, param, text),
    help="Where to write it; - is standard output.  [default: -]",
)
@click.option("--redacted", is_flag=True, help="Leave out all contents: for a bug report. It cannot be imported.")
@backend_option
def export_execution(execution_id: str, target: str, redacted: bool, place: BackendTarget) -> None:
    """Write everything recorded of an execution to a JSON file.

    The file holds the prompts, messages, results and state of the execution: treat it as you treat these. It does not hold the
    keys of the store, nor who runs the execution. A new file is readable only by you. An execution that runs is exported as it
    is at that moment.

    With --redacted, the file holds what ran, when and how it ended, the names of agents, models, tools, nodes and tags, and the
    sizes of everything else: no text of a prompt, message, input, result, state, error or tag.

    strands-durable import reads the file; strands_durable.testing.assert_replays makes a test of it.
    """
    asyncio.run(_export(place, execution_id, target, redacted))


async def _export(place: BackendTarget, execution_id: str, target: str, redacted: bool) -> None:
    from .._enginekit.export_files import text_of

    handle = await place.visited().get(execution_id)
    text = text_of(await handle.export(contents=not redacted))
    if target == _STDIO:
        click.echo(text, nl=False)
        return
    try:
        _write(Path(target), text)
    except OSError as error:
        raise click.ClickException(f"{target} cannot be written: {error.strerror}. Name another file.") from None
    click.echo(f"Exported {execution_id} to {target}{' without contents' if redacted else ''}.")


def _target(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """Return the name of a file that can be written, as far as that can be known before."""
    path = Path(text)
    if text != _STDIO and (not text.strip() or path.is_dir()):
        raise click.BadParameter(f"{text!r} is a folder. Name a file.", ctx, param)
    if text != _STDIO and not path.parent.is_dir():
        raise click.BadParameter(
            f"{str(path.parent)!r} is not a folder. Make it first, or name another one.", ctx, param
        )
    return text


def _write(path: Path, text: str) -> None:
    """Write a file as a whole, or not at all; only its owner may read it. A pipe or device is not replaced by a file."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@click.command("import")
@click.argument("source", metavar="FILE")
@click.option("--id", "execution_id", metavar="ID", help="Id to record it under.  [default: its own]")
@backend_option
@json_option
def import_execution(source: str, execution_id: str | None, place: BackendTarget, as_json: bool) -> None:
    """Record an execution from a file that export wrote; - is standard input.

    Nothing is recorded unless all of it is. Steps that have finished do not run again. An execution that has not ended resumes:
    a dispatched one as soon as a worker of this backend takes it, an inline one when its script runs on this store. Both copies
    would then do what is left, so make sure that only one of them runs.

    Under its own id an execution keeps the idempotency keys of its steps; under another id it has new ones. A SQLite file takes
    every execution, other engines only dispatched ones that have something left to run.

    \b
    With --json: an object with
      execution   as in ls --json
    """
    asyncio.run(_import(place, source, execution_id, as_json))


async def _import(place: BackendTarget, source: str, execution_id: str | None, as_json: bool) -> None:
    backend = connect(place.url).working("off")
    handle = await backend.import_execution(_read(source), execution_id=execution_id)
    detail = await handle.detail()
    record = detail.execution
    if as_json:
        print_json({"execution": execution_json(record)})
        return
    done = f"Imported {record.execution_id}: {record.status.value}, {record.steps} steps."
    then = next_step(detail, place)
    click.echo(done if then is None else f"{done} Next: {then}")
    if is_dispatched(record) and record.status in (S.PENDING, S.RUNNING):
        await warn_unattended(backend, record)


def _read(source: str) -> dict[str, Any]:
    from .._enginekit.export_files import MAX_BYTES, parsed, parsed_file

    if source != _STDIO:
        return parsed_file(Path(source))
    with click.open_file(_STDIO, "rb") as stream:
        return parsed(stream.read(MAX_BYTES + 1), "Standard input")
