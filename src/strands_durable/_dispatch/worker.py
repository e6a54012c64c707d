"""Running dispatched executions: claim, build the agent, run it, and stop gracefully.

Changes of the store wake a worker. It also looks once a second for executions of dead workers, since a death is not recorded.
It builds a new agent for every execution, so that no state leaks from one run into another.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from .._calls.control import ExecutionControl, ExecutionReleasedError
from .._records.cipher import Cipher
from .._records.codec import encode
from .._records.findings import by_reason, few
from .._records.logs import safe_logger
from .._sqlite.change_feed import ChangeEvent, change_feed
from .._sqlite.database import Store
from .._sqlite.heartbeat import LeaseRenewer
from .._sqlite.open_files import stores
from ..errors import BackendUnavailableError
from .factories import in_time
from .quarantine import QuarantineProcess, untried
from .queue import Claim, Queue, QueuedExecution, local_claims
from .registry import DurableAgent, agents
from .runner import ExecutionRunner, Threads, cancel, refusal

logger = safe_logger(__name__)

LOOK_SECONDS = 1.0
MAX_DEATHS = 3
MAX_BUILDS = 32
"""How many factories run at a time to find out which versions this worker has."""
MAX_VERSIONS = 1000
"""How many versions of agents a worker remembers to have."""
MIN_PRUNED = 100
"""From how many ids in ``only`` a worker removes those of executions that have ended."""

Suspects = Literal["when idle", "only"]


class Worker:
    """Runs the dispatched executions of one store, several at a time, in one process.

    Args:
        path: The store.
        concurrency: How many executions at a time.
        suspects: What to do with executions that may have killed their worker: run one when nothing else runs here, or run
            only those.
        quarantine: The process to which they are left, unless it cannot be started.
        only: The ids of the executions to run, if not all; more may be added, and those that have ended are removed.
        cipher: The keys of an encrypted store.
    """

    def __init__(
        self,
        path: Path,
        *,
        concurrency: int = 10,
        lease_seconds: float = 10.0,
        suspects: Suspects = "when idle",
        quarantine: QuarantineProcess | None = None,
        only: set[str] | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self._path, self._concurrency, self._lease_seconds = path, concurrency, lease_seconds
        self._cipher = cipher
        self._suspects, self._quarantine, self._only = suspects, quarantine, only
        self._untried: dict[int, str] = {}
        """Why suspected executions wait for a moment when nothing runs here, as it is noted on them."""
        self._running: dict[int, tuple[Claim, asyncio.Task[None]]] = {}
        self._refused: dict[str, str] = {}
        self._refused_with: dict[str, DurableAgent | None] = {}
        """By refused version, the agent that was registered under its name at that time."""
        self._taken: dict[str, DurableAgent] = {}
        """The agents of the versions that this worker may run."""
        self._building: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By agent and arguments, the running factories that show which version this worker has."""
        self._unknown: dict[str, tuple[str, str]] = {}
        """By version, the factory that it waits for."""
        self._runner = ExecutionRunner(lease_seconds)
        self._prune_at = MIN_PRUNED
        self._left: list[tuple[str, str]] = []
        """Executions that were refused since the last look, with the reasons."""
        self._change: ChangeEvent | None = None

    @property
    def busy(self) -> int:
        """How many executions are running here."""
        return len(self._running)

    async def run(self, stop: asyncio.Event, drain_seconds: float = 25.0) -> bool:
        """Run executions until ``stop`` is set; then let the current steps end, for at most ``drain_seconds``.

        Return True if all of them did. A tool that did not may still run in a thread until the process exits.
        """
        threads = Threads()
        asyncio.get_running_loop().set_default_executor(threads)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                try:
                    if not self._path.exists():  # a worker does not create the store
                        raise BackendUnavailableError(
                            str(self._path), "the file does not exist", "Put it back, or use another store."
                        )
                    store, renewer = stores.open(self._path, cipher=self._cipher)
                    async with change_feed(store).changes() as change:
                        self._change = change
                        while not stop.is_set():
                            self._look(store, renewer)
                            waiting = asyncio.ensure_future(change.wait(LOOK_SECONDS))
                            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                            waiting.cancel()
                except BackendUnavailableError as error:
                    logger.warning("store=<%s>, error=<%s> | store not usable, retrying", self._path, error)
                    stores.drop(self._path)
                    await asyncio.wait({stopping}, timeout=LOOK_SECONDS)
                except Exception as error:  # one execution may have caused it: the others must still run
                    logger.exception("store=<%s>, error=<%s> | cannot look for work, retrying", self._path, error)
                    await asyncio.wait({stopping}, timeout=LOOK_SECONDS)
        finally:
            stopping.cancel()
            for building in self._building.values():
                building.cancel()
            is_clean = await self._drain(drain_seconds)
        return is_clean and not threads.is_busy

    async def _drain(self, seconds: float) -> bool:
        """Stop every run before its next step; a step that takes too long is left in doubt."""
        tasks = [task for _, task in self._running.values()]
        for claim, _ in self._running.values():
            claim.control.stop(ExecutionReleasedError())
        if not tasks:
            return True
        logger.info("executions=<%d>, seconds=<%g> | draining", len(tasks), seconds)
        late, until = set(tasks), time.monotonic() + seconds
        while late and time.monotonic() < until:
            _, late = await asyncio.wait(late, timeout=min(LOOK_SECONDS, max(0.0, until - time.monotonic())))
            self._cancel_late()
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return not late

    # Claiming

    def _look(self, store: Store, renewer: LeaseRenewer) -> None:
        store.refuse_other()
        queue = Queue(store)
        self._reconsider()
        self._prune(queue)
        self._cancel(queue)
        self._look_for(queue, renewer, suspected=True)
        self._look_for(queue, renewer, suspected=False)
        _log_left(self._left)
        self._left = []
        if self._refused:
            queue.note(self._refused)

    def _prune(self, queue: Queue) -> None:
        """Remove executions that have ended for good from those to run."""
        if self._only is not None and len(self._only) >= self._prune_at:
            self._only -= queue.over(list(self._only))
            self._prune_at = max(MIN_PRUNED, 2 * len(self._only))

    def _look_for(self, queue: Queue, renewer: LeaseRenewer, *, suspected: bool) -> None:
        is_for_me = self._suspects != "only" if not suspected else not self._at_work() or self._quarantine is not None
        taken, before = 1, -1
        while (taken or len(self._refused) + len(self._unknown) > before) and is_for_me and self._has_room():
            before = len(self._refused) + len(self._unknown)
            skipped = [*self._refused, *self._unknown]
            waiting = queue.claimable(refused=skipped, suspected=suspected, limit=self._concurrency, only=self._only)
            taken = sum(self._take(queue, renewer, found) for found in waiting)

    def _has_room(self) -> bool:
        """Return True if another execution may be claimed: not beside one that runs alone."""
        at_work = self._at_work()
        return not any(control.is_alone for control in at_work) and len(at_work) < self._concurrency

    def _at_work(self) -> list[ExecutionControl]:
        """Return the runs that take up room: one that waits for another execution does not."""
        return [claim.control for claim, _ in self._running.values() if not claim.control.waits]

    def _take(self, queue: Queue, renewer: LeaseRenewer, queued: QueuedExecution) -> bool:
        """Claim an execution and start it, if this worker may run it."""
        if not self._has_room() or not self._has(queued) or not self._may_try(queue, queued):
            return False
        if not local_claims.add(self._path, queued.row_id):
            return False
        alone = queued.is_suspected
        try:
            claim = queue.claim(queued, self._lease_seconds, alone=alone, max_deaths=MAX_DEATHS)
        except BaseException:
            local_claims.release(self._path, queued.row_id)
            raise
        if claim is None:
            local_claims.release(self._path, queued.row_id)
            return False
        self._untried.pop(queued.row_id, None)
        logger.info("execution_id=<%s>, agent=<%s>, alone=<%s> | claimed", queued.execution_id, queued.agent, alone)
        renewer.add(claim.control.lease)
        run = contextvars.Context().run(asyncio.ensure_future, self._run_claim(renewer, claim))  # a trace of its own
        self._running[queued.row_id] = (claim, run)
        return True

    def _may_try(self, queue: Queue, queued: QueuedExecution) -> bool:
        if not queued.is_suspected:
            return self._suspects != "only"
        if self._quarantine is not None:
            self._quarantine.begin()
            if self._quarantine.trouble is None:
                return False
            if self._at_work():
                self._explain(queue, queued, untried(self._quarantine.trouble))
        return not self._at_work()

    def _explain(self, queue: Queue, queued: QueuedExecution, why: str) -> None:
        """Note on an execution why it waits, once."""
        if self._untried.get(queued.row_id) != why:
            self._untried[queued.row_id] = why
            queue.note_on(queued.row_id, why)

    def _has(self, queued: QueuedExecution) -> bool:
        """Return True if this worker has the same version of the agent; log once if it has not."""
        version, agent = queued.version, agents.get(queued.agent)
        if version in self._refused or version in self._unknown:
            return False
        if agent is not None and self._taken.get(version) is agent:
            return True
        if agent is None or agent.has_spec_with(queued.spec.arguments):
            return self._judged(queued, refusal(queued))
        build = (agent.name, encode(queued.spec.arguments))
        if build not in self._building and len(self._building) < MAX_BUILDS:
            task = contextvars.Context().run(asyncio.ensure_future, self._find_out(queued, agent, build))
            self._building[build] = task
        if build in self._building:
            self._unknown[version] = build
        return False

    async def _find_out(self, queued: QueuedExecution, agent: DurableAgent, build: tuple[str, str]) -> None:
        """Run a factory, for at most its timeout, while other executions run."""
        loop = asyncio.get_running_loop()

        def late(_: object) -> None:
            with suppress(RuntimeError):  # the worker has ended
                loop.call_soon_threadsafe(self._forget, queued.version)

        why, hint = None, ""
        try:
            why = await in_time(partial(refusal, queued), agent.policies.build_timeout, agent.name, late)
        except TimeoutError as error:
            why, hint = str(error).rstrip("."), "this worker checks again when it has returned"
        finally:
            del self._building[build]
            self._unknown = {version: found for version, found in self._unknown.items() if found != build}
        self._judged(queued, why, hint)
        self._look_again()

    def _judged(self, queued: QueuedExecution, why: str | None, hint: str = "") -> bool:
        """Remember whether this worker may run a version of an agent."""
        agent = agents.get(queued.agent)
        if why is None and agent is not None:
            while len(self._taken) >= MAX_VERSIONS:
                del self._taken[next(iter(self._taken))]
            self._taken[queued.version] = agent
            return True
        self._left.append((queued.execution_id, str(why)))
        self._refused_with[queued.version] = agent
        self._refused[queued.version] = f"{why}; {hint}" if hint else str(why)
        return False

    def _forget(self, version: str) -> None:
        """A factory has returned after its timeout: check its version again."""
        self._refused_with.pop(version, None)
        self._refused.pop(version, None)
        self._look_again()

    def _look_again(self) -> None:
        if self._change is not None:
            self._change.notify()

    def _reconsider(self) -> None:
        """Forget refusals of agents that have been registered or replaced since."""
        for version, agent in list(self._refused_with.items()):
            if agents.get(version.partition(" ")[0]) is not agent:
                del self._refused_with[version]
                self._refused.pop(version, None)

    def _cancel(self, queue: Queue) -> None:
        """Cancel runs with a cancel request: nothing more starts, and what runs sees its cancel signal."""
        for row_id in queue.cancelled(self._running) if self._running else ():
            cancel(self._running[row_id][0].control)

    def _cancel_late(self) -> None:
        """Cancel runs also while draining: a step that still runs need not finish."""
        try:
            self._cancel(Queue(stores.open(self._path, cipher=self._cipher)[0]))
        except BackendUnavailableError as error:
            logger.debug("store=<%s>, error=<%s> | store not usable", self._path, error)

    # Running

    async def _run_claim(self, renewer: LeaseRenewer, claim: Claim) -> None:
        control = claim.control

        def seen() -> None:
            if claim.queued.is_suspected and self._suspects == "only" and not control.is_alone:
                control.stop(ExecutionReleasedError())  # it is cleared: others may have it

        try:
            await self._runner.run(claim, seen)
        finally:
            self._running.pop(control.lease.row_id, None)
            control.tools.when_idle(partial(self._release, renewer, control))

    def _release(self, renewer: LeaseRenewer, control: ExecutionControl) -> None:
        renewer.remove(control.lease)
        control.release()
        local_claims.release(self._path, control.lease.row_id)
        self._look_again()


def _log_left(found: list[tuple[str, str]]) -> None:
    """Log a line for each reason for which executions are left to others."""
    for why, ids in by_reason(found).items():
        if len(ids) == 1:
            logger.warning("execution_id=<%s> | left unclaimed: %s", ids[0], why)
        else:
            logger.warning("executions=<%d>, execution_ids=<%s> | left unclaimed: %s", len(ids), few(ids), why)
