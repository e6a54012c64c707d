"""One call of a Graph or Swarm: which nodes ran, which are running, and every point at which that is committed.

    call.begin   the input, and the topology                              ready
    node.start   a visit, before it begins, and the batch it belongs to   nodes
    node.run     an opaque visit runs: no hook has stopped it             nodes
    node.done    its result                                               nodes
    call.end     the result                                               done, waiting, failed

What a node does is recorded inside it: its agent's call is a call of its own, at the place of the visit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from strands.multiagent.base import NodeResult, Status

from .._records import keys
from .._records.calls import CallAddress, CallProgress, CallRecord
from .._records.codec import decode, encode
from .._records.counters import count
from .._records.exceptions import describe
from .._records.executions import ExecutionStatus
from .._records.outcomes import VisitOutcome
from .._records.phases import Phase
from .._records.steps import StepEnd, StepRecord
from .._strands.fingerprints import fingerprint
from .._strands.orchestrators import OrchestratorAdapter
from .context import CurrentStep, StepContext, StepPhase, current_context
from .durable_call import CallContext, DurableCall, journal_guard
from .head import Head


class OrchestratorCall(DurableCall):
    """One call of an orchestrator that runs in this process."""

    adapter: OrchestratorAdapter

    def __init__(self, adapter: OrchestratorAdapter, context: CallContext, record: CallRecord) -> None:
        super().__init__(context, record, CallProgress(), adapter.name)
        self.adapter = adapter
        self.is_through = False
        """True if the call has no nodes left to run."""
        self._batch: list[list[Any]] = []
        self._is_resumed, self._tries_again = False, True
        self._last: dict[str, StepRecord] = {}
        self._before: dict[str, NodeResult | None] = {}
        self._doubtful: dict[str, StepRecord] = {}
        self._running: list[str] = []
        """The opaque visits that no hook has stopped."""
        self._left_out: set[str] = set()

    # Beginning

    @classmethod
    def begin(
        cls, adapter: OrchestratorAdapter, context: CallContext, address: CallAddress, given: Any
    ) -> OrchestratorCall:
        """Record a new call: its input and the topology."""
        journal, topology = context.journal, adapter.topology()
        with journal.transaction("call.begin"):
            config_id = journal.config_id(fingerprint(topology), topology)
            call_id, _ = journal.insert_call(address, adapter.kind, given=given, config_id=config_id)
            base = adapter.base()
            parts = [] if base is None else [("base", encode(base, f"What {adapter.name!r} was restored with"))]
            journal.write_head(call_id, [("progress", CallProgress().to_text()), *parts, *context.origin])
        record = journal.call_in(address.parent, address.place, address.position)
        assert record is not None
        return cls(adapter, context, record)

    def load(self) -> tuple[list[StepRecord], dict[str, Any]]:
        """Read the progress of a recorded call; return the visits of its nodes, and what it carried."""
        self.progress, parts = self.journal.head(self.record.call_id)
        rows = self.journal.nodes(self.record.call_id)
        self._last = {row.name: row for row in rows}
        self._batch, self._running = (json.loads(parts.get(name, "[]")) for name in ("batch", "running"))
        carried: dict[str, Any] = {
            name: decode(parts[name]) for name in ("carried", "invocation", "base") if name in parts
        }
        return rows, carried

    def take_up(self, answers: dict[str, Any] | None) -> None:
        """Resume the call, with answers or from its last progress."""
        self._next_attempt()
        self._is_resumed = bool(self._batch)
        label = "call.reopen" if answers is None else "call.answer"
        self._move(self.progress.resume)  # type: ignore[arg-type]
        with self.journal.transaction(label):  # what it carries is on record, but not restored yet
            self.journal.write_head(self.record.call_id, [("progress", self.progress.to_text())])
            self._reopen(answers)

    def ahead(self, carried: dict[str, Any], *, tries_again: bool) -> list[str]:
        """Return the nodes to resume with: the current batch, plus failed nodes if a failed call is retried."""
        self._tries_again = tries_again
        failed = [name for name, row in self._last.items() if row.status == "failed"] if tries_again else []
        visits = {name: visit for name, visit in self._batch if name not in failed}
        names = self.adapter.ahead([name for name, _ in self._batch], self.unfinished(), failed, carried)
        self._batch = [[name, visits[name] if name in visits else self._visit(name)] for name in names]
        self.is_through = not self.unfinished()
        return names

    def unfinished(self) -> set[str]:
        """Return the nodes of the current batch whose visits have not ended."""
        return {name for name, visit in self._batch if not self._is_done(name, visit)}

    # Called from Strands hooks

    def batch_begins(self, names: list[str]) -> set[str]:
        """Some nodes are about to run together; return those that have not run yet."""
        if self._is_resumed:
            self._is_resumed = False
            visits = dict(self._batch)
            return {name for name in names if not self._is_done(name, visits.get(name, -1))}
        self._batch = [[name, self._visit(name)] for name in names]
        return set(names)

    def batch_ends(self) -> None:
        """Enter the conditions of edges after a batch: what they call is not found again after another one."""
        found, (node_id, visit) = self.context_of_call("before"), self._batch[0]
        found.key = f"{found.key}/{keys.node_key(node_id, visit)}"
        current_context.set(found)

    def node_begins(self, node_id: str, invocation_state: dict[str, Any]) -> None:
        """Commit that a visit begins, before any user hook sees it."""
        with journal_guard(self):
            self.invocation_state = invocation_state
            visit = self._visit(node_id)
            key = keys.node_key(node_id, visit)
            last = self._last.get(node_id)
            attempt = last.attempt + 1 if last is not None and last.key == key else 1
            self._before[node_id] = self.adapter.result_of(node_id)
            if last is not None and last.key == key and last.status in ("started", "interrupted"):
                self._doubtful.setdefault(node_id, last)
            if self.adapter.is_sequential:
                self._batch = [[node_id, visit]]
            started_at = time.time()
            kind = type(self.adapter.executors()[node_id]).__name__
            with self._committing("node.start", "nodes"):
                step_id = self.journal.insert_step(self.record.call_id, key, attempt, "node", node_id, kind, started_at)
            self._last[node_id] = StepRecord(
                step_id=step_id, key=key, attempt=attempt, kind="node", name=node_id, status="started",
                started_at=started_at,
            )  # fmt: skip
        self._enter_node(node_id, "before")

    def node_returns(self, node_id: str) -> None:
        """Enter the hooks after a visit."""
        self._enter_node(node_id, "after")

    def node_ends(self, node_id: str) -> None:
        """Commit the outcome of a visit, after every user hook has seen it."""
        with journal_guard(self, starts=False):
            result = self.adapter.result_of(node_id)
            if result is self._before.get(node_id):
                result = None
            if result is None and not self.adapter.has_failed(node_id):
                return  # it was cut off: a sibling failed, or it timed out
            if result is not None and result.status is Status.INTERRUPTED:
                return
            end = self._end_of(node_id, result)
            label = "node.done" if end.status == "done" else "node.failed"
            with self._committing(label, "nodes"):
                self._end_row(node_id, end)

    def doubtful(self, node_id: str) -> StepRecord | None:
        """Return the earlier attempt of the current visit that had started and has no result, if any."""
        return self._doubtful.get(node_id)

    def view(self, node_id: str) -> CurrentStep:
        """Return what `current_step` returns in a running visit."""
        row = self._last[node_id]
        return StepContext(self, "node", node_id, "running", row.key, lambda: (row.attempt, False)).view

    def node_runs(self, node_id: str) -> None:
        """Commit that an opaque visit runs, after every user hook has seen it."""
        begun = {row.key for row in self._last.values() if row.status == "started"}
        self._running = [*(key for key in self._running if key in begun), self.key_of(node_id)]
        with self._committing("node.run", "nodes"):
            self.journal.write_head(self.record.call_id, [("running", json.dumps(self._running))])

    def is_on_record(self, node_id: str) -> bool:
        """Return True if what the current visit of a node does had begun in an earlier attempt."""
        key = self.key_of(node_id)
        is_in_doubt = node_id in self._doubtful and key in self._running
        return is_in_doubt or self.journal.call_in(self.record.call_id, key) is not None

    def key_of(self, node_id: str) -> str:
        """Return the key of the current visit of a node."""
        return self._last[node_id].key

    def _enter_node(self, node_id: str, phase: StepPhase) -> None:
        row, delegate = self._last[node_id], self.adapter.executors()[node_id]
        current_context.set(StepContext(self, "node", node_id, phase, row.key, lambda: (row.attempt, False), delegate))

    # Ending

    @contextmanager
    def _ending(self, phase: Phase) -> Iterator[None]:
        waiting = self.adapter.waiting() if phase == "waiting" else set()
        with self._committing("call.end", phase):
            for node_id in waiting:
                asked = self.adapter.result_of(node_id)
                if asked is not None and asked.status is not Status.INTERRUPTED:
                    asked = None  # a graph has no result of a node that asks: this one is of an earlier visit
                self._end_row(node_id, self._end_of(node_id, asked, "interrupted"))
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        with self.journal.transaction("call.failed"):
            self._step_ahead()
            for node_id, row in self._last.items():
                if row.status == "started" and self.adapter.has_failed(node_id):
                    self._end_row(node_id, self._end_of(node_id, self.adapter.result_of(node_id)))
            self._write()
            yield

    def _step_ahead(self) -> None:
        """Let a swarm that failed between two nodes, at one of its own limits, resume with the node it had reached."""
        current = self.adapter.current()
        if current is not None and self.adapter.has_failed(current) and all(self._is_done(*at) for at in self._batch):
            self._batch = [[current, self._visit(current)]]

    # Committing

    @contextmanager
    def _committing(self, label: str, phase: Phase) -> Iterator[None]:
        """Commit the progress of the call, together with what the block writes."""
        self._move(phase)
        with self.journal.transaction(label):
            yield
            self._write()

    def _move(self, phase: Phase, **changes: Any) -> None:
        resume = phase if phase in ("ready", "nodes") else self.progress.resume
        super()._move(phase, resume=resume, **changes)

    def _write(self) -> None:
        parts = [("progress", self.progress.to_text()), ("batch", json.dumps(self._batch))]
        if self.progress.resume == "nodes":
            parts.append(("carried", encode(self.adapter.carried(), f"What {self.adapter.name!r} carries")))
        if self.invocation_state is not None:
            parts.append(("invocation", encode(Head.own_part(self.invocation_state, self._left_out))))
        self.journal.write_head(self.record.call_id, parts)
        self._write_traces()

    def _end_of(self, node_id: str, result: NodeResult | None, status: Any = None) -> StepEnd:
        row = self._last[node_id]
        inner = self.journal.call_in(self.record.call_id, row.key)
        call_id = None if inner is None else inner.call_id
        if result is None:
            return StepEnd(status or "failed", encode(VisitOutcome(call=call_id).to_json()))
        raised = result.result if isinstance(result.result, Exception) else None
        outcome = VisitOutcome(
            status=result.status.value,
            time=result.execution_time,
            usage=result.accumulated_usage,
            metrics=result.accumulated_metrics,
            count=result.execution_count,
            call=call_id,
            over=inner is not None and inner.status is ExecutionStatus.COMPLETED,
            result=result.to_dict()["result"] if inner is None and raised is None else None,
        )
        text = encode(outcome.to_json(), f"The result of node {node_id!r}")
        error = None if raised is None else describe(raised)
        return StepEnd(status or ("failed" if result.status is Status.FAILED else "done"), text, error)

    def _end_row(self, node_id: str, end: StepEnd) -> None:
        row = self._last[node_id]
        self.journal.end_step(row.step_id, end)
        count("steps", "node", end.status)
        self._doubtful.pop(node_id, None)
        result = None if end.result is None else decode(end.result)
        self._last[node_id] = replace(row, status=end.status, result=result, error=end.error)

    # Visits

    def _visit(self, node_id: str) -> int:
        """Return the number of the next visit: a new one after a finished one, otherwise the unfinished one."""
        last = self._last.get(node_id)
        if last is None:
            return 0
        is_over = last.status == "done" or (last.status == "failed" and VisitOutcome.from_json(last.result).over)
        return keys.visit_of(last.key) + (1 if is_over else 0)

    def _is_done(self, node_id: str, visit: int) -> bool:
        last = self._last.get(node_id)
        if last is None or keys.visit_of(last.key) != visit:
            return False
        return last.status == "done" or (not self._tries_again and has_returned_failure(last))


def has_returned_failure(row: StepRecord) -> bool:
    """Return True if a visit failed without an exception: the graph then continued with its other branches."""
    return row.status == "failed" and row.error is None and has_outcome(row)


def has_outcome(row: StepRecord) -> bool:
    """Return True if a visit ended and was not cut off."""
    return VisitOutcome.from_json(row.result).status is not None
