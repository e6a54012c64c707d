"""One call of an agent inside an execution: its progress, and every point at which that is committed.

    call.begin   the input and the agent as it was found                         ready
    model.start  new messages and the head, before a model call                  model
    model.done   the answer, as soon as it arrives                               model
    answer.sync  the answer as a message, and the head, before an inline tool    tools
    tool.start   the answer as a message, the head, and a tool's intent          tools
    tool.done    a tool's result with its state changes and cancel flags         tools
    call.end     the last messages, the head, the result                         done, waiting, failed

The end of a root call also releases the lease.

The order is guaranteed: an intent before its step, a result after it, and what belongs together in one commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from strands import Agent

from .._journal.messages import MessageEncoder
from .._journal.messages import read as read_messages
from .._records import keys, model_states
from .._records.calls import CallAddress, CallProgress, CallRecord
from .._records.copies import copied
from .._records.phases import Phase
from .._strands.agents import is_interrupted
from .._strands.fingerprints import config_of, fingerprint
from .._strands.watchers import force_output
from .context import StepContext, StepPhase, current_context
from .durable_call import CallContext, DurableCall
from .head import Head
from .metrics import RecordedMetrics
from .model_steps import ModelSteps
from .tool_steps import ToolSteps


class Call(DurableCall):
    """One call of an agent that runs in this process."""

    agent: Agent
    head: Head

    def __init__(self, agent: Agent, context: CallContext, record: CallRecord, progress: CallProgress) -> None:
        super().__init__(context, record, progress, agent.name)
        tracker = context.local.tracker(agent)
        tracker.last = record.call_id
        self.agent, self.history, self.head = agent, tracker.history, tracker.head
        self.models, self.tools = ModelSteps(self), ToolSteps(self)
        self.message_encoder = MessageEncoder(record.call_id, record.input)
        self.recorded_metrics: RecordedMetrics | None = None
        self.is_resumed = False
        """True until a resumed call begins its first pass here."""
        self._begun_passes = 0
        self._rows: list[tuple[int, str]] = []
        self._written = progress

    # Beginning

    @classmethod
    def begin(cls, agent: Agent, context: CallContext, address: CallAddress, given: Any) -> Call:
        """Record a new call: its input, and the agent as it was found."""
        journal, tracker = context.journal, context.local.tracker(agent)
        head, history = tracker.head, tracker.history
        config = config_of(agent)
        state = head.rebase()
        with journal.transaction("call.begin"):
            config_id = journal.config_id(fingerprint(config), config)
            call_id, lineage = journal.insert_call(
                address, "agent", given=given, config_id=config_id, lineage=tracker.lineage
            )
            tracker.lineage = lineage
            if not history.is_known and lineage == call_id:
                history.load([], [], 0)  # its log begins here
            elif not history.is_known:
                before = journal.last_ranges(call_id, lineage)
                history.load(read_messages(journal, lineage, before), before, journal.next_seq(lineage))
            rows = history.sync(agent.messages, MessageEncoder(call_id, None).describe)
            journal.write_messages(lineage, rows)
            if history.ranges:
                journal.set_base(call_id, history.ranges)
            if is_interrupted(agent):
                head.capture(None)
            if journal.share_state(call_id, lineage, state):
                head.state_is_written()
            head.flush(journal, call_id)
            progress = CallProgress(ranges=history.ranges)
            journal.write_head(call_id, [("progress", progress.to_text()), *context.origin])
        record = journal.call_in(address.parent, address.place, address.position)
        assert record is not None
        call = cls(agent, context, record, progress)
        call.models.config = copied(config), config_id
        return call

    @classmethod
    def resume(cls, agent: Agent, context: CallContext, record: CallRecord) -> Call:
        """Replace what the agent carries with the head of a recorded call."""
        progress, parts = context.journal.head(record.call_id)
        context.local.tracker(agent).lineage = record.lineage
        call = cls(agent, context, record, progress)
        context.journal.load_steps(record.call_id)
        call._restore_messages(progress.ranges)
        call.head.restore(context.journal, record.call_id, parts)
        call.tools.decisions.restore(parts)
        # After an answer the hooks run again, as they do in a process that did not restart.
        call.models.state = model_states.resumed(progress, is_interrupted=is_interrupted(agent))
        return call

    def restore_closing(self) -> None:
        """Restore the messages and the counts that a failed call ended with, beyond its head."""
        self.progress = self.journal.closing(self.record.call_id)
        self._restore_messages(self.progress.ranges)

    def _restore_messages(self, ranges: list[list[int]]) -> None:
        messages = read_messages(self.journal, self.record.lineage, ranges, self.record)
        self.agent.messages[:] = messages
        self.history.load(messages, ranges, self.journal.next_seq(self.record.lineage))

    def put_back(self) -> bool:
        """Undo what the hooks before a model call did a second time; return True if they changed the conversation.

        In the previous process they ran before the head was committed, so it contains their work.
        """
        _, parts = self.journal.head(self.record.call_id)
        changed = not self.history.holds(self.agent.messages)
        if changed:
            self._restore_messages(self.progress.ranges)
        self.head.restore(self.journal, self.record.call_id, parts)
        if self.invocation_state is not None:
            self.head.restore_invocation_state(self.invocation_state, shared=self.is_in_node)
        return changed

    def take_up(self, answers: dict[str, Any] | None) -> None:
        """Resume the call. Answers are committed at once, the rest when the first pass begins."""
        self._next_attempt()
        self.is_resumed = True
        self._begun_passes = 0
        if answers is not None:
            self._move(self.progress.resume, cycles=[*self.progress.cycles, 0], passes=0, forced=None)  # type: ignore[arg-type]
            with self.flushing("call.answer"):
                self._reopen(answers)
            self.is_resumed = False

    def pass_begins(self) -> bool:
        """The hooks before a pass have run. Return True if its input is already part of the conversation.

        Setup hooks must run in a new process, but the state they wrote is on record: restore that.
        """
        if not self.is_resumed:
            return False
        self.is_resumed = False
        is_said = self.progress.resume != "ready"
        if is_said:
            self.head.restore_state(self.journal.state(self.record.call_id))
            if self.invocation_state is not None:
                self.head.restore_invocation_state(self.invocation_state, shared=self.is_in_node)
            if self.progress.forced is not None:
                force_output(self.agent, self.progress.forced)
        with self.journal.transaction("call.reopen", lasting=False):  # what follows from it is synced with it
            self._reopen(None)
        self.models.is_unsynced = True
        return is_said

    # Called from Strands hooks

    def enter_model(self, phase: StepPhase) -> None:
        """Enter the hooks before or after the current model call."""
        if self.recorded_metrics is not None:
            self.recorded_metrics.carry_over(self.agent.event_loop_metrics)
        if phase == "before":
            self.history.forget_copies()  # Strands is about to make new ones
        else:
            self.models.settle_state()
        key = self.models.key(phase)
        current_context.set(StepContext(self, "model", "model", phase, key, partial(self.models.look, key)))

    def enter_tools(self, phase: StepPhase) -> None:
        """Enter the hooks before or after all tools of an answer."""
        look = (self.record.attempt, False)
        current_context.set(
            StepContext(self, "tools", "tools", phase, keys.tools_key(self.progress.ordinal), lambda: look)
        )

    def enter_tool(self, tool_use: Any, phase: StepPhase) -> None:
        """Enter the hooks before or after a tool call."""
        request = self.tools.request(tool_use, back=1 if phase == "after" else 0)
        current_context.set(
            StepContext(self, "tool", request.name, phase, request.key, partial(self.tools.look, request.key, phase))
        )

    def invocation_begins(self, invocation_state: dict[str, Any]) -> None:
        """Restore the metrics of recorded steps, and what they left in the invocation state."""
        if self._begun_passes > 0:
            self._stay(passes=self.progress.passes + 1)
        self._begun_passes += 1
        self.enter_call("before")
        self.invocation_state = invocation_state
        if self.is_resumed:
            self.head.restore_invocation_state(invocation_state, shared=self.is_in_node)
        if self.recorded_metrics is not None:
            self.recorded_metrics.restore_once(self.agent.event_loop_metrics)

    def message_added(self, message: Any) -> None:
        """Capture the head once a model answer is part of the conversation."""
        if not self.models.is_answer(message):
            return
        self._capture()
        wants_tools = any("toolUse" in block for block in message["content"])
        ordinal = self.progress.ordinal + 1
        self._stay(
            resume="tools" if wants_tools else "model", attempt=0, retry=0, ordinal=ordinal, cycles=self._cycles(1)
        )

    def tools_begin(self, message: Any) -> None:
        """The tools of ``message`` are about to run."""
        if self.recorded_metrics is not None:
            self.recorded_metrics.carry_over(self.agent.event_loop_metrics)
        self.tools.begin(message)
        self._move("tools", resume="tools")
        self.enter_tools("before")

    def tools_end(self) -> None:
        """All tools of an answer have run, or one of our own errors was latched where Strands could swallow it."""
        self.tools.decisions.batch_ends()
        self.check()
        self.enter_tools("after")

    def place_in_loop(self) -> tuple[int, int]:
        """Return the current leg and cycle."""
        return len(self.progress.cycles) - 1, self._cycles(1)[-1]

    def _cycles(self, under_way: int) -> list[int]:
        invocation = self.agent.event_loop_metrics.latest_agent_invocation
        made = 0 if invocation is None else len(invocation.cycles)
        return [*self.progress.cycles[:-1], max(0, made - under_way)]

    # Ending

    @contextmanager
    def _ending(self, phase: Phase) -> Iterator[None]:
        self._capture()
        self._move(phase, cycles=self._cycles(0), in_loop=self.tools.in_loop())
        with self.flushing("call.end"):
            self.tools.flush_asking()
            yield

    def _failing(self) -> AbstractContextManager[None]:
        """Leave the head as it is, for the next attempt."""
        return self._closing("call.failed")

    def leave(self) -> None:
        """Commit where the caller left the call, beyond its head: a resume starts at the head; without one it ends here."""
        with self._closing("call.left"):
            pass

    @contextmanager
    def _closing(self, label: str) -> Iterator[None]:
        self._sync()
        closing = replace(
            self.progress, ranges=self.history.ranges, cycles=self._cycles(0), in_loop=self.tools.in_loop()
        )
        with self.journal.transaction(label):
            self.journal.write_messages(self.record.lineage, self._rows)
            self.journal.write_head(self.record.call_id, [("closing", closing.to_text())])
            yield

    # Committing

    def commit_head(self, label: str, phase: Phase, *, lasting: bool = True, **changes: Any) -> None:
        """Commit the conversation and the head as they are now."""
        self._capture()
        self._move(phase, resume=phase, cycles=self._cycles(1), **changes)
        with self.flushing(label, lasting=lasting):
            pass

    @contextmanager
    def committing(self, label: str, **changes: Any) -> Iterator[None]:
        """Commit the conversation and changes of the progress, together with what the block writes."""
        self._sync()
        self._stay(**changes)
        with self.flushing(label):
            yield

    @contextmanager
    def flushing(self, label: str, *, lasting: bool = True) -> Iterator[None]:
        """Commit what was captured, together with what the block writes."""
        with self.journal.transaction(label, lasting=lasting):
            yield
            self._flush()  # last, so that the head includes what the step left when it ended
        if lasting:
            self.models.is_unsynced = False

    def sync_answer(self) -> None:
        """Sync the answer before one of its tools runs without an intent: a power cut must not undo it."""
        if self.models.is_unsynced:
            with self.flushing("answer.sync"):
                pass

    def take_messages(self) -> None:
        """Include the tool's changes to the conversation in the commit of its result."""
        if self._sync():
            self._stay()

    def _sync(self) -> bool:
        """Collect the messages to write; return True if the conversation differs from what was written."""
        before, rows = self.history.ranges, self.history.sync(self.agent.messages, self.message_encoder.describe)
        self._rows += rows
        return bool(rows) or self.history.ranges is not before

    def _capture(self) -> None:
        self._sync()
        self.head.capture(self.invocation_state, self._turn())

    @property
    def is_turn(self) -> bool:
        """Whether this call is an agent's turn in a swarm."""
        return self._turn() is not None

    def _turn(self) -> dict[str, Any] | None:
        """Return the part of a swarm's state that this turn may have changed."""
        adapter = None if self.outer is None else self.outer.adapter
        return None if adapter is None else adapter.turn()

    def _stay(self, **changes: Any) -> None:
        super()._stay(ranges=self.history.ranges, **changes)

    def _flush(self) -> None:
        if self._rows:
            self.journal.write_messages(self.record.lineage, self._rows)
            self._rows = []
        self.head.flush(self.journal, self.record.call_id)
        self._write_traces()
        if self.progress is not self._written:
            self.journal.write_head(self.record.call_id, [("progress", self.progress.to_text())])
            self._written = self.progress
