"""Running a claimed execution in this process: build its agent, call it, and record what it failed with.

Every execution gets a new agent, so that no state leaks from one run into another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from .._calls.control import ExecutionControl, ExecutionReleasedError
from .._calls.local_execution import local_executions
from .._execution.agent_invocation import running_agents
from .._plugin.attach import attach
from .._plugin.unkept import warn_of_unkept
from .._records.exceptions import TRACEBACK
from .._records.exceptions.tracebacks import traceback_of
from .._records.executions import NO_AGENT, OTHER_VERSION, TRACE, ExecutionStatus
from .._records.logs import safe_logger
from .._records.questions import interrupts_of
from .._records.spec import AgentSpec
from .._sqlite.database import is_damage
from .._strands.agents import is_agent, providers_of
from .._strands.fingerprints import spec_changes
from .._strands.orchestrators import adapter_of
from ..errors import (
    BackendUnavailableError,
    DriftError,
    DurableError,
    ExecutionCancelledError,
    LeaseLostError,
    UnreadableError,
)
from .factories import in_time
from .queue import Claim, Queue, QueuedExecution
from .registry import agents
from .trace_context import under

logger = safe_logger(__name__)

MAX_TRIES = 3
MAX_THREADS = 1000
_BACK_OFF_SECONDS = (1.0, 5.0, 15.0)
_REFUSAL_LENGTH = 4_000


class ExecutionRunner:
    """Runs claimed executions of one store, or of replicas, as far as possible in this process."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._kept: set[int] = set()

    async def run(self, claim: Claim, seen: Callable[[], None] = lambda: None) -> None:
        """Run a claimed execution until it ends, waits, or must be released; ``seen`` is called with each of its events."""
        control, queue = claim.control, Queue(claim.control.lease.store)
        execution_id = control.execution_id
        try:
            await self._run_built(queue, claim, seen)
            with suppress(DurableError):  # it was removed meanwhile
                _log_end(claim)
        except (ExecutionReleasedError, LeaseLostError, ExecutionCancelledError) as reason:
            logger.info("execution_id=<%s> | %s", execution_id, reason)
        except asyncio.CancelledError:
            logger.warning("execution_id=<%s> | stopped inside a step, which is left in doubt", execution_id)
        except UnreadableError as error:  # the run has not failed: another process may be able to read it
            queue.put_aside(control.lease.row_id, execution_id, error)
        except BackendUnavailableError as error:
            logger.warning("execution_id=<%s>, error=<%s> | run stopped here", execution_id, error)
            if is_damage(error):  # retrying at once would never end
                _put_off(queue, claim, str(error))
        except Exception as error:
            _log_failed(execution_id, error)
            _fail(queue, claim, error)  # unless the call has: an error before it began would be raised again for ever
        except BaseException as death:  # a tool asks to exit the process, which is not its decision in a worker
            _log_failed(execution_id, death)
            _fail(queue, claim, death)

    async def _run_built(self, queue: Queue, claim: Claim, seen: Callable[[], None]) -> None:
        try:
            subject = await self._built(claim.queued)
        except ExecutionReleasedError:
            raise
        except (Exception, SystemExit) as error:
            _not_built(queue, claim, error)
            return
        _adopt(queue, claim)
        try:
            with local_executions.handing_over(claim.control):
                await self._call(claim, subject, seen)
        except DriftError as error:  # inline, the script gets the error; here it has to be recorded
            _fail(queue, claim, error)
            raise
        finally:
            await asyncio.to_thread(_clean_up, subject)

    async def _built(self, queued: QueuedExecution) -> Any:
        """Return a new agent; clean up one that is built after the timeout."""

        def late(outcome: Future[Any]) -> None:
            if outcome.exception() is None:
                _clean_up(outcome.result())

        seconds = agents[queued.agent].policies.build_timeout
        return await in_time(partial(self._build, queued), seconds, queued.agent, late)

    def _build(self, queued: QueuedExecution) -> Any:
        agent = agents[queued.agent]
        if not agent.takes(queued.spec):  # unknown until now: the factory had failed before
            raise ExecutionReleasedError
        subject = agent.build(queued.spec.arguments)
        for each in _agents_of(subject):
            for provider in providers_of(each):
                if any(provider is shared for shared in agent.shared) and id(provider) not in self._kept:
                    self._kept.add(id(provider))  # the next run uses it too: keep it from restarting
                    provider.add_consumer(self)
        return subject

    async def _call(self, claim: Claim, subject: Any, seen: Callable[[], None]) -> None:
        agent = agents[claim.queued.agent]
        options = agent.options(subject, claim.control.lease.store.path)
        if options.on_drift == "raise" and (agent.vouches_for_edits or claim.queued.accepts_drift):
            options = replace(options, on_drift="warn")
        attach(
            subject,
            replace(
                options,
                execution_id=claim.control.execution_id,
                lease_seconds=self._lease_seconds,
                cipher=claim.control.lease.store.cipher,
            ),
        )
        warn_of_unkept(subject, options.tool_policies)
        given = claim.queued.given
        state = dict(given["invocation_state"])
        if "execution_id" in state:  # it must not name another execution
            state["execution_id"] = claim.control.execution_id
        more = {} if given["limits"] is None or not is_agent(subject) else {"limits": given["limits"]}
        with under(given.get(TRACE)):
            async for _ in subject.stream_async(claim.prompt, invocation_state=state, **more):
                seen()


