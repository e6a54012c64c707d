"""The command worker: a process that runs executions of the agents in some files."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .._calls.running_tools import leave
from .._dispatch.connect import connect
from .._dispatch.ports import DurableBackend
from .._records.logs import safe_logger
from .._records.printable import url_for_people
from .._records.retention import RetentionRules
from .._records.small_files import text_in
from .exit_codes import leave_at_once
from .health import Health, HealthServer, address_of
from .log_format import LogFormat, configure, log_format_option
from .numbers import Count, Seconds
from .options import BackendTarget, backend_option
from .retention import retention_option
from .signals import StopSignals

if TYPE_CHECKING:
    from .._dispatch.registry import DurableAgent

logger = safe_logger(__name__)

_TRIAL_URL = "STRANDS_DURABLE_TRIAL_BACKEND"
"""Passes the backend to the trial process: other users of the machine can read a command line, and the URL may be secret."""
SECRET = "STRANDS_DURABLE_WEBHOOK_SECRET"


@dataclass(frozen=True, kw_only=True)
class Work:
    """The arguments of ``worker``, and the command that starts its trial process."""

    files: tuple[str, ...]
    url: str
    concurrency: int
    drain_seconds: float
    log_level: int
    is_trial: bool
    log_format: LogFormat = "text"
    health: tuple[str, int] | None = None

    @property
    def trial_command(self) -> list[str]:
        """The command for a process that runs executions which may have killed their worker, one at a time."""
        return [
            *(sys.executable, "-m", "strands_durable", "worker", *self.files, "--trial"),
            *("--drain-seconds", f"{self.drain_seconds:g}", "--log-format", self.log_format),
            *({logging.WARNING: ["--quiet"], logging.DEBUG: ["--verbose"]}.get(self.log_level, [])),
        ]


@click.command("worker")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--concurrency",
    type=Count(min=1),
    metavar="N",
    default=10,
    show_default=True,
    help="Number of executions to run at the same time.",
)
@click.option(
    "--drain-seconds",
    type=Seconds(),
    metavar="SECONDS",
    default=25.0,
    show_default=True,
    help="How long to wait for running steps when the worker is stopped.",
)
@click.option(
    "--webhook",
    "webhook",
    metavar="URL",
    help="Send a signed request to URL when an execution waits for a person, fails or completes.",
)
@click.option(
    "--webhook-secret-file",
    "secret_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="PATH",
    help=f"File with the secret that signs the requests; without it, the environment variable {SECRET}.",
)
@click.option(
    "--webhook-event",
    "events",
    type=click.Choice(["suspended", "failed", "completed"]),
    multiple=True,
    help="Send only these. Can be repeated.",
)
@click.option("--quiet", "log_level", flag_value=logging.WARNING, type=int, help="Log only warnings and errors.")
@click.option("--verbose", "log_level", flag_value=logging.DEBUG, type=int, help="Log debug messages too.")
@click.option(
    "--health",
    metavar="HOST:PORT",
    callback=address_of,
    help="Answer /live and /ready over HTTP, with 200 or 503 and the reasons as JSON.",
)
@log_format_option
@retention_option
@click.option("--trial", "is_trial", is_flag=True, hidden=True)
@backend_option
def work(place: BackendTarget, files: tuple[str, ...], log_level: int | None, **options: Any) -> None:
    """Run executions of the agents in FILE until stopped.

    Each FILE is a Python file that defines agents with @durable_agent, or the name of a module. The worker runs dispatched
    executions, and resumes those of workers that died. It logs to stderr.

    SIGTERM or Ctrl-C stops it gracefully: no new step starts, running steps may finish (see --drain-seconds), and other
    workers resume the executions. A second Ctrl-C stops it at once and leaves running steps in doubt.

    With --webhook, requests are delivered at least once, also after a kill, and retried for a day. Executions that were run
    inline are reported, too. On AWS Lambda the function has the hooks.

    With --retention, one of the workers removes executions that have ended long enough ago, about once an hour, as prune does.
    """
    from .._dispatch.agent_files import agents_of
    from .._enginekit.trial import end_with_worker
    from .._strands.patches import silence_printing

    if options["is_trial"]:
        end_with_worker()
    with silence_printing():
        agents = agents_of(list(files))
        if options["is_trial"] and _TRIAL_URL in os.environ:
            backend = connect(os.environ[_TRIAL_URL])
        else:
            backend = connect(place.url) if place.is_said else _backend_of(agents)
        os.environ[_TRIAL_URL] = backend.url
        _retain(backend, options.pop("rules"), is_trial=options["is_trial"])
        _notify(backend, options.pop("webhook"), options.pop("secret_file"), options.pop("events"))
        request = Work(files=files, url=backend.url, log_level=log_level or logging.INFO, **options)
        configure(request.log_format, request.log_level)
        _print_start(request, agents)
        _work(request, backend)


def _retain(backend: DurableBackend, rules: RetentionRules | None, *, is_trial: bool) -> None:
    if rules is not None and not is_trial:
        backend.retain(rules.default, agents=rules.agents)


def _notify(backend: DurableBackend, url: str | None, secret_file: str | None, events: tuple[Any, ...]) -> None:
    from .._dispatch.notifications.webhooks import Webhook

    if url is None:
        if secret_file is not None or events:
            raise click.UsageError("--webhook-secret-file and --webhook-event need --webhook URL.")
        return
    try:
        secret = os.environ.get(SECRET, "") if secret_file is None else text_in(Path(secret_file)).strip()
    except ValueError as error:
        raise click.UsageError(
            f"--webhook-secret-file {secret_file} cannot be read: {error}. Pass a text file."
        ) from None
    if not secret:
        raise click.UsageError(f"--webhook needs a secret: pass --webhook-secret-file PATH, or set {SECRET}.")
    try:
        webhook = Webhook(url, secret, events or ("suspended", "failed", "completed"))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    backend.notify(webhooks=[webhook])


def _print_start(request: Work, agents: list[DurableAgent]) -> None:
    if request.log_level < logging.WARNING and not request.is_trial:
        names = ", ".join(agent.name for agent in agents)
        url = url_for_people(request.url)
        if request.log_format == "json":  # a collector may read both streams
            logger.info("pid=<%d>, backend=<%s>, agents=<%s> | worker started", os.getpid(), url, names)
            return
        click.echo(f"Worker {os.getpid()} on {url}: {names}; {request.concurrency} at a time. Press Ctrl-C to stop.")
        sys.stdout.flush()


def _backend_of(agents: list[DurableAgent]) -> DurableBackend:
    """Return the backend that the agents themselves name, for a command line that names none."""
    if len({agent.backend.url for agent in agents}) == 1:
        return agents[0].backend
    urls = sorted({url_for_people(agent.backend.url) for agent in agents})
    raise click.UsageError(f"The agents use different backends ({', '.join(urls)}). Choose one with --backend.")


def _work(request: Work, backend: DurableBackend) -> None:
    """Work until stopped; unlike `asyncio.run`, without waiting for tools in threads, which cannot be stopped."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    try:
        with StopSignals(loop, stop, request.drain_seconds).heard():
            is_clean = loop.run_until_complete(_until_stopped(request, backend, stop))
            if not is_clean:
                logger.warning("seconds=<%g> | what is still running is left, a step in doubt", request.drain_seconds)
                leave()
                leave_at_once(0)
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _until_stopped(request: Work, backend: DurableBackend, stop: asyncio.Event) -> bool:
    async with _reported(request, backend, stop):
        return await backend.work(
            concurrency=request.concurrency,
            drain_seconds=request.drain_seconds,
            stop=stop,
            trial_command=None if request.is_trial else request.trial_command,
            is_trial=request.is_trial,
        )


@asynccontextmanager
async def _reported(request: Work, backend: DurableBackend, stop: asyncio.Event) -> AsyncIterator[None]:
    """Answer for the worker's health while it works, if that was asked for."""
    if request.health is None:
        yield
        return
    health = Health()
    server = HealthServer(request.health, health)
    logger.info("host=<%s>, port=<%d> | health is answered at /live and /ready", request.health[0], server.port)
    try:
        async with health.watching(backend, stop):
            yield
    finally:
        server.close()
