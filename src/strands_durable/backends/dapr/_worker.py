"""A worker on Dapr: its activity returns when an execution is at rest, also if another worker runs it.

Dapr delivers an activity again while the first delivery still runs, after a restart of the sidecar or the scheduler and when a
worker was frozen, and sometimes not at all. `KeyValueWorker` copes with both.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dapr.ext.workflow import WorkflowStatus

from ..._dispatch.quarantine import QuarantineProcess
from ..._dispatch.requests import Requests
from ..._enginekit.encryption import Contents
from ..._enginekit.key_value.engine import KeyValueEngine
from ..._enginekit.key_value.head import REMOVED, Head
from ..._enginekit.key_value.heartbeat import Heartbeat
from ..._enginekit.key_value.worker import KeyValueWorker, Outcome
from ..._enginekit.log import StaleError
from ..._enginekit.progress import end_of
from ..._enginekit.replica import Replica
from ..._records.codec import decode
from ..._records.logs import safe_logger
from ..._records.spec import AgentSpec
from ...errors import CipherError, DurableError, ExecutionNotFoundError
from ._client import Sidecar, WorkflowInstance
from ._step_events import StepEvents
from ._workflow import PAUSED, End, call_of, result_of
from ._workflows import Workflows, belongs

logger = safe_logger(__name__)

_MAX_CHARACTERS = 50_000
"""A longer result is left out of the workflow, whose history has a limit; the log has it."""
_ABSENT_CHECKS, _KEY_SECONDS = 3, 5.0
_BETWEEN_SECONDS = 0.01


class DaprWorker(KeyValueWorker):
    """Runs executions of the agents that are registered in this process."""

    def __init__(
        self,
        sidecar: Sidecar,
        engine: KeyValueEngine,
        steps: StepEvents,
        heartbeat: Heartbeat,
        concurrency: int,
        quarantine: QuarantineProcess | None,
    ) -> None:
        super().__init__(engine, heartbeat, concurrency, quarantine)
        self._sidecar, self._steps, self._workflows = sidecar, steps, Workflows(sidecar, engine)
        cipher = engine.log.contents.cipher
        self._given = Contents(
            cipher, sidecar.where, reads_plain=True
        )  # what is in a user's workflow may be plain text
        self._absent: dict[str, int] = {}
        """What runs here and had a workflow, with the number of checks since it has none."""
        self._paused: set[str] = set()
        """What runs here and is left after its current steps, because a person has paused it."""
        self._supervised: dict[str, str] = {}
        """The executions that workflows have asked for and still wait for, with their lives: they had a workflow, though Dapr
        may not have answered since."""

    # The activities

    async def dispatch(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Record an execution that a workflow of a user is about to start; return why not, or that it is to ask again."""
        replica, execution_id, life = Replica.new("new"), payload["execution"], payload["life"]
        why = None
        try:
            call = self._given.open_value(payload["call"], call_of(execution_id))
            prompt, invocation_state, limits, arguments = decode(call)
            spec = AgentSpec(name=payload["agent"], arguments=arguments)  # any version that the worker has
            Requests(replica).dispatch(spec, prompt, execution_id, invocation_state, limits)
            await self.engine.open.announce(execution_id)
            await self.engine.index.put(execution_id, round(time.time(), 3))
            await self.engine.log.create(execution_id, replica.changes(), life, is_child=True)
        except StaleError:
            head = await self.engine.log.existing_head(execution_id)
            if head is None or head.life != life:  # else Dapr has delivered this twice
                why = "was started by an earlier call. Use its handle, or omit execution_id."
        except CipherError as error:
            logger.warning("execution_id=<%s>, error=<%s> | left to a worker with the key", execution_id, error)
            return {"why": None, "is_locked": True}
        except DurableError as error:
            why = str(error)
        return {"why": why, "steps": self._sidecar.config.has_steps}

    async def run_agent(self, payload: dict[str, Any]) -> End:
        """Return when an execution is at rest, or is to be tried again later."""
        execution_id = payload["execution"]
        self._supervised[execution_id] = payload["life"]
        if payload["steps"]:
            self._steps.listen(execution_id)
        try:
            outcome = await self.until_at_rest(execution_id, payload["life"], payload.get("refusals", 0))
        finally:
            self._supervised.pop(execution_id, None)
            self._steps.ignore(execution_id)
        end: End = {"turn": payload["turn"], "status": outcome.status}
        if outcome.status not in ("PENDING", "RUNNING", REMOVED):
            return {**end, **await self._facts(execution_id)}
        note = outcome.note if outcome.note in (None, PAUSED) else self._shown(execution_id, str(outcome.note))
        return {**end, "seconds": outcome.seconds, "note": note, "refusals": outcome.refusals}

    async def _facts(self, execution_id: str) -> dict[str, Any]:
        """Return what Dapr's tools show of an execution that is at rest."""
        try:
            end = end_of((await self.read(execution_id)).replica)
        except ExecutionNotFoundError:
            return {"status": REMOVED}
        except CipherError as error:  # a worker with the key may say more
            return {"status": "PENDING", "seconds": _KEY_SECONDS, "note": str(error)}
        if end.error is not None:
            return {"status": end.status.value, "error": self._shown(execution_id, end.error["text"])[:_MAX_CHARACTERS]}
        if len(str(end.result)) > _MAX_CHARACTERS:
            return {"status": end.status.value, "note": f"its result is long: strands-durable show {execution_id}"}
        return {"status": end.status.value, "result": self._given.seal_value(end.result, result_of(execution_id))}

    def _shown(self, execution_id: str, text: str) -> str:
        """Return a text for Dapr's tools, which may hold contents: not it if contents are encrypted."""
        return f"encrypted: strands-durable show {execution_id}" if self._given.is_sealing else text

    # What a worker may be asked

    async def deferred(self, execution_id: str, head: Head) -> Outcome | None:
        """Return that an execution is paused or was terminated with Dapr's own tools."""
        instance = await self._workflows.of(execution_id, head)
        if instance is None:
            return None
        if not instance.has_ended:
            self._absent[execution_id] = 0
        if instance.status is WorkflowStatus.SUSPENDED:
            return Outcome(status=head.status, note=PAUSED)
        return await self.cancel(execution_id) if instance.is_terminated else None

    def started(self, execution_id: str) -> None:
        """Report the steps of an execution from now on."""
        self._steps.begin(execution_id)

    def ended(self, execution_id: str) -> None:
        """Forget an execution."""
        self._steps.end(execution_id)
        self._absent.pop(execution_id, None)
        self._paused.discard(execution_id)

    async def notify(self, execution_id: str, head: Head) -> None:
        """Start or wake the workflow of an execution."""
        await self._workflows.notify(execution_id)

    async def settle(self, execution_id: str, head: Head) -> None:
        """Replace a workflow that does not know that its execution is at rest."""
        await self._workflows.settle(execution_id, head)

    # What it does periodically

    async def report_steps(self) -> None:
        """Report steps to workflows; leave those executions for a moment whose workflow has a long history."""
        for execution_id in await self._steps.report():
            self.pool.release(execution_id)

    async def check_workflows(self) -> None:
        """Follow what was done with Dapr's own tools to the workflows of what runs here."""
        for execution_id, head in list(self.claimed.items()):
            instance = await self._sidecar.workflow(execution_id)
            if self.claimed.get(execution_id) is not head:
                continue  # it has left meanwhile
            if instance is None:
                self._check_absent(execution_id, head)
            elif belongs(instance, head):
                self._follow(execution_id, instance)
            await asyncio.sleep(_BETWEEN_SECONDS)

    def _follow(self, execution_id: str, instance: WorkflowInstance) -> None:
        if instance.is_terminated:
            self.pool.cancel(execution_id)
        elif not instance.has_ended:
            self._absent[execution_id] = 0
            if instance.status is WorkflowStatus.SUSPENDED and execution_id not in self._paused:
                logger.info("execution_id=<%s> | paused with Dapr's tools, left after its current steps", execution_id)
                self._paused.add(execution_id)
                self.pool.release(execution_id)

    def _check_absent(self, execution_id: str, head: Head) -> None:
        """Cancel an execution whose workflow was certainly terminated and purged; one that never had a workflow continues."""
        if self._supervised.get(execution_id) == head.life:
            self._absent.setdefault(execution_id, 0)
        if execution_id in self._absent:
            self._absent[execution_id] += 1
            if self._absent[execution_id] >= _ABSENT_CHECKS:
                logger.warning("execution_id=<%s> | cancelled: its workflow was terminated and purged", execution_id)
                self.pool.cancel(execution_id)
