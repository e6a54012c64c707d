"""A trip planner as a durable function. It asks before it spends money: the question goes to a webhook."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from strands import Agent, ToolContext, tool
from strands.models import BedrockModel, Model

from strands_durable import current_step, durable_agent
from strands_durable.backends.aws_lambda import lambda_handler
from strands_durable.testing import ScriptedModel, call

BOOKINGS = Path(os.environ.get("BOOKINGS", "/tmp/bookings.txt"))


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
    """Simulate a booking service that books once per idempotency key; the first attempt can be made to take long."""
    step = current_step()
    assert step is not None
    print(f"attempt {step.attempt}: {what}, process {os.getpid()}", file=sys.stderr)
    booking = f"{step.idempotency_key} {what}"
    BOOKINGS.touch()
    if booking not in BOOKINGS.read_text().splitlines():
        with BOOKINGS.open("a") as ledger:
            print(booking, file=ledger)
    if step.attempt == 1:
        time.sleep(float(os.environ.get("BOOKING_SECONDS", "0.1")))


def model() -> Model:
    """Return the Bedrock model named in BEDROCK_MODEL_ID, else a scripted one that needs no API key."""
    if model_id := os.environ.get("BEDROCK_MODEL_ID"):
        return BedrockModel(model_id=model_id)
    return ScriptedModel([call("book_flight", city="Paris"), call("book_hotel", city="Paris"), "Have a good trip!"])


@durable_agent
def trip_planner() -> Agent:
    return Agent(model=model(), tools=[book_flight, book_hotel], callback_handler=None)


def notify(callback_id: str, question: dict[str, Any]) -> None:
    """Post a question to the webhook, with the callback id that answers it. If this raises, it is called up to three times."""
    if webhook := os.environ.get("APPROVAL_WEBHOOK"):
        body = json.dumps({"callback_id": callback_id, **question}).encode()
        with urlopen(Request(webhook, body, {"Content-Type": "application/json"}), timeout=10):
            pass


handler = lambda_handler(trip_planner, notify=notify)
