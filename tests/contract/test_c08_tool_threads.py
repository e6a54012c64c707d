"""C8: a sync tool runs in a thread that cannot be stopped. Until it has ended, no other process may own its execution."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.middleware import ExecuteToolStage, ToolResultEvent

from strands_durable import DoubtfulStep, Durability, ExecutionStatus, ToolPolicy, durable_agent, errors
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing import ScriptedModel, call
from tests.processes import Ended, run
from tests.waiting import until

LEDGER = Path("payments")
SCRIPT = [[call("charge", "c1", amount=7), call("look_up", "c2", name="Ada")], "Paid."]


def paid() -> list[str]:
    return LEDGER.read_text().split() if LEDGER.exists() else []


def verify(step: DoubtfulStep) -> str | None:
    """Look at the outside ledger, as a user's callback would."""
    with open("verified", "a") as file:
        file.write("asked\n")
    return "found in the ledger" if f"paid:{step.input['amount']}" in paid() else None


@tool(context=True)
def charge(amount: int, tool_context: ToolContext) -> str:
    """Charge a card, which takes as long as the test wants."""
    with LEDGER.open("a") as file:
        file.write(f"begun:{amount}\n")
    until(Path("go").exists, 60)
    with LEDGER.open("a") as file:
        file.write(f"paid:{amount}\n")
    tool_context.agent.state.set("receipt", f"R-{amount}")
    return f"charged {amount}"


@tool
async def look_up(name: str) -> Any:
    """Find a customer, and return when the other tool has begun."""
    while not paid():
        await asyncio.sleep(0.01)
    yield "looking"
    yield f"{name}: 7"


def agent_of(script: list[Any] = SCRIPT, *, policy: ToolPolicy | None = None, **options: Any) -> Agent:
    policies = {"charge": policy or ToolPolicy(in_doubt="verify", verify=verify)}
    return Agent(
        model=ScriptedModel(script),
        tools=[charge, look_up],
        plugins=[Durability("runs.db", **{"execution_id": "order", "tool_policies": policies, **options})],
        callback_handler=None,
    )


def rows(sql: str) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def charges() -> list[Any]:
    return rows("SELECT attempt, status FROM steps WHERE name = 'charge' ORDER BY attempt")


def owner() -> Any:
    return rows("SELECT owner FROM executions")[0][0]


def _called(folder: str) -> tuple[str, Any]:
    os.chdir(folder)
    agent = agent_of()
    return str(agent("Pay")).strip(), agent.state.get("receipt")


def in_another_process() -> Ended:
    """Have another process run the same script."""
    return run(_called, os.getcwd())


async def cancelled(agent: Agent) -> None:
    """Call an agent as a request handler does whose client hangs up while the tool runs."""
    task = asyncio.ensure_future(agent.invoke_async("Pay"))
    while not paid():
        await asyncio.sleep(0.01)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 5.0, "the caller of a cancelled call waits for nothing"


# Inline


def test_c08_a_cancelled_call_keeps_its_lease_until_its_tool_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def service() -> None:
        await cancelled(agent_of())
        error = (await asyncio.to_thread(in_another_process)).error
        assert error is not None
        assert error[0] == "ExecutionBusyError"
        Path("go").touch()
        await asyncio.to_thread(until, lambda: owner() is None)

    with caplog.at_level(logging.INFO):
        asyncio.run(service())
    assert charges() == [(1, "done")], "what the thread returned is recorded"
    assert "still runs in a thread" in caplog.text
    assert in_another_process().checked() == ("Paid.", "R-7"), "with the state that it wrote"
    assert paid() == ["begun:7", "paid:7"]


def test_c08_a_kept_lease_is_renewed() -> None:
    async def service() -> None:
        await cancelled(agent_of(lease_seconds=0.3))
        first = rows("SELECT beat FROM executions")[0][0]
        await asyncio.to_thread(until, lambda: rows("SELECT beat FROM executions")[0][0] > first + 1)
        assert owner() is not None
        Path("go").touch()

    asyncio.run(service())


