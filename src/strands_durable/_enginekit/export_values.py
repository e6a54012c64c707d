"""The values in the rows of an export: each has the form that its readers rely on, and refers to rows that are there."""

from __future__ import annotations

from typing import Any

from .._records.change_sets import ChangeSet, Row, rows_of
from .._records.codec import peek, refusal
from .._records.executions import ExecutionStatus
from .._records.keys import is_model_key
from .._records.origins import IMPORTED
from .._sqlite.blobs import shown
from ..errors import UnreadableError
from . import export_forms as forms
from .export_columns import MisfitError
from .export_forms import Form

S = ExecutionStatus
_WITH_RESULT = (S.COMPLETED.value, S.SUSPENDED.value)


def refuse_values(changes: ChangeSet) -> None:
    """Raise `MisfitError` unless each recorded value can be read and has its form."""
    _Values(changes).refuse()


class _Values:
    def __init__(self, changes: ChangeSet) -> None:
        self._changes = changes
        self._calls = {row["id"]: row for row in self._rows("calls")}
        self._steps = {row["id"]: row for row in self._rows("steps")}
        self._ordinals: dict[int, int] = {}
        """By call: how many answers are part of its conversation."""

    def _rows(self, table: str) -> list[Row]:
        return rows_of(self._changes, table)

    def refuse(self) -> None:
        self._configs()
        self._heads()
        for row in self._rows("calls"):
            self._call(row)
        for row in self._rows("steps"):
            self._step(row)
        for row in self._rows("messages"):
            self._message(row)
        self._rest()

    def _configs(self) -> None:
        agents = {row["config"] for row in self._rows("calls") if row["kind"] == "agent"}
        agents |= {row["config"] for row in self._rows("steps") if row.get("config") is not None}
        for row in self._rows("configs"):
            form = forms.is_agent_config if row["id"] in agents else forms.is_object
            _refuse(row["data"], f"configuration {row['id']}", form)

    def _call(self, row: Row) -> None:
        where, result = f"call {row['id']}", row.get("result")
        _refuse(row["base"], f"the beginning of {where}", forms.is_base)
        if row.get("input") is not None:
            _refuse(row["input"], f"the input of {where}")
        form = forms.is_agent_result if row["kind"] == "agent" else forms.is_orchestrator_result
        if result is not None:
            _refuse(result, f"the result of {where}", form)
        elif row["status"] in _WITH_RESULT:
            raise MisfitError(f"{where} is {row['status']}, and has no result")

    def _step(self, row: Row) -> None:
        where = f"step {row['key'][:80]!r} of call {row['call']}"
        for column, form in (("usage", forms.is_counts), ("loop", forms.is_counts), ("error", forms.is_error)):
            if row.get(column) is not None:
                _refuse(row[column], f"the {column} of {where}", form)
        expected = _form_of_result(row)
        if row.get("result") is not None:
            found = _refuse(row["result"], f"the result of {where}", expected)
            self._inside(row, found, where)
        elif expected is not _is_anything and row["status"] == "done" and not self._is_compacted(row):
            raise MisfitError(f"{where} is done, and has no result")
        if row["status"] != "started" and (row.get("ended_at") is None or row.get("number") is None):
            raise MisfitError(f"{where} has ended, and has no time or no number")
        if row["kind"] == "model" and is_model_key(row["key"]) and row["status"] == "done" and not _is_counted(row):
            raise MisfitError(f"{where} has no usage, or no place in the loop")

    def _is_compacted(self, row: Row) -> bool:
        """Return True if an engine may have dropped a result: that of an earlier turn, which no message refers to."""
        turn = row["key"].partition("/")[0]
        return row["kind"] != "node" and turn.isdecimal() and int(turn) < self._ordinals.get(row["call"], 0)

    def _inside(self, row: Row, found: Any, where: str) -> None:
        """Refuse what a result holds or refers to and cannot be read."""
        if row["kind"] == "node" and found.get("call") not in {None, *self._calls}:
            raise MisfitError(f"{where} refers to a call which is not in the file")
        if row["kind"] == "tool" and row["status"] == "done":
            for text in (found.get("state") or {}).values():
                if text is not None:
                    _refuse(text, f"a value that {where} has written")

    def _message(self, row: Row) -> None:
        where = f"message {row['seq']} of call {row['lineage']}"
        form = _refuse(row["data"], where, forms.is_message_form)
        if "message" in form:
            return
        wanted = [("model", form["step"])] if "step" in form else []
        wanted += [("tool", block) for block in form.get("blocks", ()) if type(block) is int]
        for kind, step_id in wanted:
            step = self._steps.get(step_id)
            if step is None or step["kind"] != kind or step.get("result") is None:
                raise MisfitError(f"{where} refers to a step which is not in the file, or has no result")
        if "input" in form and form["input"] not in self._calls:
            raise MisfitError(f"{where} refers to a call which is not in the file")

    def _heads(self) -> None:
        phases: dict[int, str] = {}
        for table in ("heads", "past_heads"):
            for row in self._rows(table):
                where = f"part {row['part'][:40]!r} of the head of call {row['call']}"
                if row["part"] == IMPORTED:
                    raise MisfitError(f"it has a {where}, which an export does not have")
                found = _refuse(row["data"], where, forms.PARTS.get(row["part"], _is_anything))
                if table == "heads" and row["part"] == "progress":
                    phases[row["call"]] = found.get("phase", "ready")
                    self._ordinals[row["call"]] = found.get("ordinal", 0)
        for row in self._rows("calls"):
            self._phase(row, phases.get(row["id"]))

    def _phase(self, row: Row, phase: str | None) -> None:
        status, ends = row["status"], {"done": S.COMPLETED.value}
        if phase is None:
            if row["lineage"] or status not in (S.PENDING.value, S.CANCELLED.value):
                raise MisfitError(f"call {row['id']} has no head")
            return
        is_over = (phase == "done") == (status == ends["done"])
        if not is_over or (status == S.SUSPENDED.value and phase != "waiting"):
            raise MisfitError(f"call {row['id']} is {status}, and its head is {phase}")

    def _rest(self) -> None:
        for table in ("state", "past_state"):
            for row in self._rows(table):
                name = _refuse(row["key"], f"a key of the state of call {row['call']}", forms.is_text)
                _refuse(row["value"], f"state {name[:40]!r} of call {row['call']}")
        for table in ("answers", "replies"):
            for row in self._rows(table):
                _refuse(row["answer"], f"an answer of call {row['call']}")
        for row in self._rows("failures"):
            _refuse(row["error"], f"a failure of call {row['call']}", forms.is_error)
        is_dispatched = self._rows("executions")[0]["kind"] == "dispatched"
        if len(self._rows("dispatches")) != is_dispatched:
            raise MisfitError("it has no dispatch, or one too many")
        for row in self._rows("dispatches"):
            _refuse(row["spec"], "the agent of its dispatch", forms.is_spec)
            _refuse(row["given"], "the input of its dispatch", forms.is_given)


def _form_of_result(row: Row) -> Form:
    """Return the form of a step's result."""
    if row["kind"] == "model" and is_model_key(row["key"]):
        return forms.is_answer
    if row["kind"] == "tool" and row["status"] == "done":
        return forms.is_tool_outcome
    return {"tool": forms.is_object, "node": forms.is_visit}.get(row["kind"], _is_anything)


def _is_counted(row: Row) -> bool:
    return row.get("usage") is not None and row.get("loop") is not None


def _is_anything(value: Any) -> bool:
    return True


def _refuse(text: str, where: str, form: Form = _is_anything) -> Any:
    """Return the value that a recorded form holds, or raise."""
    try:
        found = peek(shown(text))
    except (UnreadableError, RecursionError) as error:
        why = error.reason if isinstance(error, UnreadableError) else "it is nested too deeply"
        raise MisfitError(f"{where} cannot be read: {why}") from None
    if not form(found):
        raise MisfitError(f"{where} has no known form: {text[:60]!r}")
    why_not = refusal(found)
    if why_not is not None:
        raise MisfitError(f"{where} cannot be recorded: it has a {why_not.type_name}{why_not.detail}")
    return found
