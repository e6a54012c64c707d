"""`strands-durable demo`: a travel agent is killed in the middle of a booking, and another process resumes it.

There are two processes. The worker is a plain Strands agent with `Durability`. The stage starts the worker, kills it, starts it
again, and shows the run from the store, as `strands-durable show` does, without importing Strands.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from ..._records.views import ExecutionDetail
from ..._sqlite.catalog import Catalog
from ...errors import BackendUnavailableError, ExecutionNotFoundError
from .processes import log_of, started
from .screen import Recorded, Screen, rows
from .trip import (
    EXECUTION_ID,
    MODEL_CALLS,
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    POLL_SECONDS,
    PROMPT,
    DemoError,
    have_hotel_answer,
    is_inside_hotel,
    model,
    show_ledger,
    tools,
    verify,
)

_STORE, _ANSWER = "trip.db", "answer.txt"


# The worker


def work(folder: Path) -> None:
    """Run the travel agent, or resume it: running the script again after a crash is all it takes."""
    from strands import Agent

    from ..._plugin.durability import Durability

    agent = Agent(
        model=model(folder),
        tools=tools(folder),
        plugins=[Durability(folder / _STORE, execution_id=EXECUTION_ID)],
        callback_handler=None,
    )
    (folder / _ANSWER).write_text(str(agent(PROMPT)).strip())


# The stage


def play(folder: Path, screen: Screen) -> None:
    """Run the demo; raise unless everything happened exactly once."""
    catalog = Catalog(folder / _STORE)
    screen.say("A travel agent books a weekend in Paris. Its model is scripted; its tools write to a ledger.")
    screen.say(f"Each step is recorded in {catalog.path}")
    screen.say()
    recorded = _first_process(folder, catalog, screen)
    time.sleep(PAUSE_SECONDS)
    detail = _second_process(folder, catalog, screen, recorded)
    screen.say(f"The agent answers: {(folder / _ANSWER).read_text()}")
    screen.say()
    show_ledger(folder, screen)
    verify(folder, detail, recorded)
    screen.say(f"Every side effect and each of the {MODEL_CALLS} model calls happened exactly once.")
    screen.say()
    screen.say("To inspect the run:")
    screen.say(f"  strands-durable show {EXECUTION_ID} --backend {catalog.path}")


def _first_process(folder: Path, catalog: Catalog, screen: Screen) -> Recorded:
    """Run the worker until it is inside the hotel booking, then kill it."""
    with _worker(folder) as worker:
        screen.say(f"Process {worker.pid} starts. Importing Strands takes a moment.")
        screen.say()
        with screen.following():
            _follow(catalog, worker, screen, {}, is_inside_hotel)
            if worker.poll() is not None:
                raise DemoError(f"the first process exited unexpectedly.\n{log_of(folder)}")
            time.sleep(PAUSE_SECONDS)
            worker.kill()
            worker.wait()
            detail = catalog.execution(EXECUTION_ID)
            screen.update(rows(detail, {}))
    screen.say()
    screen.say(f"Process {worker.pid} was killed with SIGKILL inside book_hotel, before the hotel was booked.")
    recorded: Recorded = {(step.key, step.attempt): step.ended_at for step in detail.steps if step.state == "done"}
    doubtful = [step.name for step in detail.steps if step.in_doubt]
    screen.say(
        f"The journal holds {len(recorded)} finished steps. In doubt (started, no recorded result): {doubtful[0]}."
    )
    screen.say()
    return recorded


def _second_process(folder: Path, catalog: Catalog, screen: Screen, recorded: Recorded) -> ExecutionDetail:
    """Run the same worker again, to its end."""
    have_hotel_answer(folder)
    with _worker(folder) as worker:
        screen.say(f"Process {worker.pid} starts: the same script, run again.")
        screen.say()
        with screen.following():
            detail = _follow(catalog, worker, screen, recorded, lambda _: False)
        if worker.returncode != 0:
            raise DemoError(f"the second process exited with code {worker.returncode}.\n{log_of(folder)}")
    live = sum(step.state == "done" for step in detail.steps) - len(recorded)
    screen.say()
    screen.say(f"It took {len(recorded)} steps from the journal and ran {live} itself.")
    return detail


def _worker(folder: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return started([sys.executable, "-m", "strands_durable._cli.demos", str(folder)], folder)


def _follow(
    catalog: Catalog,
    worker: subprocess.Popen[bytes],
    screen: Screen,
    recorded: Recorded,
    is_enough: Callable[[ExecutionDetail], bool],
) -> ExecutionDetail:
    """Show the run as the store has it until ``is_enough``, or until the worker has exited."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        is_over = worker.poll() is not None
        try:
            detail = catalog.execution(EXECUTION_ID)
        except (BackendUnavailableError, ExecutionNotFoundError) as error:
            if is_over:
                raise DemoError(f"nothing was recorded: {error}\n{log_of(catalog.path.parent)}") from error
        else:
            screen.update(rows(detail, recorded))
            if is_over or is_enough(detail):
                return detail
        time.sleep(POLL_SECONDS)
    raise DemoError(f"the worker had not finished after {PATIENCE_SECONDS:.0f} s.\n{log_of(catalog.path.parent)}")
