"""Stops, or warns, when what resumes is not what is on record: another configuration, or other calls inside a step."""

from __future__ import annotations

from .._calls.durable_call import DurableCall
from .._journal.port import Journal
from .._records import keys
from .._records.calls import CallRecord
from .._records.logs import safe_logger
from .._records.options import Options
from ..errors import DriftError

logger = safe_logger(__name__)

_SHOWN = 80


def report(journal: Journal, options: Options, call_id: int, step: str, changes: list[str]) -> None:
    """Raise or warn that what resumes differs from the record; a fork is there to be run with another agent."""
    is_forked = journal.note_drift(call_id, changes)
    if options.on_drift == "raise" and not is_forked:
        raise DriftError(journal.execution_id, step, changes)
    logger.warning(
        "execution_id=<%s>, step=<%s>, changes=<%s> | agent changed, resuming",
        journal.execution_id, step, "; ".join(changes),
    )  # fmt: skip


def refuse_other_children(call: DurableCall | None, tool: str) -> None:
    """Stop before a tool runs in a call that takes the place of an earlier one, in which tools have run.

    It may be about to do again, under other keys, what the earlier one has done.
    """
    while call is not None:
        if call.is_new_child and call.made_in is not None:
            left_out = call.made_in.children.left_out(call)
            if left_out:
                _report_other_child(call, left_out[0], tool)
            call.is_new_child = False
        call = call.outer


def _report_other_child(call: DurableCall, earlier: CallRecord, tool: str) -> None:
    assert call.made_in is not None
    outer = call.made_in.call.record
    changes = [
        f"{_title(earlier)} was called in it, and tools have run inside that call; now it is not called",
        f"{_title(call.record)} is called instead, and would run tool {tool!r}",
        "code in a step has to give the agents that it calls the same input in every attempt: take times and random values "
        "from durable.now(), durable.uuid() or durable.step()",
    ]
    step = f"step {keys.path(outer.scope, outer.position, call.made_in.key)}"
    report(call.journal, call.options, outer.call_id, step, changes)


def _title(record: CallRecord) -> str:
    """Return who was called, with which input, and where that is on record."""
    text = "an input that was redacted" if record.redacted else repr(record.input)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"{record.kind} {record.member.removeprefix('@')!r} with {text} ({record.scope}#{record.position})"
