"""`strands-durable demo`: a travel agent is killed in the middle of a booking, and another process goes on.

Two processes play. The worker is a plain Strands agent with `Durability`; its model is scripted, its tools are real and write
what they do to a ledger. The stage starts the worker, kills it, starts it again, and reads along in the store: it knows no
more than `strands-durable show` does, and does not import Strands.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ._catalog import Catalog
from ._records import ExecutionStatus
from ._summaries import ExecutionDetail, StepSummary
from .errors import BackendUnavailableError, ExecutionNotFoundError

EXECUTION_ID = "trip-42"
PROMPT = "Book me a weekend in Paris, from Berlin, and mail me the plan."
EFFECTS = ("search_flights", "check_weather", "book_flight", "book_hotel", "send_mail")
MODEL_CALLS = 4

_STORE, _LEDGER, _HOTEL, _ANSWER, _LOG = "trip.db", "ledger.jsonl", "hotel-answers", "answer.txt", "worker.log"
_POLL_SECONDS, _PATIENCE_SECONDS, _PAUSE_SECONDS = 0.1, 30.0, 0.8

Recorded = dict[tuple[str, int], float | None]
"""Finished steps by key and attempt, with the time of their end."""


# The worker


def work(folder: Path) -> None:
    """Run the travel agent, or go on with it: a script that runs again after a crash is all there is to do."""
    from strands import Agent

    from ._durability import Durability

    agent = Agent(
        model=_model(folder),
        tools=_tools(folder),
        plugins=[Durability(folder / _STORE, execution_id=EXECUTION_ID)],
        callback_handler=None,
    )
    (folder / _ANSWER).write_text(str(agent(PROMPT)).strip())


def _model(folder: Path) -> Any:
    from .testing import ScriptedModel, call

    class BilledModel(ScriptedModel):
        """Thinks for a moment, and puts each call on the bill."""

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0.4)
            _note(folder, "model call")
            async for chunk in super().stream(messages, *args, **kwargs):
                yield chunk

    return BilledModel(
        [
            [call("search_flights", origin="Berlin", destination="Paris"), call("check_weather", city="Paris")],
            [call("book_flight", flight="AF 1235"), call("book_hotel", city="Paris", nights=2)],
            call("send_mail", to="you@example.com", subject="Your weekend in Paris"),
            "Flight AF 1235 and two nights at the Hotel du Nord are booked, and the plan is in your mail.",
        ]
    )


def _tools(folder: Path) -> list[Any]:
    from strands import tool

    @tool
    def search_flights(origin: str, destination: str) -> str:
        """Search for flights."""
        time.sleep(0.9)
        _note(folder, "search_flights")
        return f"AF 1235, {origin} to {destination}, 09:15, 129 EUR"

    @tool
    def check_weather(city: str) -> str:
        """Look at the weather."""
        time.sleep(0.5)
        _note(folder, "check_weather")
        return f"{city}: 22 degrees, sunny"

    @tool
    def book_flight(flight: str) -> str:
        """Book a flight."""
        time.sleep(0.6)
        _note(folder, "book_flight")
        return f"{flight} is booked"

    @tool
    def book_hotel(city: str, nights: int) -> str:
        """Book a hotel, as soon as it answers."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (folder / _HOTEL).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("The hotel does not answer.")
            time.sleep(_POLL_SECONDS)
        time.sleep(0.6)
        _note(folder, "book_hotel")
        return f"Hotel du Nord, {city}, {nights} nights, is booked"

    @tool
    def send_mail(to: str, subject: str) -> str:
        """Send a mail."""
        time.sleep(0.5)
        _note(folder, "send_mail")
        return f"Sent to {to}"

    return [search_flights, check_weather, book_flight, book_hotel, send_mail]


def _note(folder: Path, effect: str) -> None:
    """Leave a mark outside of the store: this is what really happened."""
    with open(folder / _LEDGER, "a") as ledger:
        ledger.write(json.dumps({"effect": effect, "process": os.getpid()}) + "\n")