def test_c08_a_broken_off_stream_keeps_its_lease_until_its_tool_has_ended() -> None:
    async def service() -> None:
        async for event in agent_of().stream_async("Pay"):
            if "tool_stream_event" in event:
                break
        assert owner() is not None
        assert "begun:7" in paid()
        Path("go").touch()

    asyncio.run(service())
    until(lambda: owner() is None)
    assert charges() == [(1, "done")]
    assert in_another_process().checked() == ("Paid.", "R-7")
    assert paid() == ["begun:7", "paid:7"]


def test_c08_the_next_call_of_the_process_waits_for_the_tool_and_takes_its_result() -> None:
    async def service() -> str:
        await cancelled(agent_of())
        threading.Timer(0.2, Path("go").touch).start()
        return str(await agent_of().invoke_async("Pay")).strip()

    assert asyncio.run(service()) == "Paid."
    assert paid() == ["begun:7", "paid:7"]
    assert charges() == [(1, "done")]


def test_c08_a_tool_that_outlasts_a_lease_is_named_to_the_next_call_of_the_process() -> None:
    async def service() -> None:
        await cancelled(agent_of(lease_seconds=0.2))
        with pytest.raises(errors.ExecutionBusyError, match="its tool 'charge' still runs in a thread"):
            await agent_of(lease_seconds=0.2).invoke_async("Pay")
        Path("go").touch()

    asyncio.run(service())
    assert paid() == ["begun:7", "paid:7"]


def test_c08_a_late_result_passes_the_middleware_around_the_tool() -> None:
    async def mask(context: Any, next_fn: Any) -> Any:
        async for event in next_fn(context):
            if isinstance(event, ToolResultEvent):
                event = ToolResultEvent({**event.tool_result, "content": [{"text": "masked"}]})
            yield event

    agent = agent_of()
    agent.add_middleware(ExecuteToolStage, mask)

    async def service() -> None:
        await cancelled(agent)
        Path("go").touch()

    asyncio.run(service())
    until(lambda: owner() is None)
    assert "masked" in rows("SELECT result FROM steps WHERE name = 'charge'")[0][0]


def test_c08_a_late_error_of_a_tool_is_its_result_too() -> None:
    @tool(name="charge")
    def refuse(amount: int) -> str:
        """Charge a card that is refused."""
        LEDGER.write_text("begun")
        until(Path("go").exists, 60)
        raise RuntimeError("card refused")

    agent = agent_of()
    agent.tool_registry.registry["charge"] = refuse

    async def service() -> None:
        await cancelled(agent)
        Path("go").touch()

    asyncio.run(service())
    until(lambda: owner() is None)
    assert charges() == [(1, "done")]
    assert "card refused" in rows("SELECT result FROM steps WHERE name = 'charge'")[0][0]


