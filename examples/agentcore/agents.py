"""A travel agent that remembers its session and asks before it books a hotel."""

from __future__ import annotations

import os
import time
from pathlib import Path

from strands import Agent, ToolContext, tool
from strands.models import BedrockModel, Model
from strands.session import FileSessionManager

from strands_durable import current_step, durable_agent
from strands_durable.testing import ScriptedModel, call

DATA = Path(os.environ.get("DATA_DIR", "data"))  # must outlive the container: see README.md
BACKEND = os.environ.get("STRANDS_DURABLE_BACKEND", f"sqlite:///{DATA}/runs.db")


@tool
def book_flight(city: str) -> str:
    """Book a flight to a city."""
    book(f"flight to {city}")
    return f"flight to {city} booked"


@tool(context=True)
def book_hotel(city: str, tool_context: ToolContext) -> str:
    """Book a hotel in a city, if the customer agrees to the price."""
    if tool_context.interrupt("approval", reason=f"A hotel in {city} for 420 euros?") != "yes":
        return "not booked: the customer does not want it"
    book(f"hotel in {city}")
    return f"hotel in {city} booked"


def book(what: str) -> None:
    """Simulate a booking service that books once per idempotency key."""
    step = current_step()
    assert step is not None
    booking, ledger = f"{step.idempotency_key} {what}", DATA / "bookings.txt"
    DATA.mkdir(exist_ok=True)
    ledger.touch()
    if booking not in ledger.read_text().splitlines():
        with ledger.open("a") as file:
            print(booking, file=file)
    time.sleep(float(os.environ.get("BOOKING_SECONDS", "0.1")))


def model() -> Model:
    """Return the Bedrock model named in BEDROCK_MODEL_ID, else a scripted one that needs no API key."""
    if model_id := os.environ.get("BEDROCK_MODEL_ID"):
        return BedrockModel(model_id=model_id)
    bookings = [call("book_flight", city="Paris"), call("book_hotel", city="Paris")]
    return ScriptedModel([*bookings, "Your trip to Paris is booked.", "In Paris it rains."])


@durable_agent(durable_backend=BACKEND)
def travel_agent(session: str) -> Agent:
    memory = FileSessionManager(session, storage_dir=str(DATA / "sessions"))
    return Agent(model=model(), tools=[book_flight, book_hotel], session_manager=memory, callback_handler=None)
