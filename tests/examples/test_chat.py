"""examples/chat: one execution per turn, one session per chat; killed inside a booking, and asked again."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.examples.processes import EXAMPLES, entries, python
from tests.waiting import until

CHAT = EXAMPLES / "chat" / "chat.py"


def said(turn: int, text: str) -> str:
    command = [*python(CHAT), "ada", str(turn), text]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_a_turn_that_is_asked_for_again_is_answered_from_the_record() -> None:
    assert said(1, "Good evening") == "You have said 1 things so far."
    assert said(2, "A table, please") == said(2, "A table, please") == "Your table is booked."
    assert said(3, "Thank you") == "You have said 3 things so far."
    assert entries("bookings.txt") == ["a table for 2"]


def test_a_turn_that_was_killed_resumes_and_the_chat_remembers_it_once() -> None:
    said(1, "Good evening")
    first = subprocess.Popen([*python(CHAT, BOOKING_SECONDS="600"), "ada", "2", "A table, please"])
    until(lambda: entries("bookings.txt"))
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert said(2, "A table, please") == "Your table is booked."
    assert said(3, "Thank you") == "You have said 3 things so far."
    assert len({line.split()[0] for line in Path("bookings.txt").read_text().splitlines()}) == 1  # one idempotency key
