"""Forks: a new execution that begins where another one stood. Pure functions on its rows; does not import Strands.

A fork has the finished steps of its origin up to one of them, and the calls as they stood then. It may get another state or
conversation for the call that this step belongs to, or another prompt: in place of the first one at the beginning, as a further
turn where one has ended. Whatever had begun by then without a result begins again.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from itertools import count
from typing import Any

from .._journal import messages as conversation
from .._journal.owner import user_name
from .._records.calls import CallProgress
from .._records.change_sets import ChangeSet, Row, rows_of
from .._records.codec import encode
from .._records.executions import ACCEPTED, TRACE, ExecutionStatus
from .._records.json_text import writer
from .._records.keys import checked_id, is_model_key, model_key
from .._records.message_lists import why_not, with_prompt
from .._records.origins import PART, ForkChanges, Origin
from .._records.questions import expires_in
from .._sqlite import deadlines
from .._sqlite.journal import Journal
from .._sqlite.snapshot import last_number
from .._sqlite.snapshot.stored_rows import current_root
from ..errors import ForkError
from .trace_context import current_trace

S = ExecutionStatus
_LEFT_OUT = ("traces", deadlines.PART, PART)
"""Parts of heads that are about the origin alone."""
_NO_INTERRUPTS = {"interrupts": {}, "context": {}, "activated": False}
_dump = writer()


def fork_id(execution_id: str) -> str:
    """Return an id for a fork of an execution."""
    return checked_id(f"{execution_id[:180]}-fork-{uuid.uuid4().hex[:6]}")


def fork(origin: ChangeSet, journal: Journal, execution_id: str, changes: ForkChanges) -> ChangeSet:
    """Return the rows of a fork.

    Args:
        origin: The rows of the origin as they were when a step had ended, by `snapshot`.
        journal: The journal of the origin, for reading.
        execution_id: The id of the fork.
        changes: What to replace.

    Raises:
        ForkError: The changes do not fit what the origin was then.
    """
    found = _Fork(origin, journal)
    found.replace(changes)
    found.settle(execution_id, changes)
    return found.changes()


def call_of_step(origin: ChangeSet) -> Row:
    """Return the call that the last finished step belongs to; at the beginning, the root call."""
    at, calls = last_number(origin), rows_of(origin, "calls")
    ids = [row["call"] for row in rows_of(origin, "steps") if row["number"] == at]
    roots = [row for row in calls if row["parent"] == 0]
    (found,) = [row for row in calls if row["id"] == ids[0]] if ids else roots[-1:]
    return found


@dataclass
class _Turn:
    """The call that a fork changes."""

    row: Row
    progress: CallProgress | None
    """None for a call that has not begun."""


class _Fork:
    """The rows of a fork while they are made."""

    def __init__(self, origin: ChangeSet, journal: Journal) -> None:
        self._format, self._journal, self._at = origin["format"], journal, last_number(origin)
        self._tables: dict[str, list[Row]] = {name: list(rows) for name, rows in origin["tables"].items()}
        (self._execution,) = self._tables["executions"]
        self._origin_id: str = self._execution["execution_id"]

    def changes(self) -> ChangeSet:
        """Return the rows."""
        return {"format": self._format, "tables": {name: rows for name, rows in self._tables.items() if rows}}

    # What is replaced

    def replace(self, changes: ForkChanges) -> None:
        """Replace state, messages and prompt of the call that the step belongs to."""
        if not changes.names:
            return
        turn = self._turn()
        self._drop_calls_after(turn.row)
        if changes.prompt is not None and not self._tables.get("steps"):
            self._begin_again(turn, changes.prompt)
            if changes.messages is not None:
                self._begin_on(turn, changes.messages)
        elif changes.prompt is not None or changes.messages is not None:
            self._continue(turn, changes)
        elif turn.progress is not None and turn.progress.phase == "done":
            raise self._failure("the call had ended with that step", "Pass a prompt too, or fork at an earlier step.")
        if changes.state is not None:
            self._set_state(turn, changes.state)

    def _turn(self) -> _Turn:
        row = call_of_step(self.changes())
        heads = [
            head for head in self._tables.get("heads", ()) if (head["call"], head["part"]) == (row["id"], "progress")
        ]
        return _Turn(row, CallProgress(**json.loads(heads[0]["data"])) if heads else None)

    def _drop_calls_after(self, row: Row) -> None:
        """Drop root calls that had begun after a changed one, without a finished step: they found what it was before."""
        calls = self._tables["calls"]
        worked = {self._root_of(each["call"]) for each in self._tables.get("steps", ())}
        later = {each["id"] for each in calls if not each["parent"] and each["position"] > row["position"]} - worked
        if row["parent"] == 0 and later:
            self._keep_calls([each for each in calls if self._root_of(each["id"]) not in later])

    def _root_of(self, call_id: int) -> int:
        """Return the root call that a call is inside of, or is."""
        parents = {each["id"]: each["parent"] for each in self._tables["calls"]}
        while parents[call_id]:
            call_id = parents[call_id]
        return call_id

    def _keep_calls(self, calls: list[Row]) -> None:
        """Drop all other calls, with what belongs to them."""
        self._tables["calls"] = calls
        ids, logs = ({each[name] for each in calls} for name in ("id", "lineage"))
        for table in ("heads", "state", "failures", "answers", "replies", "past_heads", "past_state"):
            if table in self._tables:
                self._tables[table] = [each for each in self._tables[table] if each["call"] in ids]
        ends: dict[int, int] = {}  # where a log continues with the input of a call that is dropped
        for each in self._tables.get("messages", ()):
            of = json.loads(each["data"]).get("input")
            if of is not None and of not in ids:
                ends.setdefault(each["lineage"], each["seq"])
        self._tables["messages"] = [
            each
            for each in self._tables.get("messages", ())
            if each["lineage"] in logs and each["seq"] < ends.get(each["lineage"], each["seq"] + 1)
        ]

    def _begin_again(self, turn: _Turn, prompt: Any) -> None:
        """Replace the input of a call of which no step has ended, and let the call begin with it."""
        row = self._change(turn.row, input=encode(prompt, "The prompt"), input_hash=self._journal.hash(prompt))
        if turn.progress is None:
            return
        self._keep_calls([each for each in self._tables["calls"] if each["parent"] == 0])
        under_way = {(row["id"], part) for part in ("batch", "carried")}
        self._tables["heads"] = [
            each for each in self._tables["heads"] if (each["call"], each["part"]) not in under_way
        ]
        self._move(row, CallProgress(ranges=json.loads(row["base"])))

    def _begin_on(self, turn: _Turn, messages: list[Any]) -> None:
        """Let a call begin on another conversation."""
        self._refuse_other_kinds(turn, "messages")
        if turn.progress is None:
            raise self._not_begun()
        why = why_not([*messages, {"role": "user", "content": []}])
        if why is not None:
            raise self._failure(f"a prompt cannot follow these messages: {why}")
        ranges = self._write(turn.row, messages)
        self._change(turn.row, base=json.dumps(ranges))
        self._move(turn.row, CallProgress(ranges=ranges))

    def _continue(self, turn: _Turn, changes: ForkChanges) -> None:
        """Let a call continue with a model call on other messages."""
        self._refuse_other_kinds(turn, "prompt" if changes.messages is None else "messages")
        row, progress = turn.row, turn.progress
        if progress is None:
            raise self._not_begun()
        if row["parent"] and progress.phase in ("done", "waiting"):
            what = "had ended" if progress.phase == "done" else "waited for a person"
            raise self._failure(f"the call inside it {what} with that step", "Fork at an earlier step.")
        if changes.messages is None and progress.phase != "done":
            raise self._failure(
                f"step {self._at} does not end a turn, so that no prompt can follow it", self._ends(row)
            )
        kept = progress.ranges if changes.messages is None else []
        seen = conversation.read(self._journal, row["lineage"], kept) if kept else changes.messages or []
        messages = seen if changes.prompt is None else with_prompt(seen, changes.prompt)
        why = why_not(messages)
        if why is not None:
            raise self._failure(f"the model cannot be called with these messages: {why}")
        ranges = [*kept, *self._write(row, messages[len(seen) if kept else 0 :])]
        self._change(row, status=S.RUNNING.value, result=None, ended_at=None)
        self._tables["replies"] = [each for each in self._tables.get("replies", ()) if each["call"] != row["id"]]
        self._drop_interrupts(row)
        changed = {"phase": "model", "resume": "model", "attempt": 0, "waits": True, "forced": None}
        changed["retry"] = self._free_retry(row, progress.ordinal + 1)
        self._move(row, CallProgress(**{**vars(progress), **changed, "ranges": ranges}))

    def _free_retry(self, row: Row, ordinal: int) -> int:
        """Return a number under which no attempt of a model call is recorded: those were made on other messages."""
        made = {step["key"] for step in self._tables.get("steps", ()) if step["call"] == row["id"]}
        return next(retry for retry in count() if model_key(ordinal, retry) not in made)

    def _ends(self, row: Row) -> str:
        """Return which steps of a call end a turn, as a hint."""
        found = self._journal.store.rows("steps", "key, number, result", "call = ? AND status = 'done'", row["id"])
        ends = sorted(number for key, number, text in found if is_model_key(key) and _ends_turn(text))
        known = f"Steps that end one: {', '.join(map(str, ends))}. " if ends else ""
        return f"{known}At 0, a prompt replaces the first one; messages= replaces the conversation at any step."

    def _refuse_other_kinds(self, turn: _Turn, what: str) -> None:
        if turn.row["kind"] != "agent":
            why = (
                f"step {self._at} is one of the {turn.row['kind']} {turn.row['member']!r} itself, which takes no {what}"
            )
            raise self._failure(why, "Fork at a step of one of its agents.")

    def _write(self, row: Row, messages: list[Any]) -> list[list[int]]:
        """Append messages to the log of a call; return where they are."""
        log, rows = row["lineage"], self._tables.setdefault("messages", [])
        first = max((each["seq"] for each in rows if each["lineage"] == log), default=-1) + 1
        for place, message in enumerate(messages):
            data = encode({"message": message}, "A message")
            rows.append({"lineage": log, "seq": first + place, "data": data})
        return [[first, first + len(messages) - 1]] if messages else []

    def _set_state(self, turn: _Turn, state: dict[str, Any]) -> None:
        """Replace the state of a call."""
        self._refuse_other_kinds(turn, "state")
        if turn.progress is None:
            raise self._not_begun()
        call_id, rows = turn.row["id"], self._tables.get("state", [])
        for each in [each for each in rows if each["call"] == call_id]:
            self._retire("past_state", each)
        self._tables["state"] = [each for each in rows if each["call"] != call_id]
        self._change(turn.row, state_of=None)
        for name, value in state.items():
            cell = {"call": call_id, "key": encode(name), "value": encode(value, f"State {name!r}")}
            self._tables["state"].append(self._versioned(cell))

    # How rows change

    def _change(self, row: Row, **cells: Any) -> Row:
        row.update(cells)
        for name in [name for name, cell in cells.items() if cell is None]:
            del row[name]
        return row

    def _move(self, row: Row, progress: CallProgress) -> None:
        self._set_part(row["id"], "progress", progress.to_text())

    def _set_part(self, call_id: int, part: str, data: str) -> None:
        heads = self._tables.setdefault("heads", [])
        for each in [each for each in heads if (each["call"], each["part"]) == (call_id, part)]:
            self._retire("past_heads", each)
            heads.remove(each)
        heads.append(self._versioned({"call": call_id, "part": part, "data": data}))

    def _retire(self, table: str, row: Row) -> None:
        """Keep what a row was for those who fork the fork at an earlier step, where that is kept at all."""
        if self._keeps_past and row.get("version", 0) < self._at:
            kept = {name: cell for name, cell in row.items() if name != "version"}
            self._tables.setdefault(table, []).append({**kept, "since": row.get("version", 0), "until": self._at})

    @property
    def _keeps_past(self) -> bool:
        return self._journal.store.keeps_past

    def _versioned(self, row: Row) -> Row:
        return {**row, "version": self._at} if self._keeps_past else row

    def _drop_interrupts(self, row: Row) -> None:
        """Let an agent that waited for answers wait for none: its conversation continues without them."""
        for each in [each for each in self._tables["heads"] if (each["call"], each["part"]) == (row["id"], "agent")]:
            carried = json.loads(each["data"])
            if carried.get("interrupt_state", {}).get("activated"):
                self._set_part(row["id"], "agent", json.dumps({**carried, "interrupt_state": _NO_INTERRUPTS}))

    # What every fork gets

    def settle(self, execution_id: str, changes: ForkChanges) -> None:
        """Give the fork its id, its status and its origin, and let any version of its agent take it up."""
        now, by = time.time(), changes.by or user_name()
        origin = Origin(
            execution_id=self._origin_id, run=self._execution["run"], step=self._at, forked_at=now, by=by,
            changed=changes.names,
        )  # fmt: skip
        roots = [row for row in self._tables["calls"] if row["parent"] == 0]
        root = current_root(roots)
        status = self._execution["status"] if root["status"] == S.SUSPENDED.value else root["status"]
        changed = {"run": 0, "status": S.PENDING.value if status == S.RUNNING.value else status}
        times = {"created_at": now, "updated_at": now}
        self._tables["executions"] = [{**self._execution, **changed, **times, "execution_id": execution_id}]
        for row in self._tables["calls"]:
            row["run"] = 0
        self._tables["heads"] = [row for row in self._tables.get("heads", ()) if row["part"] not in _LEFT_OUT]
        for table in ("heads", "state"):
            for row in self._tables.get(table, ()):
                row |= {"version": min(row.get("version", 0), self._at)} if self._keeps_past else {}
        self._set_part(roots[0]["id"], PART, origin.to_text())
        self._set_deadlines(root, now)
        for row in self._tables.get("dispatches", ()):
            _accept_drift(row, by, now)

    def _set_deadlines(self, root: Row, now: float) -> None:
        """Let open questions wait as long as they would if they were asked now."""
        result = json.loads(root.get("result") or "null")
        asked = (result or {}).get("interrupts") or () if root["status"] == S.SUSPENDED.value else ()
        limits = {found["id"]: expires_in(found.get("reason")) for found in asked}
        due = {interrupt_id: now + limit for interrupt_id, limit in limits.items() if limit is not None}
        if due:
            self._set_part(root["id"], deadlines.PART, json.dumps(due))

    def _not_begun(self) -> ForkError:
        return self._failure("its call has not begun", "Pass only a prompt, or fork once it has begun.")

    def _failure(self, reason: str, hint: str = "") -> ForkError:
        return ForkError(self._origin_id, reason, hint)


def _accept_drift(row: Row, by: str, now: float) -> None:
    """Let the first worker that has the agent take up a fork, whatever the agent's version; see `Requests.accept_drift`."""
    spec, given = json.loads(row["spec"]), json.loads(row["given"])
    given.pop(TRACE, None)
    trace = current_trace()
    given |= {TRACE: trace} if trace else {}
    given[ACCEPTED] = {"by": by, "at": now, "fingerprint": None, "token": ""}
    row.update(fingerprint="", spec=_dump({**spec, "fingerprint": ""}), given=_dump(given))
    for name in ("is_suspected", "is_alone", "deaths", "tries", "not_before", "note"):
        row.pop(name, None)


def _ends_turn(text: str | None) -> bool:
    return text is not None and json.loads(text).get("stop_reason") != "tool_use"
