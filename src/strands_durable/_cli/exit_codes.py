"""How a command ends: distinct exit codes for scripts, and errors as one line instead of a traceback."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, NoReturn

import click

from .._dispatch.ports import must_end_at_once
from .._records.cipher import without_keys
from .._records.executions import ExecutionStatus
from .._records.printable import masked_text, one_line
from ..errors import DurableError, ExecutionCancelledError, ExecutionFailedError, ExecutionNotFoundError

ERROR, USAGE, NOT_FOUND, FAILED, SUSPENDED, CANCELLED, AT_WORK = 1, 2, 3, 4, 5, 6, 7
INTERRUPTED = 130
"""What a shell reports for Ctrl-C."""
TRACEBACK = "STRANDS_DURABLE_TRACEBACK"

_LONG = 2500
"""How many characters of an error are printed."""

_BY_STATUS = {
    ExecutionStatus.COMPLETED: 0,
    ExecutionStatus.FAILED: FAILED,
    ExecutionStatus.SUSPENDED: SUSPENDED,
    ExecutionStatus.CANCELLED: CANCELLED,
}
_BY_ERROR: dict[type[Exception], int] = {
    ExecutionNotFoundError: NOT_FOUND,
    ExecutionFailedError: FAILED,
    ExecutionCancelledError: CANCELLED,
}


class Commands(click.Group):
    """Commands that print each error as one line."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program and exit with its code."""
        try:
            return super().__call__(*args, **kwargs)
        except SystemExit as ended:
            if must_end_at_once():
                leave_at_once(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse what is no text, before a command, a file or a store meets it."""
        for number, given in enumerate(args, 1):
            if "\0" in given or not _is_text(given):
                raise click.UsageError(
                    f"Argument {number} is not text: it has bytes that are not UTF-8, or a NUL.", ctx
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; print its error instead of raising it."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            vars(error)["message"] = _cut(
                without_keys(error.message)
            )  # one may have been typed where it does not belong
            raise
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if os.environ.get(TRACEBACK) or getattr(error, "errno", None) == errno.EPIPE:
                raise
            print_error(error)
            ctx.exit(code_of(error))


def _is_text(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def code_of_status(status: ExecutionStatus) -> int:
    """Return the exit code for an execution that was waited for."""
    return _BY_STATUS.get(status, AT_WORK)


def code_of(error: Exception) -> int:
    """Return the exit code for an error."""
    if isinstance(error, TimeoutError):
        return AT_WORK
    return _BY_ERROR.get(type(error), ERROR)


def print_error(error: Exception) -> None:
    """Print an error as one line, with passwords in URLs masked."""
    click.echo(f"Error: {_cut(one_line(masked_text(_text(error))))}", err=True)


def _cut(text: str) -> str:
    """Return an error without its middle if it is long: what happened is at its beginning, what to do at its end."""
    return text if len(text) <= _LONG else f"{text[: _LONG // 2]} [...] {text[-_LONG // 2 :]}"


def _text(error: Exception) -> str:
    if isinstance(error, (DurableError, TimeoutError)):
        return str(error)
    from .._dispatch.agent_files import place_of

    place = place_of(error)
    if isinstance(error, OSError) and error.filename is not None and not place:
        return f"{error.filename}: {error.strerror}. Pass another path, or make this one usable."
    where = f" ({place})" if place else ""
    return f"{type(error).__name__}: {error}{where}. Set {TRACEBACK}=1 to see the traceback."


def leave(code: int) -> NoReturn:
    """End the command with an exit code."""
    click.get_current_context().exit(code)


def leave_at_once(code: int) -> NoReturn:
    """Exit without waiting for tools that run in threads; their steps are left in doubt."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
