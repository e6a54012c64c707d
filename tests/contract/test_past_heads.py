"""Heads are kept, not overwritten: the head and the state of every finished step can be read back, for a fork."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability
from strands_durable._records import crash_points
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import ScriptedModel, call

Kept = dict[str, Any]


@tool(context=True)
def work(number: int, tool_context: ToolContext) -> str:
    """Change the state: overwrite a value, add one, delete one."""
    state = tool_context.agent.state
    state.set("last", number)
    state.set(f"key {number}", "x" * number)
    state.delete(f"key {number - 2}")
    return f"result {number}"


def agent_of() -> Agent:
    parallel = [call("work", number=7), call("work", number=9)]
    script = [
        *(call("work", number=number) for number in range(1, 5)),
        parallel,
        "Done.",
        call("work", number=11),
        "Bye.",
    ]
    return Agent(
        model=ScriptedModel(script),
        tools=[work],
        plugins=[Durability("runs.db", execution_id="trip")],
        callback_handler=None,
    )


SOURCES = "SELECT id, coalesce(state_of, id) AS source FROM calls"
"""Each call, and the call whose state it has: a call that finds the state of the one before shares it until it changes it."""


def now() -> tuple[int, Kept]:
    """Return how many steps have ended, and the current head and state of each call."""
    with closing(sqlite3.connect("runs.db")) as connection:
        (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM steps").fetchone()
        heads = connection.execute("SELECT 'head', call, part, data FROM heads")
        state = connection.execute(f"SELECT 'state', c.id, key, value FROM ({SOURCES}) c JOIN state ON call = c.source")
        return number, {(what, call_id, name): value for what, call_id, name, value in [*heads, *state]}


def kept_at(number: int, calls: set[int]) -> Kept:
    """Return head and state of these calls as they were when a number of steps had ended: what the next step found."""
    with closing(sqlite3.connect("runs.db")) as connection:
        heads = connection.execute(
            "SELECT 'head', call, part, data FROM heads WHERE version <= ?1"
            " UNION ALL SELECT 'head', call, part, data FROM past_heads WHERE since <= ?1 AND until > ?1",
            (number,),
        )
        state = connection.execute(
            f"SELECT 'state', c.id, key, value FROM ({SOURCES}) c JOIN (SELECT call, key, value FROM state WHERE version <= ?1"
            " UNION ALL SELECT call, key, value FROM past_state WHERE since <= ?1 AND until > ?1) ON call = c.source",
            (number,),
        )
        rows = [row for row in [*heads, *state] if row[1] in calls]
    found = {(what, call_id, name): value for what, call_id, name, value in rows}
    assert len(found) == len(rows), "of the forms of a row one, and only one, was current"
    return found


def test_heads_and_states_of_every_finished_step_can_be_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, Kept] = {}

    def look(point: str) -> None:
        if point.endswith(":after"):
            number, current = now()
            seen[number] = current

    monkeypatch.setattr(crash_points, "reach", look)
    monkeypatch.setattr("strands_durable._sqlite.database.reach", look)
    agent = agent_of()
    agent("Work")
    agent("And again")
    stores.close()
    assert list(seen) == list(range(16))
    for number, current in seen.items():
        calls = {call_id for _, call_id, _ in current}
        assert kept_at(number, calls) == current, f"when {number} steps had ended"


def test_what_is_kept_of_heads_is_less_than_half_a_kilobyte_per_cycle() -> None:
    script = [*(call("work", number=number) for number in range(1, 41)), "Done."]
    Agent(
        model=ScriptedModel(script),
        tools=[work],
        plugins=[Durability("runs.db", execution_id="trip")],
        callback_handler=None,
    )("Work")
    stores.close()
    with closing(sqlite3.connect("runs.db")) as connection:
        query = "SELECT call, part, until, since, data FROM past_heads WHERE part = 'progress'"
        rows = connection.execute(query).fetchall()
    assert len(rows) == 81, "one for each step, and one for the beginning"
    assert sum(len(str(cell)) + 1 for row in rows for cell in row) < 40 * 500