def cancel(control: ExecutionControl) -> None:
    """Cancel a run: nothing more starts, and what runs sees its cancel signal."""
    control.cancel_requested()  # a commit may have met the request before
    for agent, call in _calls():
        if call.control is control:
            agent.cancel()


def refusal(queued: QueuedExecution) -> str | None:
    """Return why this process may not run an execution: it has no such agent, or another version of it; None if it may."""
    agent = agents.get(queued.agent)
    if agent is None:
        known = ", ".join(sorted(agents)) or "none"
        return f"{NO_AGENT}{queued.agent!r} here (there are {known}); start a worker with the file that defines it"
    try:
        if agent.takes(queued.spec):
            return None
        here = agent.spec_with(**queued.spec.arguments)
    except (Exception, SystemExit):  # an error of the factory is reported when it builds the agent
        return None
    return _other_version(queued, here)


def _other_version(queued: QueuedExecution, here: AgentSpec) -> str:
    """Return why another version of an agent may not run an execution: one line, then one for each difference."""
    was, now = queued.spec.shown_version, here.shown_version
    advice = (
        "run the version that dispatched it, or accept the change:"
        f" strands-durable resume {queued.execution_id} --accept-drift"
    )
    changes = spec_changes(queued.spec.to_json(), here.to_json())
    lines = [f"agent {queued.agent!r}{OTHER_VERSION}{was}, here it is {now}; {advice}"]
    lines += [f"  - {change}" for change in changes] or ["  - the parts that are recorded are the same"]
    return "\n".join(lines)[:_REFUSAL_LENGTH]


def _adopt(queue: Queue, claim: Claim) -> None:
    """Record the version that resumes an execution whose drift was accepted: from now on it belongs to that version."""
    queued = claim.queued
    if queued.accepts_drift != "any":
        return
    here = agents[queued.agent].spec_with(**queued.spec.arguments)
    changes = spec_changes(queued.spec.to_json(), here.to_json())
    if here.kind != queued.spec.kind:
        raise DriftError(queued.execution_id, "its dispatch", changes)
    if changes or queued.spec.fingerprint not in ("", here.fingerprint):  # a fork has none: it accepts every version
        logger.warning(
            "execution_id=<%s>, version=<%s>, changes=<%s> | drift accepted, resuming with this version",
            queued.execution_id, here.shown_version, "; ".join(changes),
        )  # fmt: skip
    queue.adopt(claim, here)


