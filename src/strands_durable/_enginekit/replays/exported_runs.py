"""A run that was exported, as a test: its steps are played to an agent, and what the agent does differently is a difference."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..._dispatch.registry import DurableAgent
from ..._execution.attached import attached
from ..._journal.messages import read
from ..._plugin.attach import attach
from ..._records.calls import CallRecord
from ..._records.codec import decode
from ..._records.exceptions import describe, summary
from ..._records.executions import ExecutionStatus
from ..._records.options import Options
from ..._records.spec import AgentSpec
from ..._sqlite.database import Store
from ..._sqlite.open_files import stores
from ..._strands.agents import is_agent
from ..._strands.orchestrators import adapter_of
from ...errors import UnsupportedFeatureError
from ..export_files import parsed_file
from ..imports import replica_of
from .recording import EndOfRecord, RecordedRun, Recording, answers_to
from .transcript import Section, differences, transcript

S = ExecutionStatus
_MOST = 10
"""How many differences are reported."""
_LAST_LINES = 20


def assert_replays_export(run: Any, agent: Any, given: dict[str, Any]) -> int:
    """Play an exported run to an agent and compare; return the number of steps that were played."""
    name = "The export" if isinstance(run, Mapping) else os.fspath(run)
    export = dict(run) if isinstance(run, Mapping) else parsed_file(Path(run))
    source = replica_of(export, name)
    found = _ExportedRun(source, source.record().execution_id)
    with tempfile.TemporaryDirectory() as folder:
        return found.replay(name, agent, given, Path(folder) / "replay.db")


class _ExportedRun:
    """An exported run that is played."""

    def __init__(self, source: Store, execution_id: str) -> None:
        self._source, self._execution_id = source, execution_id
        self._run = RecordedRun(source, execution_id)
        rows = source.rows("dispatches", "spec, given", "execution = ?", self._run.journal.lease.row_id)
        self._spec = AgentSpec.from_json(decode(rows[0][0])) if rows else None
        self._dispatched: dict[str, Any] = decode(rows[0][1]) if rows else {}

    def replay(self, name: str, agent: Any, given: dict[str, Any], path: Path) -> int:
        """Play the run to an agent that records to a new file, and compare what is on record."""
        subject = self._built(agent)
        roots = self._roots(subject)
        recording = Recording(self._run, _name_of(subject))
        with _playing(subject, path, self._execution_id, recording) as store:
            error = self._call_all(subject, roots, given)
            if error is not None and not store.rows("executions", "id", "1"):
                raise error  # it was called with what it does not take
            found = self._differences(store, recording, roots, error)
        if found:
            raise AssertionError(_told(name, self._execution_id, found)) from error
        return len(recording.played)

    def _built(self, agent: Any) -> Any:
        if is_agent(agent) or adapter_of(agent) is not None:
            return agent
        if isinstance(agent, DurableAgent):
            return agent.build({} if self._spec is None else self._spec.arguments)
        subject = agent() if callable(agent) else agent
        if not is_agent(subject) and adapter_of(subject) is None:
            raise TypeError(
                "assert_replays(export, agent) takes an Agent, a Graph, a Swarm, a DurableAgent, or a function that returns"
                f" one, not {type(subject).__name__}"
            )
        return subject

    def _roots(self, subject: Any) -> list[CallRecord]:
        """Return the recorded calls of this agent; an inline execution may have others."""
        if not self._run.roots:
            raise self._unsupported("it has not begun: there is nothing to replay")
        own = [record for record in self._run.roots if record.scope == _name_of(subject)]
        scopes = {record.scope for record in self._run.roots}
        found = own or (self._run.roots if len(scopes) == 1 else [])
        if not found:
            known = ", ".join(sorted(map(repr, scopes)))
            raise self._unsupported(
                f"it has calls of several agents ({known}), and none has the id {_name_of(subject)!r}"
            )
        if any(record.redacted for record in found):
            raise self._unsupported("a guardrail has redacted one of its inputs, which is not on record any more")
        return found

    def _unsupported(self, reason: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(f"Replaying execution {self._execution_id!r}", reason)

    # Playing

    def _call_all(self, subject: Any, roots: list[CallRecord], given: dict[str, Any]) -> Exception | None:
        """Make the recorded calls; return what one of them raised."""
        self._start_as_recorded(subject, roots[0])
        for record in roots:
            try:
                result = self._call(subject, record.input, given)
                while answers := answers_to(self._source, record, getattr(result, "interrupts", None) or ()):
                    result = self._call(subject, answers, given)
            except UnsupportedFeatureError:
                raise
            except Exception as error:
                if record is roots[-1] or not self._failed_with(record, error):
                    return error
        return None

    def _call(self, subject: Any, prompt: Any, given: dict[str, Any]) -> Any:
        state = {**(self._dispatched.get("invocation_state") or {}), **given.get("invocation_state", {})}
        state.pop("execution_id", None)
        limits = self._dispatched.get("limits")
        more = {"limits": limits} if limits is not None and is_agent(subject) else {}
        return subject(prompt, **{**more, **given, "invocation_state": state})

    def _start_as_recorded(self, subject: Any, first: CallRecord) -> None:
        """Give an agent without messages those that the recorded one had: a session, or an earlier execution, gave them."""
        if first.base and is_agent(subject) and not subject.messages:
            subject.messages.extend(read(self._run.journal, first.lineage, first.base))

    # Comparing

    def _differences(
        self, store: Store, recording: Recording, roots: list[CallRecord], error: Exception | None
    ) -> list[str]:
        now = transcript(RecordedRun(store, self._execution_id))
        places = {record.call_id for record in roots}
        recorded = transcript(self._run, recording.played, places)
        found = differences(recorded, now, is_cut=recording.ended is not None or error is not None)
        if recording.ended is not None:
            is_end = self._is_end_of(roots[-1], recording, recording.ended)
            return found if is_end else [*found, _beyond(recording.ended, now)]
        if error is not None and not self._failed_with(roots[-1], error):
            found.append(f"the agent raised {type(error).__name__}: {error}")
        return found

    def _is_end_of(self, last: CallRecord, recording: Recording, ended: EndOfRecord) -> bool:
        """Return True if the recorded run went no further than to the step that has no recorded outcome."""
        if last.status is S.COMPLETED:
            return False
        return ended.is_known or (last.status is not S.SUSPENDED and recording.is_exhausted(ended.call))

    def _failed_with(self, record: CallRecord, error: Exception) -> bool:
        """Return True if a recorded call failed with this error, too."""
        if record.status is not S.FAILED:
            return False
        return summary(self._run.journal.last_failure(record.call_id)) == summary(describe(error))


def _beyond(ended: EndOfRecord, now: dict[str, Section]) -> str:
    """Return what an agent does that the recorded one did not, with what it does it after."""
    before = now.get(f"{ended.call} messages")
    lines = [] if before is None else ["after these messages:", *(f"  {line}" for line in before.lines[-_LAST_LINES:])]
    return "\n".join([f"step {ended.step}: the agent calls {ended.name}, which the recorded run did not", *lines])


def _told(name: str, execution_id: str, found: list[str]) -> str:
    number = "one difference" if len(found) == 1 else f"{len(found)} differences"
    head = f"The agent does not do what execution {execution_id!r} of {name} did: {number}, the first one first."
    parts = [f"{place}. {text}" for place, text in enumerate(found[:_MOST], 1)]
    more = [f"... and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return "\n\n".join([head, *parts, *more])


def _name_of(subject: Any) -> str:
    adapter = adapter_of(subject)
    return str(subject.agent_id if adapter is None else adapter.name)


@contextmanager
def _playing(subject: Any, path: Path, execution_id: str, recording: Recording) -> Iterator[Store]:
    """Attach a player to an agent, with a store of its own; afterwards the agent is durable as it was before."""
    before = attached.get(subject)
    options = before or Options(path=path, execution_id=execution_id)
    attach(subject, replace(options, path=path, execution_id=execution_id, on_drift="warn", player=recording))
    store, renewer = stores.open(path)
    try:
        yield store
    finally:
        attached[subject] = before
        renewer.stop()
        stores.drop(path)
        store.close()