PROGRAM = """
import asyncio, sys
from tests.contract.test_c08_tool_threads import agent_of, paid

async def main():
    task = asyncio.ensure_future(agent_of().invoke_async("Pay"))
    while sys.argv[1] == "cancel" and not task.done():
        await asyncio.sleep(0.01)
        if paid() and task.cancel():
            break
    await task

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["cancel", "ctrl-c"])
def test_c08_a_script_that_ends_while_its_tool_runs_records_what_it_returns(how: str) -> None:
    root = str(Path(__file__).parents[2])
    script = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        env={**os.environ, "PYTHONPATH": root},
        stderr=subprocess.PIPE,
        text=True,
    )
    until(paid)
    if how == "ctrl-c":
        script.send_signal(signal.SIGINT)
    assert script.stderr is not None
    assert "still runs in a thread" in script.stderr.readline()
    error = in_another_process().error
    assert error is not None
    assert error[0] == "ExecutionBusyError"
    Path("go").touch()
    script.communicate(timeout=30)
    assert charges() == [(1, "done")]
    assert in_another_process().checked() == ("Paid.", "R-7")
    assert paid() == ["begun:7", "paid:7"]


# Timeouts


def timed(timeout: float = 0.2, **given: Any) -> Agent:
    return agent_of([call("charge", amount=7), "Paid."], policy=ToolPolicy(timeout=timeout, **given))


def result_text(agent: Agent) -> str:
    return str(agent.messages[2]["content"][0]["toolResult"]["content"][0]["text"])


def test_c12_a_tool_that_still_runs_after_its_timeout_is_not_verified_but_waited_for_once_more() -> None:
    agent = timed(1.0, in_doubt="verify", verify=verify)
    threading.Timer(1.3, Path("go").touch).start()
    agent("Pay")
    assert result_text(agent) == "charged 7"
    assert not Path("verified").exists()
    assert charges() == [(1, "done")]


@pytest.mark.parametrize("given", [{"in_doubt": "verify", "verify": verify}, {"retries": 3}], ids=["verify", "retry"])
def test_c12_a_tool_that_still_runs_is_never_run_again_beside_itself(given: dict[str, Any]) -> None:
    agent = timed(**given)
    threading.Timer(3.0, Path("go").touch).start()
    agent("Pay")
    assert "is unknown" in result_text(agent)
    until(lambda: charges() == [(1, "done"), (2, "done")])
    assert (paid(), Path("verified").exists()) == (["begun:7", "paid:7"], False)


def test_c12_a_person_who_is_asked_about_a_tool_that_still_runs_cannot_have_it_run_beside_itself() -> None:
    agent = timed(in_doubt="ask")

    async def service() -> None:
        asked = await agent.invoke_async("Pay")
        assert asked.stop_reason == "interrupt"
        assert owner() is not None
        threading.Timer(0.2, Path("go").touch).start()
        answer = {"interruptResponse": {"interruptId": asked.interrupts[0].id, "response": "retry"}}
        assert str(await agent.invoke_async([answer])).strip() == "Paid."

    asyncio.run(service())
    assert paid() == ["begun:7", "paid:7"]


# Dispatched


@durable_agent(name="cashier", tool_policies={"charge": ToolPolicy(in_doubt="verify", verify=verify)})
def cashier() -> Agent:
    return Agent(model=ScriptedModel(SCRIPT), tools=[charge, look_up], callback_handler=None)


def _worked(folder: str, seconds: float) -> str:
    os.chdir(folder)

    async def main() -> str:
        backend = SqliteBackend("sqlite:///runs.db")
        try:
            return str(await (await backend.get("order")).result(timeout=seconds)).strip()
        except TimeoutError:
            return "not yet"

    return asyncio.run(main())


def test_c08_a_backend_that_is_closed_keeps_the_lease_until_the_tool_has_ended() -> None:
    async def service() -> None:
        backend = SqliteBackend("sqlite:///runs.db")
        await cashier.on(backend).dispatch_async("Pay", execution_id="order")
        await asyncio.to_thread(until, paid)
        closing = asyncio.ensure_future(backend.close())
        assert await asyncio.to_thread(lambda: run(_worked, os.getcwd(), 2.5).checked()) == "not yet"
        assert paid() == ["begun:7"]
        Path("go").touch()
        await closing

    asyncio.run(service())
    until(lambda: owner() is None)
    assert charges() == [(1, "done")]
    assert run(_worked, os.getcwd(), 30).checked() == "Paid."
    assert paid() == ["begun:7", "paid:7"]


def test_c03_a_cancelled_execution_has_its_owner_until_its_tool_has_ended() -> None:
    async def service() -> None:
        backend = SqliteBackend("sqlite:///runs.db")
        handle = await cashier.on(backend).dispatch_async("Pay", execution_id="order")
        await asyncio.to_thread(until, paid)
        await handle.cancel()
        assert (await handle.status(), owner() is None) == (ExecutionStatus.RUNNING, False)
        Path("go").touch()
        with pytest.raises(errors.ExecutionCancelledError):
            await handle.result(timeout=30)
        await backend.close()

    asyncio.run(service())
    assert charges() == [(1, "done")]
