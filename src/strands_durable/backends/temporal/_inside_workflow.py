"""A durable agent inside a workflow of your own, awaited like an activity. Does not depend on Strands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    TerminatedError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)
from temporalio.worker import Plugin, Replayer, ReplayerConfig, Worker, WorkerConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from ..._dispatch.requests import Requests
from ..._enginekit.payloads import PayloadStore
from ..._enginekit.replica import Replica
from ..._records.keys import checked_id
from ..._records.results import ExecutionResult
from ..._records.spec import AgentSpec
from ...errors import (
    DurableError,
    ExecutionBusyError,
    ExecutionCancelledError,
    ExecutionFailedError,
    InvalidIdError,
    UnsupportedFeatureError,
)
from ._protocol import DEFAULT_QUEUE, OMITTED, WORKFLOW, Start, task_timeout

if TYPE_CHECKING:
    from ..._dispatch.registry import DurableAgent


class WorkflowAgentFailedError(ExecutionFailedError, ApplicationError):
    """A durable agent inside a workflow failed; the workflow fails with it unless it catches this error."""

    cause: Any = None

    def __init__(self, execution_id: str, summary: str, hint: str) -> None:
        ExecutionFailedError.__init__(self, execution_id, summary, hint)
        text = ExecutionFailedError.__str__(self)
        ApplicationError.__init__(self, text, type="ExecutionFailedError", non_retryable=True)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return self.message


class WorkflowAgentCancelledError(ExecutionCancelledError, ApplicationError):
    """A durable agent inside a workflow was cancelled, and not the workflow itself."""

    cause: Any = None

    def __init__(self, execution_id: str) -> None:
        ExecutionCancelledError.__init__(self, execution_id)
        text = ExecutionCancelledError.__str__(self)
        ApplicationError.__init__(self, text, type="ExecutionCancelledError", non_retryable=True)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return self.message


class WorkflowAgentRefusedError(DurableError, ApplicationError):
    """A durable agent inside a workflow was not started; ``__cause__`` is the original error."""

    cause: Any = None

    def __init__(self, why: DurableError) -> None:
        ApplicationError.__init__(self, str(why), type=type(why).__name__, non_retryable=True)

    def __str__(self) -> str:
        return self.message


class TemporalDurability:
    """A durable agent in a workflow of your own: each of its calls is a child workflow and a full execution.

        @workflow.run
        async def run(self, trip: str) -> str:
            result = await TemporalDurability("trip_planner").invoke_async(trip)
            return str(result)

    It has steps, questions and answers like any execution: `strands-durable show` and `respond` work on its id. A worker of the
    agent must poll ``task_queue``: `strands-durable worker`, or your own worker with the plugin `StrandsDurablePlugin`.

    Args:
        agent: A `DurableAgent`, or its name, so that the workflow need not import it.
        task_queue: The task queue of the agent's workers.
        heartbeat_seconds: How long a worker may send no heartbeat before it counts as lost.
    """

    def __init__(
        self, agent: DurableAgent | str, *, task_queue: str = DEFAULT_QUEUE, heartbeat_seconds: float = 10.0
    ) -> None:
        if not workflow.in_workflow():
            raise UnsupportedFeatureError(
                "TemporalDurability outside of a workflow",
                "it runs an agent inside your own workflow, in its @workflow.run",
                'Elsewhere, dispatch the agent: connect("temporal://host:7233").dispatch(agent.spec, prompt).',
            )
        self._name = checked_id(agent if isinstance(agent, str) else agent.name)
        self._task_queue, self._heartbeat_seconds = task_queue, heartbeat_seconds

    def __call__(self, prompt: Any = None, **given: Any) -> Awaitable[ExecutionResult]:
        """Run the agent; the same as `invoke_async`."""
        return self.invoke_async(prompt, **given)

    async def invoke_async(
        self,
        prompt: Any = None,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
        **arguments: Any,
    ) -> ExecutionResult:
        """Run the agent to its end. While it waits for a person, so does this.

        Args:
            prompt: As for a Strands agent.
            execution_id: The id of the execution and of its workflow, for one call; derived from this workflow's id if None.
            invocation_state: JSON-safe, for its tools and hooks.
            limits: As for a Strands agent.
            arguments: For the agent's factory.

        Raises:
            ExecutionFailedError: It failed.
            ExecutionCancelledError: It was cancelled.
            DurableError: It was not started: the id is in use, or an argument cannot be recorded.
        """
        try:
            found = checked_id(execution_id) if execution_id is not None else self._made_up()
            given = self._start(found, prompt, invocation_state, limits, arguments)
        except DurableError as error:  # an error that is not Temporal's would have the workflow task retried forever
            raise WorkflowAgentRefusedError(error) from error
        return await self._run_child(found, given)

    async def _run_child(self, found: str, given: Start) -> ExecutionResult:
        """Run the execution as a child workflow and return its result."""
        try:
            output: dict[str, Any] = await workflow.execute_child_workflow(
                WORKFLOW,
                given,
                id=found,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                task_queue=self._task_queue,
                memo={"status": "PENDING", "agent": self._name, "steps": 0, "execution_id": found},
                static_summary=self._name,
                task_timeout=task_timeout(self._heartbeat_seconds),
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                result_type=dict,
            )
        except WorkflowAlreadyStartedError as error:
            why = "was started by an earlier call. A workflow cannot resume it: use its handle, or omit execution_id."
            busy = ExecutionBusyError(found, "", why)
            raise WorkflowAgentRefusedError(busy) from error
        except ChildWorkflowError as error:
            if _is_cancelled() and is_cancelled_exception(error):
                raise asyncio.CancelledError from None
            if is_cancelled_exception(error) or isinstance(error.cause, TerminatedError):
                raise WorkflowAgentCancelledError(found) from error
            raise WorkflowAgentFailedError(found, str(error.cause), "Its handle's resume() retries it.") from error
        if OMITTED in output:
            raise WorkflowAgentFailedError(found, output[OMITTED], "It has completed: read it with its handle.")
        return ExecutionResult.from_json(output)

    def _made_up(self) -> str:
        """Return an id that names this workflow and the agent, or a random one if that is not a valid id."""
        mine = f"{workflow.info().workflow_id}:{self._name}:{workflow.uuid4().hex[:8]}"
        try:
            return checked_id(re.sub(r"[^A-Za-z0-9._:@+=-]", "-", mine))
        except InvalidIdError:
            return workflow.uuid4().hex

    def _start(
        self,
        execution_id: str,
        prompt: Any,
        invocation_state: Mapping[str, Any] | None,
        limits: Mapping[str, int] | None,
        arguments: dict[str, Any],
    ) -> Start:
        replica = Replica.new("new", workflow.random().randbytes(32))
        spec = AgentSpec(name=self._name, arguments=arguments)  # any version that the worker has
        Requests(replica, workflow.time).dispatch(spec, prompt, execution_id, invocation_state, limits)
        return {
            "execution_id": execution_id,
            "agent": self._name,
            "rows": PayloadStore(None).offload(replica.changes(), "What is dispatched"),
            "epoch": 0,
            "heartbeat_seconds": self._heartbeat_seconds,
            "max_events": 0,
        }


def _is_cancelled() -> bool:
    """Return True if the calling task was cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class StrandsDurablePlugin(Plugin):
    """For your own worker: runs executions of the agents that are registered here, beside your workflows.

    Args:
        task_queue: The task queue for executions; not the one of your worker.
        concurrency: How many executions at a time.
        drain_seconds: How long the current steps may take to end when your worker is stopped.
        payloads: The URL of a folder or bucket for payloads that are too large for Temporal.
    """

    def __init__(
        self,
        *,
        task_queue: str = DEFAULT_QUEUE,
        concurrency: int = 10,
        drain_seconds: float = 25.0,
        payloads: str | None = None,
    ) -> None:
        self._task_queue, self._concurrency, self._drain_seconds = task_queue, concurrency, drain_seconds
        self._payload_store = PayloadStore(payloads)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Let workflows import this package."""
        if config.get("task_queue") == self._task_queue:
            raise UnsupportedFeatureError(
                f"A worker of yours on the task queue {self._task_queue!r}",
                "durable agents use this task queue",
                "Use another task_queue for your worker or for the plugin.",
            )
        runner = config.get("workflow_runner")
        if isinstance(runner, SandboxedWorkflowRunner):
            passed = runner.restrictions.with_passthrough_modules("strands_durable")
            config["workflow_runner"] = SandboxedWorkflowRunner(restrictions=passed)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run beside your worker."""
        from ._worker import work

        stop = asyncio.Event()
        working = asyncio.ensure_future(
            work(
                worker.client,
                self._task_queue,
                self._payload_store,
                concurrency=self._concurrency,
                drain_seconds=self._drain_seconds,
                stop=stop,
            )
        )
        try:
            await next(worker)
        finally:
            stop.set()
            await working

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Let workflows import this package."""
        runner = config.get("workflow_runner")
        if isinstance(runner, SandboxedWorkflowRunner):
            passed = runner.restrictions.with_passthrough_modules("strands_durable")
            config["workflow_runner"] = SandboxedWorkflowRunner(restrictions=passed)
        return config

    def run_replayer(self, replayer: Replayer, histories: Any, next: Any) -> Any:
        """Replay without changes."""
        return next(replayer, histories)
