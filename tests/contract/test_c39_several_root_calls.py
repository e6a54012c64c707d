"""C39 where an execution has several root calls: one that waits while others run, earlier runs, and changes of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, connect, errors
from strands_durable.testing import ScriptedModel, call, forget_process
from tests.script import answers

URL = "sqlite:///runs.db?worker=off"


@tool
def book(city: str) -> str:
    """Book."""
    with Path("ran").open("a") as file:
        file.write(f"{city} ")
    return f"{city} is booked"


@tool(context=True)
def ask(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("approval", reason=what))


def agent_of(execution_id: str, agent_id: str, *script: Any, **options: Any) -> Agent:
    return Agent(
        agent_id=agent_id,
        model=ScriptedModel([*script]),
        tools=[book, ask],
        plugins=[Durability("runs.db", execution_id=execution_id, **options)],
        callback_handler=None,
    )


def asker(execution_id: str) -> Agent:
    return agent_of(execution_id, "a", call("ask", what="x"), call("book", city="Aachen"), "End a.")


def booker(execution_id: str) -> Agent:
    return agent_of(execution_id, "b", call("book", city="Bern"), "End b.")


def ran() -> list[str]:
    found = Path("ran").read_text().split() if Path("ran").exists() else []
    Path("ran").unlink(missing_ok=True)
    return found


def forked(at: int, **changes: Any) -> str:
    execution_id = f"fork-{at}-{'-'.join(changes)}"
    connect(URL).sync.get("trip").fork(at=at, execution_id=execution_id, **changes)
    return execution_id


@pytest.fixture
def trip() -> None:
    """Steps 1 and 2 are the asker's, 3 to 5 the booker's, 6 to 9 the asker's after it was answered."""
    first, second = asker("trip"), booker("trip")
    asked: Any = first("Go a")
    second("Go b")
    first(answers(asked, "yes"))  # type: ignore[arg-type]
    forget_process()
    assert ran() == ["Bern", "Aachen"]


@pytest.mark.usefixtures("trip")
@pytest.mark.parametrize("at", range(10))
def test_c39_a_root_call_that_ended_later_is_open_in_a_fork(at: int) -> None:
    if at in (2, 3, 4):  # at 5 it has been answered
        with pytest.raises(errors.ForkError, match="Fork it one step earlier"):
            forked(at)  # what it asked then is no longer recorded
        return
    fork = forked(at)
    first = asker(fork)
    result: Any = first("Go a")
    if result.stop_reason == "interrupt":
        result = first(answers(result, "yes"))  # type: ignore[arg-type]
    assert str(result).strip() == "End a."
    assert str(booker(fork)("Go b")).strip() == "End b."
    assert sorted(ran()) == [city for city, number in (("Aachen", 8), ("Bern", 4)) if number > at]


@pytest.mark.usefixtures("trip")
@pytest.mark.parametrize(
    "changes", [{"state": {"x": 1}}, {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}]
)
@pytest.mark.parametrize("at", range(6, 9))
def test_c39_a_changed_call_leaves_those_alone_that_worked_after_it_had_begun(at: int, changes: dict[str, Any]) -> None:
    fork = forked(at, **changes)
    assert str(booker(fork)("Go b")).strip() == "End b."
    assert "Bern" not in ran()


def test_c39_the_last_step_of_an_earlier_run_is_not_the_beginning_of_this_one() -> None:
    booker("trip")("Go b")
    agent_of("trip", "b", call("book", city="Bern"), "End b.", on_completed="restart")("Go b")
    forget_process()
    for at in (1, 2, 3):
        with pytest.raises(errors.ForkError, match="belongs to an earlier run"):
            forked(at)
    ran()
    assert str(booker(forked(0))("Go b")).strip() == "End b."
    assert ran() == ["Bern"]