# What is seen of it


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step, as the demo shows it."""

    step: str
    input: str
    status: str
    seconds: float | None


class Screen(Protocol):
    """Where the demo is shown."""

    def say(self, text: str = "") -> None:
        """Tell the story on."""

    def following(self) -> AbstractContextManager[object]:
        """Open the view of one worker."""

    def update(self, rows: list[Row]) -> None:
        """Show where the worker stands."""


class Lines:
    """A screen for pipes and logs: one line for each change."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, str]] = set()

    def say(self, text: str = "") -> None:
        """Tell the story on."""
        print(text, flush=True)

    def following(self) -> AbstractContextManager[object]:
        """Open the view of one worker."""
        self._shown = set()
        return nullcontext()

    def update(self, rows: list[Row]) -> None:
        """Print what has changed."""
        for row in rows:
            if (row.step, row.status) not in self._shown:
                self._shown.add((row.step, row.status))
                self.say(f"  {row.step:<20} {row.status:<18} {_seconds(row.seconds)}".rstrip())


class LiveTable:
    """A screen for a terminal: a table that moves."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False, markup=False)
        self._live: Live | None = None

    def say(self, text: str = "") -> None:
        """Tell the story on."""
        self._console.print(text)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Open the view of one worker."""
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False) as self._live:
            yield

    def update(self, rows: list[Row]) -> None:
        """Draw the table anew."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        styles = {"running": "cyan", "done": "green", "run now": "bold green", "in doubt": "yellow"}
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in ("STEP", "INPUT", "STATUS", "TOOK"):
            table.add_column(name, no_wrap=name != "INPUT")
        for row in rows:
            status = Text(row.status, style=styles.get(row.status, "dim"))
            table.add_row(
                Text(row.step), Text(row.input, no_wrap=True, overflow="ellipsis"), status, _seconds(row.seconds)
            )
        assert self._live is not None
        self._live.update(table, refresh=True)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s"


def _rows(detail: ExecutionDetail, recorded: Recorded) -> list[Row]:
    return [
        Row(step=step.label, input=step.input, status=_status(step, recorded), seconds=step.duration_seconds)
        for step in detail.steps
    ]


def _status(step: StepSummary, recorded: Recorded) -> str:
    if (step.key, step.attempt) in recorded:
        return "from the journal"
    return "run now" if recorded and step.state == "done" else step.state


# The stage


class DemoError(Exception):
    """The demo did not go as it should."""


def run() -> int:
    """Play the demo; return the exit code, which is 0 only if everything happened exactly once."""
    folder = Path(tempfile.mkdtemp(prefix="strands-durable-demo-"))
    screen: Screen = LiveTable() if sys.stdout.isatty() else Lines()
    try:
        _play(folder, screen)
    except DemoError as error:
        screen.say(f"The demo failed: {error}")
        return 1
    return 0


def _play(folder: Path, screen: Screen) -> None:
    catalog = Catalog(folder / _STORE)
    screen.say("A travel agent books a weekend in Paris. Its model is scripted; its tools write to a ledger.")
    screen.say(f"Each step is recorded in {catalog.path}")
    screen.say()
    recorded = _first_process(folder, catalog, screen)
    time.sleep(_PAUSE_SECONDS)
    detail = _second_process(folder, catalog, screen, recorded)
    screen.say(f"The agent says: {(folder / _ANSWER).read_text()}")
    screen.say()
    _show_ledger(folder, screen)
    _verify(folder, detail, recorded)
    screen.say(f"Every side effect happened exactly once, and so did each of the {MODEL_CALLS} model calls.")
    screen.say()
    screen.say("Look at the run:")
    screen.say(f"  strands-durable show {EXECUTION_ID} --backend {catalog.path}")


def _first_process(folder: Path, catalog: Catalog, screen: Screen) -> Recorded:
    """Run the worker until it is inside the hotel booking, and kill it there."""
    with _worker(folder) as worker:
        screen.say(f"Process {worker.pid} starts. Importing Strands takes it a moment.")
        screen.say()
        with screen.following():
            _follow(catalog, worker, screen, {}, _is_inside_hotel)
            if worker.poll() is not None:
                raise DemoError(f"the first process ended by itself.\n{_log(folder)}")
            time.sleep(_PAUSE_SECONDS)
            worker.kill()
            worker.wait()
            detail = catalog.execution(EXECUTION_ID)
            screen.update(_rows(detail, {}))
    screen.say()
    screen.say(f"Process {worker.pid} was killed with SIGKILL inside book_hotel, before the hotel was booked.")
    recorded: Recorded = {(step.key, step.attempt): step.ended_at for step in detail.steps if step.state == "done"}
    doubtful = [step.name for step in detail.steps if step.in_doubt]
    screen.say(
        f"The journal holds {len(recorded)} finished steps. In doubt, started and without a result: {doubtful[0]}."
    )
    screen.say()
    return recorded


def _second_process(folder: Path, catalog: Catalog, screen: Screen, recorded: Recorded) -> ExecutionDetail:
    """Run the same worker again, to its end."""
    (folder / _HOTEL).touch()
    with _worker(folder) as worker:
        screen.say(f"Process {worker.pid} starts: the same script, run again.")
        screen.say()
        with screen.following():
            detail = _follow(catalog, worker, screen, recorded, lambda _: False)
        if worker.returncode != 0:
            raise DemoError(f"the second process ended with exit code {worker.returncode}.\n{_log(folder)}")
    live = sum(step.state == "done" for step in detail.steps) - len(recorded)
    screen.say()
    screen.say(f"It took {len(recorded)} steps from the journal, and ran {live} steps itself.")
    return detail


@contextmanager
def _worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker; whatever happens here, it does not outlive the demo."""
    command = [sys.executable, "-m", "strands_durable._demo", "--worker", str(folder)]
    with (
        open(folder / _LOG, "ab") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as worker,
    ):
        try:
            yield worker
        finally:
            worker.kill()


