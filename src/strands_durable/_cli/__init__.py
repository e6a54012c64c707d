"""The command line: run agents, look at executions, answer them, and see one survive.

Commands print, and nothing else: what they do and show is that of `DurableBackend` and `ExecutionHandle`. Strands and rich are
imported only where they are needed, because looking must be quick.
"""

from __future__ import annotations

import sys
from typing import Literal

import click

from .. import __version__
from .control import cancel, remove, respond, resume
from .exit_codes import Commands
from .inspect import list_executions, show, watch
from .run import run
from .worker import work


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="strands-durable")
def main() -> None:
    """Durable execution for Strands agents.

    A durable agent records every model call and every tool call. These commands run such agents, and look after what they
    recorded; all of them work while agents run.

    \b
    New here?                  strands-durable demo
    Run an agent               strands-durable run agents.py:planner "Plan a trip"
    Keep a worker at work      strands-durable worker agents.py
    What is there?             strands-durable ls
    What happened there?       strands-durable show trip-42
    What happens there now?    strands-durable watch trip-42
    It waits for an answer     strands-durable respond trip-42

    \b
    Exit codes:
      0  done; for run and watch: the execution is COMPLETED
      1  an error
      2  wrong usage
      3  no such execution
      4  the execution is FAILED
      5  it is SUSPENDED: it waits for a person
      6  it is CANCELLED
      7  it is still at work, and the time is over
    """


@main.command()
@click.option(
    "--backend",
    type=click.Choice(["sqlite", "temporal"]),
    default="sqlite",
    show_default=True,
    help="Where the agent runs: on a file, or on a Temporal server of the demo's own.",
)
def demo(backend: Literal["sqlite", "temporal"]) -> None:
    """Watch an agent get killed and go on.

    A travel agent with a scripted model runs in a process of its own, and is killed with SIGKILL in the middle of a booking.
    A second process goes on where the first one died. In the end a ledger shows that everything was done exactly once.

    On Temporal, one of two workers is killed, the other one goes on, and the agent asks before it sends a mail. That needs
    Temporal's command line, which has a server.

    Takes about ten seconds, on Temporal twice that. Needs no key and no network, and writes only to a new temporary folder.
    """
    from .._demo import run

    sys.exit(run(backend))


for _command in (run, work, list_executions, show, watch, respond, resume, cancel, remove):
    main.add_command(_command)
