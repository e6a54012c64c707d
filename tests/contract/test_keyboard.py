"""Ctrl-C in a script with a durable agent: the first one stops after the running step, the second one at once."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.multiagent import GraphBuilder

from strands_durable import Durability
from strands_durable._sqlite.catalog import Catalog
from strands_durable.testing import ScriptedModel, call
from tests import threads
from tests.processes import Child
from tests.waiting import until

OWN, THREAD, GRAPH = "own handler", "thread", "graph"


@tool
def book(city: str) -> str:
    """Book a hotel, once a file is there."""
    with open("ledger", "a") as ledger:
        ledger.write(f"{city} ")
    Path("waiting").touch()
    until(Path("go").exists)
    return "booked"


def script(folder: str, what: str = "", execution_id: str | None = "trip") -> str:
    """A user's script, in a process of its own."""
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if what == OWN:
        signal.signal(signal.SIGINT, lambda *_: Path("own").touch())
    sys.stderr = open(f"stderr-{os.getpid()}", "w", buffering=1)  # noqa: SIM115
    subject = _subject(what, [Durability("runs.db", execution_id=execution_id)])
    try:
        return str(subject("Book")) if what != THREAD else _in_thread(subject)
    except KeyboardInterrupt as interrupt:
        return f"KeyboardInterrupt: {interrupt}"


def _in_thread(subject: Any) -> str:
    said: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: said.put(str(subject("Book")))).start()
    try:
        return said.get()
    except KeyboardInterrupt:
        Path("interrupted").touch()
        return said.get()


def _subject(what: str, plugins: list[Any]) -> Any:
    model = ScriptedModel([call("book", city="Paris"), call("book", city="Rome"), "Booked both."])
    agent = Agent(model=model, tools=[book], callback_handler=None, plugins=[] if what == GRAPH else plugins)
    if what != GRAPH:
        return agent
    builder = GraphBuilder()
    builder.add_node(agent, "only")
    builder.set_max_node_executions(9)
    return builder.set_plugins(plugins).build()


def start(what: str = "", execution_id: str | None = "trip") -> Child:
    return Child(script, os.getcwd(), what, execution_id)


def press(running: Child) -> None:
    until(Path("waiting").exists)
    os.kill(running.pid, signal.SIGINT)


def said_by(running: Child) -> str:
    return Path(f"stderr-{running.pid}").read_text()


def booked() -> list[str]:
    return Path("ledger").read_text().split()


def test_the_first_ctrl_c_stops_after_the_step_and_says_how_to_resume() -> None:
    running = start()
    press(running)
    until(lambda: "in doubt" in said_by(running))
    assert "Stopping after the current step. Run the script again to resume execution 'trip'" in said_by(running)
    assert "Ctrl-C again stops at once" in said_by(running)
    assert running.process.is_alive(), "the step may end"
    Path("go").touch()
    ended = running.join().checked()
    assert ended.startswith("KeyboardInterrupt: Stopped with Ctrl-C.")
    assert ended.endswith("Run the script again to resume execution 'trip' at its next step.")
    detail = Catalog("runs.db").execution("trip")
    assert (detail.execution.status.value, detail.execution.owner) == ("RUNNING", None)
    assert [(step.name, step.state) for step in detail.steps if step.kind == "tool"] == [("book", "done")]
    assert start().join().checked() == "Booked both.\n"
    assert booked() == ["Paris", "Rome"]


def test_the_second_ctrl_c_ends_at_once_and_the_step_is_in_doubt() -> None:
    running = start()
    press(running)
    until(lambda: "in doubt" in said_by(running))
    os.kill(running.pid, signal.SIGINT)
    assert running.join().exitcode == -signal.SIGINT
    assert not Path("go").exists(), "the tool was still at work"
    (step,) = [step for step in Catalog("runs.db").execution("trip").steps if step.kind == "tool"]
    assert step.in_doubt
    Path("go").touch()
    assert start().join().checked() == "Booked both.\n"


def test_the_id_of_an_execution_without_a_name_is_shown() -> None:
    running = start(execution_id=None)
    press(running)
    until(lambda: "in doubt" in said_by(running))
    Path("go").touch()
    running.join()
    (record,) = Catalog("runs.db").executions()
    wanted = f"run the script with Durability(..., execution_id='{record.execution_id}') to resume it"
    assert wanted in said_by(running)


def test_a_handler_of_the_user_stays_in_place() -> None:
    running = start(OWN)
    press(running)
    until(Path("own").exists)
    Path("go").touch()
    assert running.join().checked() == "Booked both.\n"
    assert said_by(running) == ""


def test_a_call_in_another_thread_is_left_alone() -> None:
    running = start(THREAD)
    press(running)
    until(Path("interrupted").exists)
    Path("go").touch()
    assert running.join().checked() == "Booked both.\n"
    assert "Stopping after" not in said_by(running)


def test_a_graph_stops_after_the_step_too() -> None:
    running = start(GRAPH)
    press(running)
    until(lambda: "in doubt" in said_by(running))
    Path("go").touch()
    assert running.join().checked().startswith("KeyboardInterrupt: Stopped with Ctrl-C.")
    assert "Booked both." in start(GRAPH).join().checked()
    assert booked() == ["Paris", "Rome"]


@tool
def look() -> str:
    """Say which handler there is."""
    return str(signal.getsignal(signal.SIGINT))


def test_the_handler_is_back_after_a_call_and_never_set_from_another_thread() -> None:
    def agent() -> Agent:
        plugins: list[Any] = [Durability("runs.db")]
        return Agent(model=ScriptedModel([call("look"), "Done."]), tools=[look], plugins=plugins, callback_handler=None)

    before = signal.getsignal(signal.SIGINT)
    agent()("Go")
    assert signal.getsignal(signal.SIGINT) is before
    errors: list[BaseException] = []

    def target() -> None:
        try:
            agent()("Go")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    threads.join(thread)
    assert errors == []
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
