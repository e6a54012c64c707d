"""The command line: run agents, inspect and control executions, and watch one survive a crash.

Commands only print: what they do and show comes from `DurableBackend` and `ExecutionHandle`. Strands and rich are imported
only where they are needed, because inspecting must be quick.
"""

from __future__ import annotations

import sys
from typing import Literal

import click

from .. import __version__
from .control import cancel, respond, resume
from .doctor import doctor
from .exit_codes import Commands
from .fork import fork
from .inspect import list_executions, show, watch
from .rekey import rekey
from .remove import remove
from .retention import hold, prune, release
from .run import run
from .store import backup, verify
from .transfer import export_execution, import_execution
from .ui import ui
from .worker import work


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="strands-durable")
def main() -> None:
    """Durable execution for Strands agents.

    A durable agent records every model call and every tool call, so that a run resumes after a crash. These commands run
    such agents, and inspect and control their executions. All commands are safe to use while agents run.

    \b
    See it survive a crash      strands-durable demo
    Run an agent                strands-durable run agents.py:planner "Plan a trip"
    Start a worker              strands-durable worker agents.py
    List executions             strands-durable ls
    Show what one has done      strands-durable show trip-42
    Follow one as it runs       strands-durable watch trip-42
    Answer its questions        strands-durable respond trip-42
    See them in a browser       strands-durable ui
    Export one to a file        strands-durable export trip-42 --to run.json
    Find out what is wrong      strands-durable doctor agents.py

    \b
    Exit codes:
      0  success; for run and watch: the execution is COMPLETED
      1  an error
      2  wrong usage
      3  the execution was not found
      4  the execution is FAILED
      5  the execution is SUSPENDED: it waits for a person
      6  the execution is CANCELLED
      7  the execution is still running when --timeout expires
    """


@main.command()
@click.option(
    "--backend",
    type=click.Choice(["sqlite", "temporal", "lambda", "dapr"]),
    default="sqlite",
    show_default=True,
    help="What records the run: a SQLite file, or a Temporal server, AWS's local Lambda runner or Dapr, started by the demo.",
)
@click.option("--ui", "with_page", is_flag=True, help="Show three runs in a browser instead, until Ctrl-C.")
def demo(backend: Literal["sqlite", "temporal", "lambda", "dapr"], with_page: bool) -> None:
    """Watch an agent get killed and resume.

    A travel agent with a scripted model runs in its own process and is killed with SIGKILL in the middle of a booking. A
    second process resumes where the first one died. At the end, a ledger shows that every side effect happened exactly once.

    With --backend temporal, one of two workers is killed, the other one resumes its execution, and the agent asks for approval
    before it sends a mail. This needs Temporal's command line, which includes a server.

    With --backend lambda, AWS's local runner invokes a durable function, each time in a new process. One process is killed, the
    next one resumes the execution, and the function is suspended while the agent waits for approval. This needs the extra
    "lambda" and the package aws-durable-execution-sdk-python-testing.

    With --backend dapr, one of two workers beside sidecars of Dapr is killed, and the other one resumes its execution. This
    needs the extra "dapr", and daprd, placement and scheduler on PATH or in ~/.dapr/bin; otherwise they are built with Go,
    once, which takes minutes and the network.

    With --ui, three runs are left in a SQLite file with a worker: one was killed and resumed, one is a Graph, and one waits for
    your approval. The URL of the web page over them is printed. This needs the extra "ui".

    Takes about ten seconds, on Temporal about twenty. Needs no API key and no network, and writes only to a new temporary
    folder.
    """
    from .demos import run

    if with_page and backend != "sqlite":
        raise click.UsageError("--ui cannot be combined with --backend.")
    sys.exit(run(backend, with_page=with_page))


_EXECUTIONS = (list_executions, show, watch, respond, resume, fork, cancel, remove, export_execution, import_execution)
_STORE = (hold, release, prune, backup, verify, rekey)
for _command in (run, work, *_EXECUTIONS, *_STORE, ui, doctor):
    main.add_command(_command)
