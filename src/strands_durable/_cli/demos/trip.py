"""The trip that the travel agent of the demo books: a scripted model, and real tools that write to a ledger."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ..._records.executions import ExecutionStatus
from ..._records.views import ExecutionDetail
from .screen import Recorded, Screen

EXECUTION_ID = "trip-42"
PROMPT = "Book me a weekend in Paris, from Berlin, and mail me the plan."
EFFECTS = ("search_flights", "check_weather", "book_flight", "book_hotel", "send_mail")
MODEL_CALLS = 4
FOLDER = "STRANDS_DURABLE_DEMO"
"""The environment variable with the folder of the ledger, for workers."""
POLL_SECONDS, PATIENCE_SECONDS, PAUSE_SECONDS = 0.1, 30.0, 0.8

_LEDGER, _HOTEL = "ledger.jsonl", "hotel-answers"


class DemoError(Exception):
    """The demo did not end as expected."""


def model(folder: Path) -> Any:
    from ...testing import ScriptedModel, call

    class BilledModel(ScriptedModel):
        """Takes a moment to answer, and records each call in the ledger."""

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0.4)
            note(folder, "model call")
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


def tools(folder: Path) -> list[Any]:
    from strands import tool

    @tool
    def search_flights(origin: str, destination: str) -> str:
        """Search for flights."""
        time.sleep(0.9)
        note(folder, "search_flights")
        return f"AF 1235, {origin} to {destination}, 09:15, 129 EUR"

    @tool
    def check_weather(city: str) -> str:
        """Look at the weather."""
        time.sleep(0.5)
        note(folder, "check_weather")
        return f"{city}: 22 degrees, sunny"

    @tool
    def book_flight(flight: str) -> str:
        """Book a flight."""
        time.sleep(0.6)
        note(folder, "book_flight")
        return f"{flight} is booked"

    @tool
    def book_hotel(city: str, nights: int) -> str:
        """Book a hotel, as soon as it answers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (folder / _HOTEL).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("The hotel does not answer.")
            time.sleep(POLL_SECONDS)
        time.sleep(0.6)
        note(folder, "book_hotel")
        return f"Hotel du Nord, {city}, {nights} nights, is booked"

    @tool
    def send_mail(to: str, subject: str) -> str:
        """Send a mail."""
        time.sleep(0.5)
        note(folder, "send_mail")
        return f"Sent to {to}"

    return [search_flights, check_weather, book_flight, book_hotel, send_mail]


def note(folder: Path, effect: str) -> None:
    """Write to the ledger, outside of the store: this is what really happened."""
    with open(folder / _LEDGER, "a") as ledger:
        ledger.write(json.dumps({"effect": effect, "process": os.getpid()}) + "\n")


def is_inside_hotel(detail: ExecutionDetail) -> bool:
    states = {step.name: step.state for step in detail.steps}
    return states.get("book_flight") == "done" and states.get("book_hotel") == "running"


def have_hotel_answer(folder: Path) -> None:
    """Make the hotel answer from now on."""
    (folder / _HOTEL).touch()


# Verification


def _ledger(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / _LEDGER).read_text().splitlines()]


def show_ledger(folder: Path, screen: Screen) -> None:
    screen.say("The ledger, written by the tools themselves:")
    entries = _ledger(folder)
    for effect in EFFECTS:
        processes = [entry["process"] for entry in entries if entry["effect"] == effect]
        by = ", ".join(f"by process {process}" for process in processes)
        screen.say(f"  {effect:<16} {len(processes)} time{'' if len(processes) == 1 else 's'}  {by}".rstrip())
    screen.say()


def verify(folder: Path, detail: ExecutionDetail, recorded: Recorded) -> None:
    """Raise unless the run is complete, and each effect and each recorded step happened once."""
    counts = Counter(entry["effect"] for entry in _ledger(folder))
    expected = Counter({**dict.fromkeys(EFFECTS, 1), "model call": MODEL_CALLS})
    if counts != expected:
        raise DemoError(f"the ledger should have {dict(expected)}, but has {dict(counts)}.")
    if detail.execution.status is not ExecutionStatus.COMPLETED:
        raise DemoError(f"the execution is {detail.execution.status.value}.")
    ends = {(step.key, step.attempt): step.ended_at for step in detail.steps}
    if not recorded.items() <= ends.items():
        raise DemoError("a finished step was recorded again.")
