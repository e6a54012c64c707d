"""C12: retries of a tool: which error results, how long to wait, and what happens to a wait."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, FailedAttempt, ToolPolicy, current_step, durable_agent, policy
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, call, forget_process
from tests.waiting import until_async

made: list[int] = []


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    made.clear()


def rows(sql: str) -> list[Any]:
    connection = sqlite3.connect("runs.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def agent_of(script: Any, tools: Any, **policies: ToolPolicy) -> Agent:
    durability = Durability("runs.db", execution_id="trip", tool_policies=policies)
    return Agent(model=ScriptedModel(script), tools=list(tools), plugins=[durability], callback_handler=None)


def flaky_of(failures: int, error: Callable[[], Exception] = lambda: ConnectionError("down")) -> Any:
    @tool
    def flaky() -> str:
        """Fail a few times."""
        step = current_step()
        assert step is not None
        made.append(step.attempt)
        if len(made) <= failures:
            raise error()
        return "fine"

    return flaky


SCRIPT = [call("flaky"), "Done."]


def attempts() -> list[tuple[int, str]]:
    return rows("SELECT attempt, status FROM steps WHERE kind = 'tool' ORDER BY attempt")


def waits() -> list[float]:
    times = rows("SELECT started_at, ended_at FROM steps WHERE kind = 'tool' ORDER BY attempt")
    return [after[0] - before[1] for before, after in pairwise(times)]


def test_c12_the_wait_between_retries_grows_up_to_its_limit() -> None:
    found = ToolPolicy(retries=3, backoff_seconds=0.05, backoff_factor=3, backoff_max_seconds=0.1)
    agent_of(SCRIPT, [flaky_of(3)], flaky=found)("Go")
    assert attempts() == [(1, "failed"), (2, "failed"), (3, "failed"), (4, "done")]
    first, second, third = waits()
    assert first >= 0.05
    assert second >= 0.1
    assert third >= 0.1
    assert first + second + third < 2, "a wait is not limited"
    assert [found.wait_before(retry) for retry in (1, 2, 3, 10_000)] == [0.05, 0.1, 0.1, 0.1]


@pytest.mark.parametrize(
    "retry_on", [ConnectionError, (OSError, KeyError), lambda failed: "down" in str(failed.result)]
)
def test_c12_only_what_retry_on_names_is_tried_again(retry_on: Any) -> None:
    found = ToolPolicy(retries=2, retry_on=retry_on)
    agent_of(SCRIPT, [flaky_of(1)], flaky=found)("Go")
    assert attempts() == [(1, "failed"), (2, "done")]


@pytest.mark.parametrize(
    "retry_on", [ConnectionError, (OSError, KeyError), lambda failed: "down" in str(failed.result)]
)
def test_c12_any_other_error_is_the_result_at_once(retry_on: Any) -> None:
    agent = agent_of(
        SCRIPT, [flaky_of(1, lambda: ValueError("no such city"))], flaky=ToolPolicy(retries=2, retry_on=retry_on)
    )
    agent("Go")
    assert attempts() == [(1, "done")]
    assert "no such city" in str(agent.messages[2])


def test_c12_retry_on_sees_the_result_the_exception_and_the_attempt() -> None:
    seen: list[FailedAttempt] = []

    def judge(failed: FailedAttempt) -> bool:
        seen.append(failed)
        return True

    @policy(retries=2, retry_on=judge)
    @tool
    def flaky(city: str) -> Any:
        """Raise, then return an error, then do it."""
        made.append(1)
        if len(made) == 1:
            raise TimeoutError("too slow")
        status = "error" if len(made) == 2 else "success"
        return {"status": status, "content": [{"text": "busy"}]}

    agent_of([call("flaky", city="Rome"), "Done."], [flaky])("Go")
    assert [(found.tool, found.input, found.attempt) for found in seen] == [
        ("flaky", {"city": "Rome"}, 1),
        ("flaky", {"city": "Rome"}, 2),
    ]
    assert [type(found.exception) for found in seen] == [TimeoutError, type(None)]
    assert [found.result["status"] for found in seen] == ["error", "error"]


def test_c12_an_error_in_retry_on_loses_no_result(caplog: pytest.LogCaptureFixture) -> None:
    def broken(failed: FailedAttempt) -> bool:
        raise KeyError("code")

    agent = agent_of(SCRIPT, [flaky_of(1)], flaky=ToolPolicy(retries=2, retry_on=broken))
    with caplog.at_level(logging.WARNING, logger="strands_durable"):
        agent("Go")
    assert attempts() == [(1, "done")]
    assert "down" in str(agent.messages[2])
    assert "KeyError('code')" in caplog.text


def test_c12_other_tools_run_while_one_waits_for_its_retry() -> None:
    @tool
    async def other() -> str:
        """Run beside."""
        while not made:
            await asyncio.sleep(0.001)
        made.append(100)
        return "other"

    agent_of(
        [[call("flaky"), call("other")], "Done."],
        [flaky_of(1), other],
        flaky=ToolPolicy(retries=1, backoff_seconds=1.5),
    )("Go")
    assert made == [1, 100, 2]


def test_c12_a_kill_in_a_wait_neither_loses_the_attempt_nor_waits_from_the_beginning() -> None:
    found = ToolPolicy(retries=2, backoff_seconds=1.5)
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("tool.done:after@1", "raise"):
        agent_of(SCRIPT, [flaky_of(1)], flaky=found)("Go")
    forget_process()
    assert attempts() == [(1, "failed")]
    begun = time.time()
    agent_of(SCRIPT, [flaky_of(1)], flaky=found)("Go")
    assert attempts() == [(1, "failed"), (2, "done")]
    assert waits()[0] >= 1.5
    assert waits()[0] < 1.5 + (time.time() - begun)
    assert made == [1, 2]


def test_c12_an_agent_that_is_cancelled_does_not_wait_for_a_retry() -> None:
    @tool(context=True)
    async def stop(tool_context: ToolContext) -> str:
        """Cancel once the other one waits."""

        async def waits_for_retry() -> bool:
            return bool(rows("SELECT 1 FROM steps WHERE status = 'failed'"))

        await until_async(waits_for_retry)
        tool_context.agent.cancel()
        return "stopped"

    begun = time.monotonic()
    agent = agent_of(
        [[call("flaky"), call("stop")], "Done."], [flaky_of(9), stop], flaky=ToolPolicy(retries=5, backoff_seconds=60)
    )
    assert agent("Go").stop_reason == "cancelled"
    assert time.monotonic() - begun < 20
    assert made == [1]
    assert rows("SELECT status FROM calls") == [("COMPLETED",)]
    assert [found for found in attempts() if found[1] == "started"] == []


@durable_agent(name="retrier", tool_policies={"flaky": ToolPolicy(retries=5, backoff_seconds=60)})
def retrier() -> Agent:
    return Agent(model=ScriptedModel(SCRIPT), tools=[flaky_of(9)], callback_handler=None)


def test_c12_an_execution_that_is_cancelled_does_not_wait_for_a_retry() -> None:
    async def main() -> None:
        backend = SqliteBackend("runs.db")
        try:
            handle = await backend.dispatch(retrier.spec, "Go", execution_id="trip")

            async def waits_for_retry() -> bool:
                return bool(rows("SELECT 1 FROM steps WHERE status = 'failed'"))

            await until_async(waits_for_retry)
            await handle.cancel()
            await until_async(lambda: _is_cancelled(handle), 20)
        finally:
            await backend.close()

    asyncio.run(main())
    assert made == [1]


async def _is_cancelled(handle: Any) -> bool:
    return bool((await handle.status()).value == "CANCELLED")


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"retries": 1, "backoff_seconds": -1}, ValueError),
        ({"retries": 1, "backoff_factor": 0.5}, ValueError),
        ({"backoff_seconds": 1}, ValueError),
        ({"retry_on": ValueError}, ValueError),
        ({"retries": 1, "retry_on": "ValueError"}, TypeError),
        ({"retries": 1, "retry_on": int}, TypeError),
        ({"retries": 1, "retry_on": (ValueError, "x")}, TypeError),
        ({"retries": 1, "backoff_seconds": "1"}, TypeError),
    ],
)
def test_c12_retries_that_cannot_be_meant_are_refused(wrong: Any, kind: Any) -> None:
    with pytest.raises(kind):
        ToolPolicy(**wrong)
