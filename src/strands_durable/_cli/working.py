"""The command worker: a process that carries executions of the agents in some files."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .exits import leave_at_once
from .options import Place, backend_option
from .running import silence

if TYPE_CHECKING:
    from .._registry import DurableAgent

logger = logging.getLogger(__name__)

_LOOK_SECONDS, _LATE_LOOKS = 0.02, 50
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
            *(sys.executable, "-m", "strands_durable", "worker", *self.files, "--trial", "--backend", self.url),
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
def work(place: Place, files: tuple[str, ...], log_level: int | None, **given: Any) -> None:
    """Carry executions of the agents in FILEs, until it is stopped.

    A FILE is a Python file with @durable_agent in it, or a module's name. Executions that were dispatched are taken up, those
    of workers that died are gone on with. What it does is logged on stderr.

    SIGTERM and Ctrl-C stop it in order: steps under way may end, nothing new begins, and other workers go on. A second Ctrl-C
    ends it at once; steps under way are then in doubt.
    """
    from .._files import agents_of

    with silence():
        agents = agents_of(list(files))
        url = place.url if place.is_said else _url_of(agents)
        asking = Work(files=files, url=url, log_level=log_level or logging.INFO, **given)
        _log(asking.log_level)
        _tell_start(asking, agents)
        _work(asking)


def _tell_start(asking: Work, agents: list[DurableAgent]) -> None:
    if asking.log_level < logging.WARNING and not asking.is_trial:
        names = ", ".join(agent.name for agent in agents)
        click.echo(f"Worker {os.getpid()} on {asking.url}: {names}; {asking.concurrency} at a time. Ctrl-C stops it.")
        sys.stdout.flush()


def _url_of(agents: list[DurableAgent]) -> str:
    """Return where agents run that nobody said it of on the command line: as they say themselves."""
    urls = sorted({agent.backend.url for agent in agents})
    if len(urls) == 1:
        return urls[0]
    raise click.UsageError(f"The agents run on different backends ({', '.join(urls)}). Pass --backend for one of them.")


def _log(level: int) -> None:
    """Log in Strands' form, unless a file has set logging up itself."""
    logging.basicConfig(format=_LOG_FORMAT)
    logging.getLogger("strands_durable").setLevel(level)


def _work(asking: Work) -> None:
    """Work until somebody stops it; a tool in a thread that does not end, and that nobody can stop, ends with the process."""
    asyncio.run(_until_stopped(asking))


async def _have_tools_ended() -> bool:
    """Say whether no tool runs in a thread any more; one whose time was over may do so for ever, and Python would wait."""
    for _ in range(_LATE_LOOKS):
        if not _has_busy_thread():
            return True
        await asyncio.sleep(_LOOK_SECONDS)
    return False


def _has_busy_thread() -> bool:
    from .._worker import TOOL_THREADS

    frames = sys._current_frames()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(TOOL_THREADS)]
    return any(frame.f_code.co_name != "_worker" for thread in threads if (frame := frames.get(thread.ident or 0)))


async def _until_stopped(asking: Work) -> None:
    from .._connect import connect

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, _interrupted, stop)
    if asking.is_trial:
        threading.Thread(target=_stop_with_stdin, args=(loop, stop), daemon=True).start()
    is_clean = await connect(asking.url).work(
        concurrency=asking.concurrency,
        drain_seconds=asking.drain_seconds,
        stop=stop,
        trial_command=None if asking.is_trial else asking.trial_command,
        is_trial=asking.is_trial,
    )
    if not is_clean or not await _have_tools_ended():
        logger.warning("drain is over | a tool has not ended, its step is left in doubt")
        leave_at_once(0)


def _interrupted(stop: asyncio.Event) -> None:
    """Stop in order; the next Ctrl-C is not for us to handle."""
    stop.set()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    click.echo("\nStopping. Ctrl-C again ends it at once.", err=True)


def _stop_with_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    sys.stdin.buffer.read()
    loop.call_soon_threadsafe(stop.set)
