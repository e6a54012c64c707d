"""Record the store that must open for ever: ``python -m tests.stores.record``, once for each format, by its own code.

Each is a file as real processes left it, in tests/stores/format_N.sqlite; it is never changed afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from strands import Agent, ToolContext, tool

from strands_durable import Durability, durable_agent
from strands_durable._journal import owner
from strands_durable._records.notifications import EVENTS
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.notices import Notices
from strands_durable.testing import Answer, ScriptedModel, call
from tests.processes import run

STORES = Path(__file__).parent
PICTURE = {"image": {"format": "png", "source": {"bytes": bytes(range(256)) * 20}}}
PROMPT = [{"text": "Where is this?"}, PICTURE]
TAGS = {"tenant": "acme"}
"""Recorded since format 6."""
FINISHED = [[call("book", city="Paris"), call("remember", what="Oslo")], "Both are done."]
ASKED = [call("book", city="Bonn"), call("approve", what="the trip to Bonn"), "Approved."]
KILLED = [call("book", city="Lima"), call("book_and_die", city="Rome"), "You are going to Lima and Rome."]
FAILED = [call("book", city="Kyiv"), Answer(errors=[ValueError("the model is out of order")], text="It works again.")]


@tool
def book(city: str) -> str:
    """Book a hotel."""
    _note(city)
    return f"booked {city}"


@tool
def book_and_die(city: str) -> str:
    """Book a hotel; the first process to do so is killed before the booking is recorded."""
    is_first = city not in booked()
    _note(city)
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"booked {city}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


@tool(context=True)
def remember(what: str, tool_context: ToolContext) -> dict[str, Any]:
    """Keep something in the agent's state, and show the picture again."""
    tool_context.agent.state.set("city", what)
    tool_context.agent.state.set("nights", 3)
    return {"status": "success", "content": [{"text": what}, PICTURE]}


@durable_agent(name="greeter")
def greeter() -> Agent:
    """Return an agent that is dispatched and not yet carried by a worker."""
    return Agent(model=ScriptedModel(["Hello."]), callback_handler=None)


def _note(city: str) -> None:
    with open("booked", "a") as file:
        file.write(f"{city}\n")


def booked() -> list[str]:
    """Return what was booked in this folder, in order."""
    return Path("booked").read_text().split() if Path("booked").exists() else []


def agent_of(execution_id: str, script: list[Any]) -> Agent:
    """Return the agent of an execution."""
    return Agent(
        model=ScriptedModel(script),
        tools=[book, book_and_die, approve, remember],
        plugins=[Durability("runs.db", execution_id=execution_id, tags=TAGS)],
        callback_handler=None,
    )


def _recorded(folder: str, execution_id: str, script: list[Any], prompt: Any) -> Any:
    os.chdir(folder)
    _pretend()
    try:
        return str(agent_of(execution_id, script)(prompt))
    except Exception as error:
        return str(error)


def _dispatched(folder: str) -> None:
    os.chdir(folder)
    _pretend()
    agent = greeter.on("sqlite:///runs.db?worker=off")
    asyncio.run(agent.dispatch_async("Hi", execution_id="dispatched", tags=TAGS))


def _watched(folder: str) -> None:
    """Have the store record what is to be reported, since format 7."""
    store = Store(Path(folder, "runs.db"))
    Notices(store).watch(EVENTS)
    store.close()


def _pretend() -> None:
    """Which machine it was is of no interest."""
    socket.gethostname = lambda: "worker"
    owner._first_line = lambda path: "recorded"
    owner._link = lambda path: "recorded"


def main() -> None:
    """Record the store of the current format."""
    with tempfile.TemporaryDirectory() as folder:
        run(_watched, folder).checked()
        run(_recorded, folder, "finished", FINISHED, PROMPT).checked()
        run(_recorded, folder, "asked", ASKED, "Ask me").checked()
        run(_recorded, folder, "failed", FAILED, "Fail").checked()
        run(_dispatched, folder).checked()
        assert run(_recorded, folder, "killed", KILLED, "Book both").exitcode == -signal.SIGKILL
        connection = sqlite3.connect(f"{folder}/runs.db")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.close()
        path = STORES / f"format_{version}.sqlite"
        path.write_bytes(Path(folder, "runs.db").read_bytes())
    print(f"{path.name}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
