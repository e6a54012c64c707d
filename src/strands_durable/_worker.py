"""Carrying dispatched executions to their end: claim, build the agent, run it, and stop in order.

A worker is woken by changes of the store, and looks once a second for what a dead worker left, since nobody records a death. It
builds a new agent for every execution it takes: nothing of one run can leak into another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ._attach import attach
from ._invocation import active
from ._lease import Heart, Lease, Released
from ._orchestrators import contact_of
from ._queue import Claim, Queue, Waiting, held
from ._registry import DurableAgent, agents
from ._session import process
from ._store import Store
from ._stores import stores
from ._strands import is_agent, providers_of
from ._watch import Change, watch
from .errors import BackendUnavailableError, DriftError, DurableError, ExecutionCancelledError, LeaseLostError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
MAX_DEATHS = 3
MAX_TRIES = 3
MAX_THREADS = 1000
_BACK_OFF_SECONDS = (1.0, 5.0, 15.0)

Suspects = Literal["when idle", "never", "only"]


class Worker:
    """Works on the dispatched executions of one store, several at a time, in one process.

    Args:
        path: The store.
        concurrency: How many executions at a time.
        suspects: What to do with executions that may have killed their worker: try one when nothing else runs here, leave
            them to somebody else, or do nothing but that.
        on_suspects: Called when there are some, and they are left to somebody else.
        only: The ids of the executions to work on, if not on all; more may be added.
    """

    def __init__(
        self,
        path: Path,
        *,
        concurrency: int = 10,
        lease_seconds: float = 10.0,
        suspects: Suspects = "when idle",
        on_suspects: Callable[[], None] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self._path, self._concurrency, self._lease_seconds = path, concurrency, lease_seconds
        self._suspects, self._on_suspects, self._only = suspects, on_suspects, only
        self._running: dict[int, tuple[Claim, asyncio.Task[None]]] = {}
        self._refused: dict[str, str] = {}
        self._refused_with: dict[str, DurableAgent | None] = {}
        """What this process had by the name of an agent when it refused it."""
        self._kept: set[int] = set()
        self._change: Change | None = None

    @property
    def busy(self) -> int:
        """How many executions are at work here."""
        return len(self._running)

    async def run(self, stop: asyncio.Event, drain_seconds: float = 25.0) -> bool:
        """Work until ``stop`` is set; then let the current steps end, for at most ``drain_seconds``.

        Return True if all of them did. A tool that did not may still run in a thread, which nobody can stop but the process.
        """
        threads = _Threads()
        asyncio.get_running_loop().set_default_executor(threads)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                try:
                    if not self._path.exists():  # it is not for a worker to make one
                        raise BackendUnavailableError(
                            str(self._path), "there is no such file", "Put it back, or start anew."
                        )
                    store, heart = stores.open(self._path)
                    async with watch(store).changes() as change:
                        self._change = change
                        while not stop.is_set():
                            self._look(store, heart)
                            waiting = asyncio.ensure_future(change.wait(LOOK_SECONDS))
                            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                            waiting.cancel()
                except BackendUnavailableError as error:
                    logger.warning("store=<%s>, error=<%s> | store not usable, trying again", self._path, error)
                    stores.drop(self._path)
                    await asyncio.wait({stopping}, timeout=LOOK_SECONDS)
                except Exception as error:  # whatever one execution has to do with it: the others must not suffer
                    logger.exception("store=<%s>, error=<%s> | cannot look for work, trying again", self._path, error)
                    await asyncio.wait({stopping}, timeout=LOOK_SECONDS)
        finally:
            stopping.cancel()
            is_clean = await self._drain(drain_seconds)
        return is_clean and not threads.is_busy

    async def _drain(self, seconds: float) -> bool:
        """Have every run stop before its next step; one whose step takes too long is left in doubt."""
        tasks = [task for _, task in self._running.values()]
        for claim, _ in self._running.values():
            claim.lease.halt = claim.lease.halt or Released()
        if not tasks:
            return True
        logger.info("executions=<%d>, seconds=<%g> | draining", len(tasks), seconds)
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return not late

    # Claiming

    def _look(self, store: Store, heart: Heart) -> None:
        store.refuse_other()
        queue = Queue(store)
        self._reconsider()
        self._cancel(queue)
        self._look_for(queue, heart, suspected=True)
        self._look_for(queue, heart, suspected=False)
        if self._refused:
            queue.note(self._refused)

    def _look_for(self, queue: Queue, heart: Heart, *, suspected: bool) -> None:
        is_for_me = self._suspects != "only" if not suspected else not self._at_work() or self._suspects == "never"
        taken, refused = 1, -1
        while (taken or len(self._refused) > refused) and is_for_me and self._has_room():
            refused = len(self._refused)
            waiting = queue.waiting(
                refused=self._refused, suspected=suspected, limit=self._concurrency, only=self._only
            )
            taken = sum(self._take(queue, heart, found) for found in waiting)

    def _has_room(self) -> bool:
        """Say whether another execution may be taken: not beside one that is tried alone."""
        at_work = self._at_work()
        return not any(lease.is_alone for lease in at_work) and len(at_work) < self._concurrency

    def _at_work(self) -> list[Lease]:
        """Return the leases of the runs that take up room: one that waits for another execution does not."""
        return [claim.lease for claim, _ in self._running.values() if not claim.lease.waits]

    def _take(self, queue: Queue, heart: Heart, waiting: Waiting) -> bool:
        """Claim an execution and begin to carry it, if this worker may."""
        if not self._has_room() or not self._has(waiting) or not self._may_try(waiting):
            return False
        if not held.take(self._path, waiting.row_id):
            return False
        alone = waiting.is_suspected
        try:
            claim = queue.claim(waiting, self._lease_seconds, alone=alone, max_deaths=MAX_DEATHS)
        except BaseException:
            held.let_go(self._path, waiting.row_id)
            raise
        if claim is None:
            held.let_go(self._path, waiting.row_id)
            return False
        logger.info("execution_id=<%s>, agent=<%s>, alone=<%s> | claimed", waiting.execution_id, waiting.agent, alone)
        heart.keep(claim.lease)
        self._running[claim.lease.row_id] = (claim, asyncio.ensure_future(self._carry(queue, heart, claim)))
        return True

    def _may_try(self, waiting: Waiting) -> bool:
        if not waiting.is_suspected:
            return self._suspects != "only"
        if self._suspects == "never" and self._on_suspects is not None:
            self._on_suspects()
        return self._suspects != "never" and not self._at_work()

    def _has(self, waiting: Waiting) -> bool:
        """Say whether this worker has the agent, and the same one; say so once if it has not."""
        if waiting.pair in self._refused:
            return False
        agent = agents.get(waiting.agent)
        if agent is None:
            why = f"no agent {waiting.agent!r} here (there are {', '.join(sorted(agents)) or 'none'})"
        else:
            try:
                if agent.takes(waiting.spec):
                    return True
            except (Exception, SystemExit):  # what is wrong with the factory is told when it is to build the agent
                return True
            here = agent.spec_with(**waiting.spec.arguments).fingerprint
            why = f"agent {waiting.agent!r} was dispatched as {waiting.fingerprint[:12]}, here it is {here[:12]}"
        logger.warning("execution_id=<%s> | left unclaimed: %s", waiting.execution_id, why)
        self._refused_with[waiting.pair] = agent
        self._refused[waiting.pair] = f"{why}; start a worker with the version that dispatched it"
        return False

    def _reconsider(self) -> None:
        """Take back what was refused for want of an agent that has been registered since."""
        for pair, agent in list(self._refused_with.items()):
            if agents.get(pair.partition(" ")[0]) is not agent:
                del self._refused_with[pair]
                self._refused.pop(pair, None)

    def _cancel(self, queue: Queue) -> None:
        """Tell runs that somebody has cancelled: nothing more starts, and what runs sees its cancel signal."""
        for row_id in queue.cancelled(self._running) if self._running else ():
            lease = self._running[row_id][0].lease
            if lease.halt is None:
                lease.halt = ExecutionCancelledError(lease.execution_id)
                for agent, call in _calls():
                    if call.journal.lease is lease:
                        agent.cancel()

    # Running

    async def _carry(self, queue: Queue, heart: Heart, claim: Claim) -> None:
        lease, execution_id = claim.lease, claim.lease.execution_id
        try:
            await self._run(claim)
        except (Released, LeaseLostError, ExecutionCancelledError) as told:
            logger.info("execution_id=<%s> | %s", execution_id, told)
        except asyncio.CancelledError:
            logger.warning("execution_id=<%s> | stopped inside a step, which is left in doubt", execution_id)
        except BackendUnavailableError as error:
            logger.warning("execution_id=<%s>, error=<%s> | not carried on here", execution_id, error)
        except Exception as error:
            logger.info("execution_id=<%s>, error=<%r> | execution failed", execution_id, error)
            self._fail(queue, claim, error)  # unless the call has: what was raised before it began would come for ever
        except BaseException as death:  # a tool wants the process to end: that is not for it to decide here
            logger.warning("execution_id=<%s>, error=<%r> | execution failed", execution_id, death)
            self._fail(queue, claim, death)
        finally:
            self._running.pop(lease.row_id, None)
            heart.let_go(lease)
            self._give_back(queue, claim)
            held.let_go(self._path, lease.row_id)
            if self._change is not None:
                self._change.tell()

    def _fail(self, queue: Queue, claim: Claim, error: BaseException) -> None:
        try:
            queue.fail(claim.lease, error)
        except DurableError as unrecorded:
            logger.warning("execution_id=<%s>, error=<%s> | failure not recorded", claim.lease.execution_id, unrecorded)

    def _give_back(self, queue: Queue, claim: Claim) -> None:
        try:
            queue.give_back(claim.lease)
        except DurableError as error:
            logger.debug("execution_id=<%s>, error=<%s> | lease not released", claim.lease.execution_id, error)

    async def _run(self, claim: Claim) -> None:
        queue, waiting = Queue(claim.lease.store), claim.waiting
        try:
            subject = await asyncio.to_thread(self._build, waiting)
        except Released:
            raise
        except (Exception, SystemExit) as error:
            self._not_built(queue, claim, error)
            return
        session = process.claim(self._path, claim.lease)
        try:
            await self._call(claim, subject)
        except DriftError as error:  # inline it is for the script to change; here nobody would ever hear of it
            self._fail(queue, claim, error)
            raise
        finally:
            process.end_session(self._path, session)
            await asyncio.to_thread(_clean_up, subject)

    def _build(self, waiting: Waiting) -> Any:
        agent = agents[waiting.agent]
        if not agent.takes(waiting.spec):  # nobody could tell before: the factory had failed
            raise Released
        subject = agent.build(waiting.spec.arguments)
        for each in _agents_of(subject):
            for provider in providers_of(each):
                if any(provider is shared for shared in agent.shared) and id(provider) not in self._kept:
                    self._kept.add(id(provider))  # it serves the next run too: do not have it start again
                    provider.add_consumer(self)
        return subject

    def _not_built(self, queue: Queue, claim: Claim, error: BaseException) -> None:
        """A server that is down may be up again soon; a factory that is wrong is a failure."""
        tries = claim.waiting.tries
        text = f"{type(error).__name__}: {error}"
        if tries + 1 >= MAX_TRIES:
            queue.fail(claim.lease, error)
            logger.warning("agent=<%s>, error=<%s> | agent cannot be built", claim.waiting.agent, text)
            return
        seconds = _BACK_OFF_SECONDS[min(tries, len(_BACK_OFF_SECONDS) - 1)]
        logger.warning(
            "agent=<%s>, error=<%s>, seconds=<%g> | agent not built, trying again", claim.waiting.agent, text, seconds
        )
        queue.put_off(claim.lease, seconds, f"the agent could not be built: {text}")

    async def _call(self, claim: Claim, subject: Any) -> None:
        options = agents[claim.waiting.agent].options(subject, self._path)
        attach(subject, replace(options, execution_id=claim.lease.execution_id, lease_seconds=self._lease_seconds))
        given = claim.waiting.given
        state = dict(given["invocation_state"])
        if "execution_id" in state:  # it names this execution, or it would name another
            state["execution_id"] = claim.lease.execution_id
        more = {} if given["limits"] is None or not is_agent(subject) else {"limits": given["limits"]}
        async for _ in subject.stream_async(claim.prompt, invocation_state=state, **more):
            if claim.waiting.is_suspected and self._suspects == "only" and not claim.lease.is_alone:
                claim.lease.halt = claim.lease.halt or Released()  # it is cleared: others may have it


def _calls() -> list[tuple[Any, Any]]:
    """Return the agents at work, with their calls; inline calls come and go in other threads."""
    while True:
        try:
            return list(active.items())
        except RuntimeError:  # one has come or gone while we counted
            continue


class _Threads(ThreadPoolExecutor):
    """What sync tools run in, and how many do.

    Asyncio's own has a thread or two for each processor: tools that wait would fill it, and what they wait for would never run.
    """

    def __init__(self) -> None:
        super().__init__(MAX_THREADS, thread_name_prefix="strands-durable-tool")
        self._under_way: set[Future[Any]] = set()

    def submit(self, *args: Any, **given: Any) -> Any:
        """Run something in a thread."""
        future = super().submit(*args, **given)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    @property
    def is_busy(self) -> bool:
        """Whether something runs, perhaps a tool whose time was over: nobody can stop it but the process."""
        return any(not future.done() for future in list(self._under_way))


def _agents_of(subject: Any) -> list[Any]:
    """Return the agents of which what was built consists."""
    contact = contact_of(subject)
    if contact is None:
        return [subject] if is_agent(subject) else []
    return [agent for executor in contact.executors().values() for agent in _agents_of(executor)]


def _clean_up(subject: Any) -> None:
    for agent in _agents_of(subject):
        agent.cleanup()
