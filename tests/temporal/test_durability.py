"""C31 and the low-level form: a durable agent inside a user's own workflow."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from strands_durable import DurableBackend, connect, errors
    from strands_durable.backends.temporal import StrandsDurablePlugin, TemporalDurability
    from strands_durable.testing import agents
    from strands_durable.testing.contract._bench import BOOK, WAIT
    from strands_durable.testing.temporal import TemporalServer
    from tests.waiting import until_async


@workflow.defn
class Travel:
    """A workflow of a user's own, with an agent in the middle."""

    @workflow.run
    async def run(self, queue: str, execution_id: str | None, arguments: dict[str, Any]) -> list[Any]:
        planner = TemporalDurability("contract_agent", task_queue=queue, heartbeat_seconds=5)
        result = await planner("Go", execution_id=execution_id, invocation_state={"who": "me"}, **arguments)
        return [str(result), result.status.value, result.stop_reason, result.execution_id]


@workflow.defn
class Careful:
    """Continues when its agent has failed or was cancelled."""

    @workflow.run
    async def run(self, queue: str, execution_id: str, arguments: dict[str, Any]) -> list[Any]:
        try:
            await TemporalDurability("contract_agent", task_queue=queue).invoke_async(
                "Go", execution_id=execution_id, **arguments
            )
        except (errors.ExecutionFailedError, errors.ExecutionCancelledError) as error:
            return [error.execution_id, str(error)]
        return []


@pytest.fixture
def queue() -> str:
    return uuid.uuid4().hex[:8]


@asynccontextmanager
async def working(server: TemporalServer, queue: str) -> AsyncIterator[tuple[Client, DurableBackend]]:
    """Run a worker of a user's own, with the plugin."""
    client = await Client.connect(server.address)
    plugin = StrandsDurablePlugin(task_queue=queue, drain_seconds=2)
    async with Worker(client, task_queue=f"{queue}-mine", workflows=[Travel, Careful], plugins=[plugin]):
        yield client, connect(f"{server.url}?task_queue={queue}")


def script(folder: Path, *script: Any) -> dict[str, Any]:
    return {"folder": str(folder), "script": list(script)}


