"""examples/script: dispatch, wait, answer; killed inside a tool, and run again."""

from __future__ import annotations

import signal
import subprocess

from tests.examples.processes import EXAMPLES, entries, python
from tests.waiting import until

SCRIPT = EXAMPLES / "script" / "trip.py"


def answered(answer: str) -> str:
    ended = subprocess.run(python(SCRIPT), input=answer, capture_output=True, text=True, check=True, timeout=60)
    return ended.stdout


def test_the_script_asks_and_goes_on_with_the_answer() -> None:
    assert answered("yes\n") == "A hotel in Paris for 420 euros? Have a good trip!\n\n"
    assert entries("bookings.txt") == ["flight to Paris", "hotel in Paris"]
    assert answered("") == "Have a good trip!\n\n"


def test_an_answer_of_no_books_no_hotel() -> None:
    answered("no\n")
    assert entries("bookings.txt") == ["flight to Paris"]


def test_the_script_is_killed_inside_a_booking_and_run_again() -> None:
    first = subprocess.Popen(python(SCRIPT, BOOKING_SECONDS="600"), stdin=subprocess.DEVNULL)
    until(lambda: entries("bookings.txt"))
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert answered("yes\n").endswith("Have a good trip!\n\n")
    assert entries("bookings.txt") == ["flight to Paris", "hotel in Paris"]
