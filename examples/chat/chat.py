"""A durable chat: one session for the conversation, one execution for each turn."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import BedrockModel, Model
from strands.session import FileSessionManager

from strands_durable import Durability, current_step
from strands_durable.testing import ScriptedModel, call

BOOKINGS = Path("bookings.txt")


@tool
def book_table(guests: int) -> str:
    """Book a table."""
    step = current_step()
    assert step is not None
    with BOOKINGS.open("a") as ledger:
        print(step.idempotency_key, f"a table for {guests}", file=ledger)
    time.sleep(float(os.environ.get("BOOKING_SECONDS", "0.1")))
    return f"a table for {guests} is booked"


def reply(chat_id: str, turn: str, text: str) -> str:
    """Answer one message of a chat. Called again for the same turn, resume it or return its recorded answer.

    The agent is built for this one turn: the session restores the conversation, in any process.
    """
    agent = Agent(
        model=model(),
        tools=[book_table],
        session_manager=FileSessionManager(chat_id, storage_dir="sessions"),
        plugins=[Durability("runs.db")],
        callback_handler=None,
    )
    return str(agent(text, invocation_state={"execution_id": f"{chat_id}.{turn}"}))


def model() -> Model:
    """Return the Bedrock model named in BEDROCK_MODEL_ID, else a scripted one that needs no API key."""
    if model_id := os.environ.get("BEDROCK_MODEL_ID"):
        return BedrockModel(model_id=model_id)
    return ScriptedModel(_scripted)


def _scripted(turn: int, messages: list[Any]) -> Any:
    said = [
        block["text"]
        for message in messages
        if message["role"] == "user"
        for block in message["content"]
        if "text" in block
    ]
    if "toolResult" in messages[-1]["content"][0]:
        return "Your table is booked."
    return call("book_table", guests=2) if "table" in said[-1] else f"You have said {len(said)} things so far."


if __name__ == "__main__":
    print(reply(*sys.argv[1:4]).strip())
