"""Commands about a store as a whole: backup, verify."""

from __future__ import annotations

import asyncio
import sys

import click

from .._records.printable import one_line, printable
from .._records.verification import DamagedExecution, Problem, Verification
from .exit_codes import ERROR, leave
from .json_view import print_json
from .options import BackendTarget, backend_option, json_option

_SHOWN = 100
"""How many problems are printed; --json prints all."""


@click.command()
@click.argument("target", metavar="TO", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Replace the file TO if it exists.")
@backend_option
@json_option
def backup(target: str, force: bool, place: BackendTarget, as_json: bool) -> None:
    """Copy a SQLite store to the file TO, while it is in use.

    The copy holds what was committed at one moment, and can be used like any store. Writers do not wait for it. Only its owner
    can read it, and it has the name TO once it is complete: a backup that was killed leaves nothing of that name. Executions
    of the copy have no owner, so they can be resumed at once.

    On Temporal, AWS Lambda and Dapr, a server keeps the executions: the error says what to back up.

    \b
    With --json: an object with
      backup      the path of the copy
      bytes       its size
    """
    line = _Line()
    backend = place.visited()
    size = asyncio.run(backend.backup(target, force=force, progress=lambda done, all_: line.show(_share(done, all_))))
    line.clear()
    if as_json:
        print_json({"backup": target, "bytes": size})
    else:
        click.echo(f"Copied {size / (1 << 20):.1f} MB to {one_line(target)}.")


def _share(done: int, all_: int) -> str:
    return f"Copied {100 * done // max(all_, 1)} %"


@click.command()
@backend_option
@json_option
def verify(place: BackendTarget, as_json: bool) -> None:
    """Check a SQLite store from end to end, and say what is wrong and what is lost.

    Checks SQLite's pages and indexes, the tables, the checksum of every row, the digests of large bytes, every reference, and
    that statuses agree with what is recorded. Changes nothing, and can be used while agents run, and on a copy that is only
    readable. What it reads is one moment.

    The exit code is 1 if something is wrong.

    \b
    With --json: an object with
      store, format
      is_sound    whether nothing is wrong
      is_locked   whether contents are encrypted and there was no key: they were not decrypted
      executions, rows, blobs   how many were checked
      problems    a list of {check, text, table, execution_id}
      damaged     a list of {execution_id, status, lost, can_resume, problems}
                  lost: a list of texts; can_resume: null if it has ended
    """
    line = _Line()
    found = asyncio.run(place.visited().verify(progress=lambda what: line.show(f"Checking {what}")))
    line.clear()
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    if not found.is_sound:
        leave(ERROR)


def _print(found: Verification) -> None:
    counted = f"{found.executions:,} executions, {found.rows:,} rows and {found.blobs:,} large values"
    if found.is_sound:
        click.echo(f"Sound: {counted} are as they were written (format {found.format}).")
        _print_locked(found)
        return
    for problem in found.problems[:_SHOWN]:
        click.echo(f"{problem.check:9}  {_where(problem)}{printable(problem.text)}")
    if len(found.problems) > _SHOWN:
        click.echo(f"... and {len(found.problems) - _SHOWN:,} more; --json prints all.")
    for each in found.damaged:
        click.echo(f"\n{one_line(each.execution_id)} ({one_line(each.status)}): {_loss(each)}")
    click.echo(f"\nDamaged: {len(found.problems):,} problems in {counted}.")
    _print_locked(found)
    click.echo(
        "Stop every process that uses the store, keep a copy of it, and restore a backup; what is not named above is sound."
    )


def _print_locked(found: Verification) -> None:
    if found.is_locked:
        click.echo(
            "The contents are encrypted, and no key was usable: they were compared with their checksums and not decrypted. "
            "Whether phases, messages and configurations agree with the rest was not checked."
        )


def _where(problem: Problem) -> str:
    return "" if problem.execution_id is None else f"{one_line(problem.execution_id)}: "


def _loss(each: DamagedExecution) -> str:
    lost = "; ".join(each.lost) or "nothing that was recorded is lost"
    if each.can_resume is None:
        return f"{lost}."
    return f"{lost}; it {'can' if each.can_resume else 'cannot'} be resumed."


class _Line:
    """A line on a terminal that says how far a command has come; elsewhere nothing."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._text = ""

    def show(self, text: str) -> None:
        """Print a text in the place of the one before."""
        if self._is_shown and text != self._text:
            click.echo(f"\r\x1b[K{text} ...", err=True, nl=False)
            self._text = text

    def clear(self) -> None:
        """Leave the line empty."""
        if self._text:
            click.echo("\r\x1b[K", err=True, nl=False)
