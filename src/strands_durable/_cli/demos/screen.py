"""How the demo is shown: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from ..._records.views import ExecutionDetail, StepSummary, short

Recorded = dict[tuple[str, int], float | None]
"""Finished steps by key and attempt, with the time they ended."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step, as the demo shows it."""

    step: str
    input: str
    status: str
    seconds: float | None


class Screen(Protocol):
    """Where the demo prints."""

    def say(self, text: str = "") -> None:
        """Print a line."""

    def following(self) -> AbstractContextManager[object]:
        """Start a new view of one worker."""

    def update(self, rows: list[Row]) -> None:
        """Show the steps of the worker."""


class Lines:
    """A screen for pipes and logs: one line per change."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, str]] = set()

    def say(self, text: str = "") -> None:
        """Print a line."""
        print(text, flush=True)

    def following(self) -> AbstractContextManager[object]:
        """Start a new view of one worker."""
        self._shown = set()
        return nullcontext()

    def update(self, rows: list[Row]) -> None:
        """Print the steps that have changed."""
        for row in rows:
            if (row.step, row.status) not in self._shown:
                self._shown.add((row.step, row.status))
                self.say(f"  {row.step:<20} {row.status:<18} {_seconds(row.seconds)}".rstrip())


class Quiet(Lines):
    """A screen that shows only what is said."""

    def update(self, rows: list[Row]) -> None:
        """Show nothing."""


class LiveTable:
    """A screen for a terminal: a live table."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False, markup=False)
        self._live: Live | None = None

    def say(self, text: str = "") -> None:
        """Print a line."""
        self._console.print(text)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Start a new view of one worker."""
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False) as self._live:
            yield

    def update(self, rows: list[Row]) -> None:
        """Redraw the table."""
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


def rows(detail: ExecutionDetail, recorded: Recorded) -> list[Row]:
    return [
        Row(step=step.label, input=short(step.title), status=_status(step, recorded), seconds=step.duration_seconds)
        for step in detail.steps
    ]


def _status(step: StepSummary, recorded: Recorded) -> str:
    if (step.key, step.attempt) in recorded:
        return "from the journal"
    return "run now" if recorded and step.state == "done" else step.state
