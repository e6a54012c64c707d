"""A trip planner that asks before it spends money. The same file as in the script: nothing in it depends on Dapr."""

from __future__ import annotations

import os
import time
from pathlib import Path

from strands import Agent, ToolContext, tool
from strands.models import BedrockModel, Model

from strands_durable import current_step, durable_agent
from strands_durable.testing import ScriptedModel, call

BOOKINGS = Path("bookings.txt")


@tool
def book_flight(city: str) -> str:
    """Book a flight to a city."""
    book(f"flight to {city}")
    return f"flight to {city} booked"


@tool(context=True)
def book_hotel(city: str, tool_context: ToolContext) -> str:
    """Book a hotel in a city, if the customer agrees to the price."""
    answer = tool_context.interrupt("approval", reason=f"A hotel in {city} for 420 euros?")
    if answer != "yes":
        return "not booked: the customer does not want it"
    book(f"hotel in {city}")
    return f"hotel in {city} booked"


def book(what: str) -> None:
    """Simulate a booking service that books once per idempotency key."""
    step = current_step()
    assert step is not None
    booking = f"{step.idempotency_key} {what}"
    BOOKINGS.touch()
    if booking not in BOOKINGS.read_text().splitlines():
        with BOOKINGS.open("a") as ledger:
            print(booking, file=ledger)
    time.sleep(float(os.environ.get("BOOKING_SECONDS", "0.1")))


def model() -> Model:
    """Return the Bedrock model named in BEDROCK_MODEL_ID, else a scripted one that needs no API key."""
    if model_id := os.environ.get("BEDROCK_MODEL_ID"):
        return BedrockModel(model_id=model_id)
    return ScriptedModel([call("book_flight", city="Paris"), call("book_hotel", city="Paris"), "Have a good trip!"])


@durable_agent
def trip_planner() -> Agent:
    return Agent(model=model(), tools=[book_flight, book_hotel], callback_handler=None)