def _fail(queue: Queue, claim: Claim, error: BaseException) -> None:
    try:
        queue.fail(claim.control, error)
    except DurableError as unrecorded:
        logger.warning("execution_id=<%s>, error=<%s> | failure not recorded", claim.control.execution_id, unrecorded)


def _log_failed(execution_id: str, error: BaseException) -> None:
    extra = {TRACEBACK: traceback_of(error)}
    logger.error("execution_id=<%s>, error=<%r> | execution failed", execution_id, error, extra=extra)


def _log_end(claim: Claim) -> None:
    """Log how an execution ended here."""
    journal = claim.control.journal
    status, record = journal.status(), journal.call_at(0)
    if status is ExecutionStatus.COMPLETED:
        logger.info("execution_id=<%s> | execution completed", journal.execution_id)
    elif status is ExecutionStatus.SUSPENDED and record is not None:
        names = ", ".join(interrupt.name for interrupt in interrupts_of(record))
        logger.info(
            "execution_id=<%s>, questions=<%s> | execution suspended, waits for answers", journal.execution_id, names
        )
    elif status is ExecutionStatus.FAILED:  # a graph or a swarm that returned its failure
        logger.error("execution_id=<%s> | execution failed", journal.execution_id)


def _put_off(queue: Queue, claim: Claim, note: str) -> None:
    try:
        queue.put_off(claim.control, _BACK_OFF_SECONDS[-1], note)
    except DurableError as unrecorded:
        logger.warning("execution_id=<%s>, error=<%s> | not put off", claim.control.execution_id, unrecorded)


def _not_built(queue: Queue, claim: Claim, error: BaseException) -> None:
    """Retry a few times, since a server that is down may be up again soon; then fail the execution."""
    tries = claim.queued.tries
    text = f"{type(error).__name__}: {error}"
    if tries + 1 >= MAX_TRIES:
        queue.fail(claim.control, error)
        logger.error(
            "execution_id=<%s>, agent=<%s>, error=<%s> | execution failed, agent cannot be built",
            claim.queued.execution_id, claim.queued.agent, text,
        )  # fmt: skip
        return
    seconds = _BACK_OFF_SECONDS[min(tries, len(_BACK_OFF_SECONDS) - 1)]
    logger.warning(
        "agent=<%s>, error=<%s>, seconds=<%g> | agent not built, retrying", claim.queued.agent, text, seconds
    )
    queue.put_off(claim.control, seconds, f"the agent could not be built: {text}")


def _calls() -> list[tuple[Any, Any]]:
    """Return the running agents with their calls; inline calls begin and end in other threads."""
    while True:
        try:
            return list(running_agents.items())
        except RuntimeError:  # the dict changed during the iteration
            continue


class Threads(ThreadPoolExecutor):
    """The threads that sync tools run in.

    Asyncio's own pool has a thread or two per processor: tools that wait would fill it, and what they wait for would never run.
    """

    def __init__(self) -> None:
        super().__init__(MAX_THREADS, thread_name_prefix="strands-durable-tool")
        self._under_way: set[Future[Any]] = set()

    def submit(self, *args: Any, **given: Any) -> Any:
        """Run a function in a thread."""
        future = super().submit(*args, **given)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    @property
    def is_busy(self) -> bool:
        """Whether a thread is running, perhaps a tool after its timeout, which only the end of the process can stop."""
        return any(not future.done() for future in list(self._under_way))


def _agents_of(subject: Any) -> list[Any]:
    """Return the agents that a built agent, Graph or Swarm consists of."""
    adapter = adapter_of(subject)
    if adapter is None:
        return [subject] if is_agent(subject) else []
    return [agent for executor in adapter.executors().values() for agent in _agents_of(executor)]


def _clean_up(subject: Any) -> None:
    for agent in _agents_of(subject):
        agent.cleanup()
