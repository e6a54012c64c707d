"""The workflow that has one notification delivered, apart from the execution that it is about. Imported into the sandbox.

An execution starts it with the change that it reports, and does not wait for it: a receiver that is down holds no run, and a
worker that is killed loses nothing, since the server knows what is left to do.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from ...._dispatch.notifications.hooks import delay_seconds, is_given_up
from .._memo import CREATED_AT
from .._protocol import NOTIFY, NOTIFY_WORKFLOW, Delivered, Delivering, Notifying, Start, task_timeout

_GIVEN_UP = "NotificationGivenUp"
_HOOKS_SECONDS = 900.0
_ONCE = RetryPolicy(maximum_attempts=1)


async def start_notifying(start: Start, event: str) -> None:
    """Start the workflow that reports an event of this execution; what goes wrong with it changes nothing here."""
    notice_id = workflow.uuid4().hex
    given: Notifying = {
        "execution_id": start["execution_id"],
        "workflow_id": workflow.info().workflow_id,
        "run_id": workflow.info().run_id,
        "created_at": workflow.memo_value(CREATED_AT, 0.0),
        "notice_id": notice_id,
        "event": event,
        "at": workflow.time(),
        "heartbeat_seconds": start["heartbeat_seconds"],
    }
    try:
        await workflow.start_child_workflow(
            NOTIFY_WORKFLOW,
            given,
            id=f"{start['execution_id']}/{NOTIFY}/{notice_id}",
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            task_timeout=task_timeout(start["heartbeat_seconds"]),
            static_summary=f"{start['execution_id']} {event}",
        )
    except Exception as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.error("event=<%s>, error=<%s> | cannot be reported", event, error)


@workflow.defn(name=NOTIFY_WORKFLOW)
class NotifyWorkflow:
    """One notification, until every hook has taken it or it is given up."""

    @workflow.run
    async def run(self, given: Notifying) -> None:
        """Have workers call their hooks, each time after a longer wait."""
        tries, taken = 0, list[str]()
        while True:
            tries += 1
            found = await self._deliver(given, tries, taken)
            taken, failures = found["taken"], found["failures"]
            if not failures:
                return
            if is_given_up(tries, workflow.time() - given["at"]):
                why = "; ".join(f"{name}: {error}" for name, error in failures.items())
                text = f"Not delivered in {tries} tries, given up: {why}"
                raise ApplicationError(text, type=_GIVEN_UP, non_retryable=True)
            await asyncio.sleep(delay_seconds(tries, workflow.random()))

    async def _deliver(self, given: Notifying, tries: int, taken: list[str]) -> Delivered:
        """Have a worker that has hooks call them; wait for one as long as there is none."""
        delivering: Delivering = {
            "execution_id": given["execution_id"],
            "workflow_id": given["workflow_id"],
            "run_id": given["run_id"],
            "created_at": given["created_at"],
            "notice_id": given["notice_id"],
            "event": given["event"],
            "at": given["at"],
            "tries": tries,
            "taken": taken,
        }
        try:
            found: Delivered = await workflow.execute_activity(
                NOTIFY,
                delivering,
                task_queue=f"{workflow.info().task_queue}/{NOTIFY}",
                start_to_close_timeout=timedelta(seconds=_HOOKS_SECONDS),
                heartbeat_timeout=timedelta(seconds=given["heartbeat_seconds"]),
                retry_policy=_ONCE,
                result_type=dict,
                summary=given["event"],
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return {"taken": taken, "failures": {"worker": str(error.cause)}}
        return found