def test_c31_an_agent_in_a_workflow_of_ones_own(temporal: TemporalServer, queue: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, backend):
            given = [queue, f"{queue}-trip", script(tmp_path, BOOK, "Booked.")]
            found = await client.execute_workflow(Travel.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            assert found == ["Booked.\n", "COMPLETED", "end_turn", f"{queue}-trip"]
            handle = await backend.get(f"{queue}-trip")
            assert [step.kind for step in await handle.steps()] == ["model", "tool", "model"]

    asyncio.run(main())


def test_c31_without_an_id_it_is_made_of_the_workflows(temporal: TemporalServer, queue: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, _):
            given = [queue, None, script(tmp_path, "Hi.")]
            found = await client.execute_workflow(Travel.run, args=given, id=f"{queue} own", task_queue=f"{queue}-mine")
            assert found[3].startswith(f"{queue}-own:contract_agent:")

    asyncio.run(main())


def test_c31_a_person_answers_an_agent_in_a_workflow(temporal: TemporalServer, queue: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, backend):
            given = [queue, f"{queue}-trip", script(tmp_path, {"tool": "approve", "what": "trip"}, "Done.")]
            own = await client.start_workflow(Travel.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            await until_async(lambda: _exists(backend, f"{queue}-trip"))
            handle = await backend.get(f"{queue}-trip")
            result = await handle.result(20)
            await handle.respond({result.interrupts[0].id: "yes"})
            assert (await own.result())[:2] == ["Done.\n", "COMPLETED"]

    asyncio.run(main())


def test_c31_a_failed_agent_fails_the_workflow_with_an_error_of_ours(
    temporal: TemporalServer, queue: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, _):
            given = [queue, f"{queue}-trip", script(tmp_path, {"fails_until": "mended"})]
            with pytest.raises(WorkflowFailureError) as caught:
                await client.execute_workflow(Travel.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            cause = caught.value.cause
            assert isinstance(cause, ApplicationError)
            assert cause.type == "ExecutionFailedError"
            assert "the model is out of order" in cause.message
            given[1] = f"{queue}-other"
            found = await client.execute_workflow(Careful.run, args=given, id=f"{queue}-2", task_queue=f"{queue}-mine")
            assert found[0] == f"{queue}-other"
            assert "the model is out of order" in found[1]

    asyncio.run(main())


def test_c01_an_id_that_was_used_is_not_begun_again_by_another_workflow(
    temporal: TemporalServer, queue: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, _):
            given = [queue, f"{queue}-trip", script(tmp_path, BOOK, "Booked.")]
            await client.execute_workflow(Travel.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            with pytest.raises(WorkflowFailureError) as caught:
                await client.execute_workflow(Travel.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            cause = caught.value.cause
            assert isinstance(cause, ApplicationError)
            assert cause.type == "ExecutionBusyError"
            assert "omit execution_id" in cause.message
            assert [mark["kind"] for mark in agents.marks(tmp_path)].count("book") == 1

    asyncio.run(main())


def test_c31_what_cannot_be_begun_fails_the_workflow_and_not_its_task_for_ever(
    temporal: TemporalServer, queue: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, _):
            given = [queue, "no id", script(tmp_path, "Hi.")]
            with pytest.raises(WorkflowFailureError) as caught:
                await client.execute_workflow(Travel.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            cause = caught.value.cause
            assert isinstance(cause, ApplicationError)
            assert (cause.type, "'no id'" in cause.message) == ("InvalidIdError", True)

    asyncio.run(main())


@pytest.mark.parametrize("turn", [WAIT, {"tool": "approve", "what": "trip"}], ids=["running", "waiting"])
def test_c03_a_cancelled_agent_raises_our_error_in_the_workflow(
    temporal: TemporalServer, queue: str, tmp_path: Path, turn: Any
) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, backend):
            given = [queue, f"{queue}-trip", script(tmp_path, turn, "Done.")]
            own = await client.start_workflow(Careful.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            await until_async(lambda: _exists(backend, f"{queue}-trip"))
            handle = await backend.get(f"{queue}-trip")
            if turn is WAIT:
                await until_async(lambda: _waits(tmp_path))
            else:
                await handle.result(20)
            await handle.cancel()
            found = await own.result()
            assert found[0] == f"{queue}-trip"
            assert "was cancelled" in found[1]

    asyncio.run(main())


def test_c03_cancelling_the_workflow_cancels_the_agent_in_it(
    temporal: TemporalServer, queue: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with working(temporal, queue) as (client, backend):
            given = [queue, f"{queue}-trip", script(tmp_path, WAIT, "Done.")]
            own = await client.start_workflow(Travel.run, args=given, id=f"{queue}-own", task_queue=f"{queue}-mine")
            await until_async(lambda: _waits(tmp_path))
            await own.cancel()
            with pytest.raises(WorkflowFailureError) as caught:
                await own.result()
            assert isinstance(caught.value.cause, CancelledError)
            handle = await backend.get(f"{queue}-trip")
            assert (await handle.status()).value == "CANCELLED"
            assert [mark["kind"] for mark in agents.marks(str(tmp_path))].count("cancel seen") == 1

    asyncio.run(main())


def test_c31_outside_of_a_workflow_it_is_refused() -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match="outside of a workflow"):
        TemporalDurability(agents.contract_agent)


def test_c31_the_plugin_wants_a_task_queue_of_its_own(temporal: TemporalServer, queue: str) -> None:
    async def main() -> None:
        client = await Client.connect(temporal.address)
        with pytest.raises(errors.UnsupportedFeatureError, match="another task_queue"):
            Worker(client, task_queue=queue, workflows=[Travel], plugins=[StrandsDurablePlugin(task_queue=queue)])

    asyncio.run(main())


async def _exists(backend: DurableBackend, execution_id: str) -> bool:
    try:
        await backend.get(execution_id)
    except errors.ExecutionNotFoundError:
        return False
    return True


async def _waits(folder: Path) -> bool:
    return any(mark["kind"] == "wait" for mark in agents.marks(str(folder)))
