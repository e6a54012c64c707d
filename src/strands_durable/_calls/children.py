"""The calls that the code of one step or hook makes, in one attempt: their places, and which earlier ones were not made again.

Calls with the same agent_id and input share a place, and are distinguished by their order. If their configurations differ, that
is a better sign than the order, which may change where threads make the calls. An agent that was built with a conversation is
never taken for one that was built with another.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._journal.port import Journal
from .._records.calls import CallRecord

if TYPE_CHECKING:
    from .._strands.fingerprints import Config
    from .context import StepContext
    from .durable_call import DurableCall

BEGUN_IN = "begun_in"
"""The part of a call's head that holds the attempt of the enclosing call in which it began, unless that is the first."""


class Children:
    """The calls of one attempt, beside those of earlier attempts."""

    def __init__(self, enclosing: StepContext) -> None:
        self._journal = enclosing.call.journal
        self._parent = enclosing.call.record.call_id
        self.prefix = f"{enclosing.key}/{enclosing.phase}"
        """What the places of all of them begin with."""
        self._earlier = self._journal.calls_in(self._parent, self.prefix)
        self._made: set[int] = set()
        self._new: Counter[str] = Counter()
        self._lock = threading.Lock()

    def position(self, place: str, config: Callable[[], Config], may_be: Callable[[CallRecord], bool]) -> int:
        """Return the position of the next call at a place: that of one on record which it ``may_be``, or a new one."""
        with self._lock:
            equals = [record for record in self._earlier if record.place == place]
            open_ones = [record for record in equals if record.call_id not in self._made and may_be(record)]
            if not open_ones:
                self._new[place] += 1
                return len(equals) + self._new[place] - 1
            found = open_ones[0] if len(equals) == 1 else self._alike(open_ones, config())
            self._made.add(found.call_id)
            return found.position

    def _alike(self, records: list[CallRecord], config: Config) -> CallRecord:
        """Return the first call that was recorded with the same configuration; if there is none, the first."""
        from .._strands.fingerprints import fingerprint  # commands that run no agent do not wait for Strands

        wanted = fingerprint(config)
        return next(
            (each for each in records if fingerprint(self._journal.config(each.config_id)) == wanted), records[0]
        )

    def is_made(self, record: CallRecord) -> None:
        """Note that a call on record was made again, with answers in place of its input."""
        with self._lock:
            self._made.add(record.call_id)

    def all(self) -> list[CallRecord]:
        """Return the calls on record, those of this attempt included."""
        return self._journal.calls_in(self._parent, self.prefix)

    def left_out(self, call: DurableCall) -> list[CallRecord]:
        """Return the calls that were not made again, inside which a tool has run, and whose place ``call`` may take.

        Calls of the same attempt may run side by side, in any order, and none takes the place of another.
        """
        with self._lock:
            found = [record for record in self._earlier if record.call_id not in self._made]
        if found and call.record.attempt > 1 and not self._has_ended(call.record):
            begun = self._begun_in(call.record)
            found = [record for record in found if self._begun_in(record) < begun]
        return [
            record for record in found if not self._is_recorded_effect(record) and has_run_tools(self._journal, record)
        ]

    def _has_ended(self, record: CallRecord) -> bool:
        """Return True if a call had failed or was left: code may then have made another one in its place."""
        return "closing" in self._journal.head(record.call_id)[1]

    def _begun_in(self, record: CallRecord) -> int:
        """Return the attempt of the enclosing call in which a call began."""
        return int(self._journal.head(record.call_id)[1].get(BEGUN_IN, "1"))

    def _is_recorded_effect(self, record: CallRecord) -> bool:
        """Return True if a call was made inside a `durable.step` that has its result: it is not made again."""
        effect, _, _ = record.place.rpartition("/@")
        step = self._journal.latest(self._parent, effect).get(effect) if effect else None
        return step is not None and step.status == "done"


def has_run_tools(journal: Journal, record: CallRecord) -> bool:
    """Return True if a tool has started inside a call, or inside the calls in it; one that only asked has not."""
    if record.kind == "agent":
        steps = journal.latest(record.call_id, "").values()
        if any(step.kind == "tool" and step.status != "interrupted" for step in steps):
            return True
    return any(has_run_tools(journal, inner) for inner in journal.calls_in(record.call_id, ""))
