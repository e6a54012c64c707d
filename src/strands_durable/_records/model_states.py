"""What the next model call of a call may find in the journal, and every legal move between these states, as one table.

A process that begins a call finds nothing. One that resumes it may find the answer, or that a process which is gone had
committed to ask, before or after the hooks around the model call had run. An illegal move is an error of this package.
"""

from __future__ import annotations

from typing import Literal

from .calls import CallProgress
from .phases import PhaseError

ModelState = Literal["live", "recorded", "begun", "hooked", "answered", "replayed"]

MOVES: dict[ModelState, frozenset[ModelState]] = {
    # Nothing is recorded: the call began here, or this process has had an answer of its own, and is ahead of the journal.
    "live": frozenset({"live", "answered"}),
    # The call was resumed: the journal may have the answer.
    "recorded": frozenset({"recorded", "answered", "replayed"}),
    # ... and if it has none, the model call is in doubt: a process that is gone had committed that it would ask.
    "begun": frozenset({"recorded", "replayed"}),
    # ... and the hooks before it had run: what they did is part of the head that was put in place.
    "hooked": frozenset({"begun", "recorded"}),
    # This process has an answer, expected as the next message. If a hook sends it back, the model is asked again.
    "answered": frozenset({"live"}),
    # The journal had the answer, expected as the next message.
    "replayed": frozenset({"recorded"}),
}

IS_AHEAD: frozenset[ModelState] = frozenset({"live", "answered"})
"""Nothing can be recorded of the model call."""
IS_EXPECTED: frozenset[ModelState] = frozenset({"answered", "replayed"})
"""There is an answer that is no message yet."""


def resumed(progress: CallProgress, *, is_interrupted: bool) -> ModelState:
    """Return what the next model call of a resumed call may find; with answers to questions the hooks run again."""
    is_new = progress.attempt == 0 and (progress.phase == "waiting" or progress.waits)
    if progress.resume != "model" or is_new:
        return "recorded"
    if progress.attempt > 0 and not is_interrupted:
        return "hooked"
    return unhooked(progress)


def unhooked(progress: CallProgress) -> ModelState:
    """Return what a model call may find apart from its hooks; it had not begun if it was waiting for its turn."""
    return "recorded" if progress.waits else "begun"


def move(execution_id: str, state: ModelState, to: ModelState) -> ModelState:
    """Return ``to`` if the table allows it."""
    if to not in MOVES[state]:
        raise PhaseError(execution_id, f"model {state}", f"model {to}")
    return to
