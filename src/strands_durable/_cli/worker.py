"""The command worker: a process that carries executions of the agents in some files."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .._calls.running_tools import leave
from .._dispatch.connect import connect
from .._dispatch.ports import DurableBackend
from .._records.logs import safe_logger
from .._records.printable import url_for_people
from .exit_codes import leave_at_once
from .options import BackendTarget, backend_option

if TYPE_CHECKING:
    from .._dispatch.registry import DurableAgent

logger = safe_logger(__name__)

_TRIAL_URL = "STRANDS_DURABLE_TRIAL_BACKEND"
"""How a worker names its backend to the process beside it: what is on a command line, everybody on the machine can read."""
_LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What ``worker`` was asked for; can start itself again."""

    files: tuple[str, ...]
    url: str
    concurrency: int
    drain_seconds: float
    log_level: int
    is_trial: bool

    @property
    def trial_command(self) -> list[str]:
        """What starts a process beside this one, for executions that may have killed their worker."""
        return [
            *(sys.executable, "-m", "strands_durable", "worker", *self.files, "--trial"),
            *("--drain-seconds", f"{self.drain_seconds:g}"),
            *({logging.WARNING: ["--quiet"], logging.DEBUG: ["--verbose"]}.get(self.log_level, [])),
        ]


@click.command("worker")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    default=10,
    show_default=True,
    help="Executions at a time.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=25.0,
    show_default=True,
    help="How long the current steps may take to end when it is stopped.",
)
@click.option("--quiet", "log_level", flag_value=logging.WARNING, type=int, help="Tell only what is wrong.")
@click.option("--verbose", "log_level", flag_value=logging.DEBUG, type=int, help="Tell everything.")
@click.option("--trial", "is_trial", is_flag=True, hidden=True)
@backend_option
def work(place: BackendTarget, files: tuple[str, ...], log_level: int | None, **given: Any) -> None:
    """Carry executions of the agents in FILEs, until it is stopped.

    A FILE is a Python file with @durable_agent in it, or a module's name. Executions that were dispatched are taken up, those
    of workers that died are gone on with. What it does is logged on stderr.

    SIGTERM and Ctrl-C stop it in order: steps under way may end, nothing new begins, and other workers go on. A second Ctrl-C
    ends it at once; steps under way are then in doubt.
    """
    from .._dispatch.agent_files import agents_of
    from .._strands.patches import silence_printing

    with silence_printing():
        agents = agents_of(list(files))
        if given["is_trial"] and _TRIAL_URL in os.environ:
            backend = connect(os.environ[_TRIAL_URL])
        else:
            backend = connect(place.url) if place.is_said else _backend_of(agents)
        os.environ[_TRIAL_URL] = backend.url
        asking = Work(files=files, url=backend.url, log_level=log_level or logging.INFO, **given)
        _log(asking.log_level)
        _tell_start(asking, agents)
        _work(asking, backend)


def _tell_start(asking: Work, agents: list[DurableAgent]) -> None:
    if asking.log_level < logging.WARNING and not asking.is_trial:
        names = ", ".join(agent.name for agent in agents)
        url = url_for_people(asking.url)
        click.echo(f"Worker {os.getpid()} on {url}: {names}; {asking.concurrency} at a time. Ctrl-C stops it.")
        sys.stdout.flush()


def _backend_of(agents: list[DurableAgent]) -> DurableBackend:
    """Return where agents run that nobody said it of on the command line: as they say themselves."""
    if len({agent.backend.url for agent in agents}) == 1:
        return agents[0].backend
    urls = sorted({url_for_people(agent.backend.url) for agent in agents})
    raise click.UsageError(f"The agents run on different backends ({', '.join(urls)}). Pass --backend for one of them.")


def _log(level: int) -> None:
    """Log in Strands' form, unless a file has set logging up itself."""
    logging.basicConfig(format=_LOG_FORMAT)
    logging.getLogger("strands_durable").setLevel(level)


def _work(asking: Work, backend: DurableBackend) -> None:
    """Work until somebody stops it; unlike `asyncio.run`, without waiting for tools in threads that nobody can stop."""
    loop = asyncio.new_event_loop()
    try:
        is_clean = loop.run_until_complete(_until_stopped(asking, backend))
        loop.run_until_complete(loop.shutdown_asyncgens())
        if not is_clean:
            logger.warning("seconds=<%g> | a tool has not ended, its step is left in doubt", asking.drain_seconds)
            leave()
            leave_at_once(0)
    finally:
        loop.close()


async def _until_stopped(asking: Work, backend: DurableBackend) -> bool:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, _interrupted, stop)
    return await backend.work(
        concurrency=asking.concurrency,
        drain_seconds=asking.drain_seconds,
        stop=stop,
        trial_command=None if asking.is_trial else asking.trial_command,
        is_trial=asking.is_trial,
    )


def _interrupted(stop: asyncio.Event) -> None:
    """Stop in order; the next Ctrl-C is not for us to handle."""
    stop.set()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    click.echo("\nStopping. Ctrl-C again ends it at once.", err=True)
