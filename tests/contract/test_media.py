"""Large bytes are stored once, and are gone when a guardrail takes them out (C19)."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from strands import Agent, tool

from strands_durable import Durability
from strands_durable.testing import Answer, ScriptedModel, call, forget_process

PICTURE = os.urandom(200_000)
IMAGE: Any = {"image": {"format": "png", "source": {"bytes": PICTURE}}}


@tool
def photograph() -> dict[str, Any]:
    """Take a picture."""
    return {"status": "success", "content": [IMAGE]}


def agent_of(script: list[Any]) -> Agent:
    plugins = [Durability("runs.db", execution_id="trip")]
    return Agent(model=ScriptedModel(script), tools=[photograph], plugins=plugins, callback_handler=None)


def blobs() -> int:
    with closing(sqlite3.connect("runs.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM blobs").fetchone()[0])


def test_an_image_in_prompts_results_and_state_is_stored_once() -> None:
    agent = agent_of([call("photograph"), call("photograph"), "One.", "Two.", "Three."])
    agent([{"text": "a"}, IMAGE])
    agent([{"text": "b"}, IMAGE, IMAGE])
    agent("c", invocation_state={"kept": {"picture": PICTURE}})
    messages = agent.messages
    assert blobs() == 1
    forget_process()
    assert sum(path.stat().st_size for path in Path().glob("runs.db*")) < 3 * len(PICTURE)
    again = agent_of([])
    state: dict[str, Any] = {}
    for prompt in ([{"text": "a"}, IMAGE], [{"text": "b"}, IMAGE, IMAGE], "c"):
        again(prompt, invocation_state=state)
    assert again.messages == messages
    assert state["kept"]["picture"] == PICTURE


def test_c19_a_redacted_image_is_gone_from_the_file() -> None:
    agent = agent_of([Answer(text="No.", redact_user="[redacted]")])
    agent([{"text": "see"}, IMAGE])
    assert "[redacted]" in str(agent.messages[0])
    assert blobs() == 0
    forget_process()
    assert not [path for path in Path().glob("runs.db*") if PICTURE[:64] in path.read_bytes()]


def test_text_that_looks_like_a_reference_stays_text() -> None:
    tricky = '{"$":"blob","of":"bytes","n":1,"v":"' + "a" * 64 + '"}' + '{"$":"bytes","v":"' + "A" * 2000 + '"}'
    agent_of(["Done."])(tricky)
    forget_process()
    agent = agent_of([])
    agent(tricky)
    assert agent.messages[0]["content"] == [{"text": tricky}]
    assert blobs() == 0