def _follow(
    catalog: Catalog,
    worker: subprocess.Popen[bytes],
    screen: Screen,
    recorded: Recorded,
    is_enough: Callable[[ExecutionDetail], bool],
) -> ExecutionDetail:
    """Show what the store tells of the worker, until that is enough or the worker has ended."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        is_over = worker.poll() is not None
        try:
            detail = catalog.execution(EXECUTION_ID)
        except (BackendUnavailableError, ExecutionNotFoundError) as error:
            if is_over:
                raise DemoError(f"nothing was recorded: {error}\n{_log(catalog.path.parent)}") from error
        else:
            screen.update(_rows(detail, recorded))
            if is_over or is_enough(detail):
                return detail
        time.sleep(_POLL_SECONDS)
    raise DemoError(f"the worker was not done after {_PATIENCE_SECONDS:.0f} s.\n{_log(catalog.path.parent)}")


def _is_inside_hotel(detail: ExecutionDetail) -> bool:
    states = {step.name: step.state for step in detail.steps}
    return states.get("book_flight") == "done" and states.get("book_hotel") == "running"


def _log(folder: Path) -> str:
    return (folder / _LOG).read_text(errors="replace")[-2000:]


# The proof


def _ledger(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / _LEDGER).read_text().splitlines()]


def _show_ledger(folder: Path, screen: Screen) -> None:
    screen.say("The ledger, written by the tools themselves:")
    entries = _ledger(folder)
    for effect in EFFECTS:
        processes = [entry["process"] for entry in entries if entry["effect"] == effect]
        by = ", ".join(f"by process {process}" for process in processes)
        screen.say(f"  {effect:<16} {len(processes)} time{'' if len(processes) == 1 else 's'}  {by}".rstrip())
    screen.say()


def _verify(folder: Path, detail: ExecutionDetail, recorded: Recorded) -> None:
    """Raise unless the run is complete, and each effect and each recorded step happened once."""
    counts = Counter(entry["effect"] for entry in _ledger(folder))
    expected = Counter({**dict.fromkeys(EFFECTS, 1), "model call": MODEL_CALLS})
    if counts != expected:
        raise DemoError(f"the ledger should hold {dict(expected)}, but holds {dict(counts)}.")
    if detail.execution.status is not ExecutionStatus.COMPLETED:
        raise DemoError(f"the execution is {detail.execution.status.value}.")
    ends = {(step.key, step.attempt): step.ended_at for step in detail.steps}
    if not recorded.items() <= ends.items():
        raise DemoError("a finished step was recorded again.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(Path(sys.argv[2]))
    else:
        sys.exit(run())
