"""An order desk that reserves an item and asks before it charges a card."""

from __future__ import annotations

import os
import time
from pathlib import Path

from strands import Agent, ToolContext, tool
from strands.models import BedrockModel, Model

from strands_durable import current_step, durable_agent
from strands_durable.testing import ScriptedModel, call

LEDGER = Path(os.environ.get("LEDGER", "ledger.txt"))


@tool
def reserve(item: str) -> str:
    """Reserve an item."""
    enter(f"reserve {item}")
    return f"{item} reserved"


@tool(context=True)
def charge(euros: int, tool_context: ToolContext) -> str:
    """Charge the customer's card, once a person has approved it."""
    if tool_context.interrupt("approval", reason=f"Charge {euros} euros?") != "yes":
        return "not charged: it was not approved"
    enter(f"charge {euros}")
    time.sleep(float(os.environ.get("CHARGE_SECONDS", "0.1")))
    return f"{euros} euros charged"


def enter(what: str) -> None:
    """Simulate a service that writes one entry per idempotency key."""
    step = current_step()
    assert step is not None
    entry = f"{step.idempotency_key} {what}"
    LEDGER.touch()
    if entry not in LEDGER.read_text().splitlines():
        with LEDGER.open("a") as ledger:
            print(entry, file=ledger)


def model() -> Model:
    """Return the Bedrock model named in BEDROCK_MODEL_ID, else a scripted one that needs no API key."""
    if model_id := os.environ.get("BEDROCK_MODEL_ID"):
        return BedrockModel(model_id=model_id)
    return ScriptedModel([call("reserve", item="lamp"), call("charge", euros=40), "The lamp is on its way."])


@durable_agent
def order_desk() -> Agent:
    return Agent(model=model(), tools=[reserve, charge], callback_handler=None)
