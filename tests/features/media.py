"""Images and documents: bytes in prompts, in tool results, in messages."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

from strands import Agent, tool

from strands_durable.testing import call
from tests.features.harness import LedgerModel, durability, effect, feature, seen

PICTURE = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(100))
IMAGE = {"image": {"format": "png", "source": {"bytes": PICTURE}}}
DOCUMENT = {"document": {"format": "txt", "name": "notes", "source": {"bytes": b"short enough to stay"}}}


@tool
def photograph(city: str) -> dict[str, Any]:
    """Take a picture."""
    effect("photograph", city=city)
    return {"status": "success", "content": [{"text": city}, IMAGE, DOCUMENT]}


def stored() -> list[Any]:
    connection = sqlite3.connect("runs.db")
    found = connection.execute("SELECT digest, length(data) FROM blobs").fetchall()
    connection.close()
    return found


@feature(12, "an image in two prompts and a tool result, stored once")
def images() -> Any:
    agent = Agent(
        model=LedgerModel([call("photograph", city="Rome"), "Nice.", "The same."]),
        tools=[photograph],
        plugins=[durability()],
        callback_handler=None,
    )
    first = seen(agent, agent([{"text": "Like this one"}, IMAGE]))
    second = seen(agent, agent([{"text": "And this one?"}, IMAGE, DOCUMENT]))
    return first, second, stored()
