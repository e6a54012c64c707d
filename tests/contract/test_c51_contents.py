"""C50 and C51 where they are hard: objects that live on, damaged rows, many calls, and passes that are stopped."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from strands import Agent

from strands_durable import Durability, Retention, errors
from strands_durable.testing import Answer, ScriptedModel, forget_process
from tests.contract.test_c50_retention import agent_of, is_sound, prune, statuses

CONTENTS = Retention(contents=0)


def rows(query: str) -> list[Any]:
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        return connection.execute(query).fetchall()


def recorded() -> list[Any]:
    """Return what must stay the same when a call is refused."""
    calls = rows("SELECT id, position, run, status, ended_at FROM calls ORDER BY id")
    return calls + rows("SELECT execution_id, status, run, updated_at, owner FROM executions ORDER BY id")


# Calls after the contents were removed


@pytest.mark.parametrize("ends", ["COMPLETED", "FAILED"])
def test_c51_an_agent_that_goes_on_is_refused_and_nothing_is_written(ends: str) -> None:
    chat = agent_of(
        "chat", "One.", *([Answer(errors=[ValueError("no")])] if ends == "FAILED" else []), "Two.", "Three."
    )
    chat("one")
    if ends == "FAILED":
        with pytest.raises(ValueError, match="no"):
            chat("two")
    assert prune(CONTENTS).emptied == 1
    before = recorded()
    for given in ("two", "three"):
        with pytest.raises(errors.ContentsRemovedError, match="'chat'"):
            chat(given)
        assert recorded() == before
    assert statuses() == {"chat": ends}
    assert is_sound()
    assert prune().removed == 1


@pytest.mark.parametrize("on_completed", ["restart", "return"])
def test_c51_one_that_is_to_restart_is_refused_and_nothing_is_written(on_completed: Any) -> None:
    def run() -> None:
        durability = Durability("runs.db", execution_id="once", on_completed=on_completed)
        Agent(model=ScriptedModel(["Hi."]), plugins=[durability], callback_handler=None)("Hi")

    run()
    forget_process()
    prune(CONTENTS)
    before = recorded()
    with pytest.raises(errors.ContentsRemovedError, match="'once'"):
        run()
    forget_process()
    assert recorded() == before
    assert is_sound()
