"""Options that several commands share: a backend, JSON values, times."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from .._dispatch.connect import DEFAULT_URL, VARIABLE, connect
from .._dispatch.ports import DurableBackend
from .._records.durations import seconds_in
from .._records.listing import Cursor
from .._records.printable import url_for_people
from .._records.tags import checked_tags
from ..errors import InvalidTagError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class BackendTarget:
    """The backend that a command uses."""

    url: str
    is_said: bool
    """Named on the command line, not in the environment and not the default."""

    def visited(self) -> DurableBackend:
        """Return the backend for reading and control: starts no worker, creates no store."""
        backend = connect(self.url).working("off")
        backend.refuse_unreadable()
        return backend

    @property
    def invoker(self) -> str | None:
        """What makes executions run there; None: a worker, which has to be started."""
        return connect(self.url).invoker

    def command(self, text: str) -> str:
        """Return a command to copy; a password in the backend's URL is masked."""
        shown = url_for_people(self.url)
        return f"strands-durable {text}" + (f" --backend {shlex.quote(shown)}" if self.is_said else "")


def _place(ctx: click.Context, param: click.Parameter, value: str) -> BackendTarget:
    assert param.name is not None
    if not value.strip():
        raise click.BadParameter("It is empty. Pass the path of a SQLite file, or a URL.", ctx, param)
    return BackendTarget(url=value, is_said=ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE)


def backend_option(command: F) -> F:
    """Let a command take a backend."""
    return click.option(
        "--backend",
        "--store",
        "place",
        metavar="URL_OR_PATH",
        envvar=VARIABLE,
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        callback=_place,
        help="Where executions are stored: a SQLite file (PATH or sqlite:///PATH), temporal://HOST:PORT,"
        " lambda://FUNCTION:ALIAS, or dapr://HOST:PORT.",
    )(command)


def json_option(command: F) -> F:
    """Let a command print JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shape described above.")(command)


def execution_argument(command: F) -> F:
    """Let a command take the id of an execution."""
    return click.argument("execution_id", metavar="ID")(command)


def optional_execution_argument(command: F) -> F:
    """Let a command take the id of an execution, or filters in its place."""
    return click.argument("execution_id", metavar="[ID]", required=False)(command)


def strict_json(text: str) -> Any:
    """Parse strict JSON; raise ValueError if it is none, has NaN or Infinity, or is nested too deeply to be read."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def not_json(text: str) -> str:
    """Return the error message for a text that is not JSON."""
    return f"{text!r} is not JSON. To pass it as text, write {shlex.quote(json.dumps(text))}."


def seconds_of(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Return the seconds of a duration such as 30m, 2h or 7d."""
    if text is None:
        return None
    try:
        return seconds_in(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def moment_of(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Return a point in time, in seconds since the epoch: a duration ago, or an ISO 8601 time."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        return time.time() - (seconds_of(ctx, param, text) or 0.0)
    except click.BadParameter:
        message = f"{text!r} is not a time. Use a form such as 30m, 2h, 7d or 2025-01-31T12:00."
        raise click.BadParameter(message, ctx, param) from None


def tags_option(purpose: str) -> Callable[[F], F]:
    """Let a command take tags."""
    return click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=_tags, help=purpose)


def _tags(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} has no value. Use NAME=VALUE.", ctx, param)
        if found.setdefault(name, value) != value:
            raise click.BadParameter(f"{name!r} has two values.", ctx, param)
    try:
        return checked_tags(found)
    except InvalidTagError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def cursor_of(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return the cursor of a listed execution, if it is one."""
    try:
        if text is not None:
            Cursor.of(text)
        return text
    except ValueError:
        message = f"{text!r} is not a cursor. Use the one that an earlier ls printed."
        raise click.BadParameter(message, ctx, param) from None
