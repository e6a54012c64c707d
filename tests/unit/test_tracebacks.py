"""Tracebacks as text: of chains and groups, of what is huge or has no end, and of exceptions that break when looked at."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from strands import tool

from strands_durable._records.exceptions import RecordedError, describe, revive
from strands_durable._records.exceptions.tracebacks import MAX_LENGTH, traceback_of
from strands_durable._records.printable import masked_text


class BrokenError(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def _deep(depth: int) -> None:
    if depth:
        _deep(depth - 1)
    raise ValueError("deep")


def _chain(length: int) -> BaseException:
    last: BaseException = ValueError("first")
    for number in range(length):
        try:
            raise ValueError(number) from last
        except ValueError as error:
            last = error
    return last


def text(error: BaseException) -> str:
    found = traceback_of(error)
    assert found is not None
    return found


def test_what_was_never_raised_has_no_traceback() -> None:
    assert traceback_of(ValueError("never")) is None
    assert "traceback" not in describe(ValueError("never"))


def test_what_led_to_an_exception_comes_first_as_in_python() -> None:
    def chained() -> None:
        try:
            {}["a"]
        except KeyError:
            try:
                int("b")
            except ValueError as error:
                raise LookupError("c") from error

    with pytest.raises(LookupError) as caught:
        chained()
    lines = text(caught.value).splitlines()
    said = [line for line in lines if line and not line.startswith((" ", "Traceback"))]
    assert said == [
        "KeyError: 'a'",
        "During handling of the above exception, another exception occurred:",
        "ValueError: invalid literal for int() with base 10: 'b'",
        "The above exception was the direct cause of the following exception:",
        "LookupError: c",
    ]


def test_a_suppressed_context_is_left_out_and_notes_are_shown() -> None:
    def suppressed() -> None:
        try:
            {}["a"]
        except KeyError:
            error = ValueError("b")
            error.add_note("ask the owner of the table")
            raise error from None

    with pytest.raises(ValueError) as caught:
        suppressed()
    assert "KeyError" not in text(caught.value)
    assert text(caught.value).endswith("ValueError: b\nask the owner of the table")


def test_the_exceptions_of_a_group_are_set_in_and_counted() -> None:
    members = [_raised(ValueError(number)) for number in range(7)]
    nested = ExceptionGroup("inner", [_raised(KeyError("k"))])
    found = text(_raised(ExceptionGroup("outer", [nested, *members])))  # type: ignore[list-item]
    assert "ExceptionGroup: outer (8 sub-exceptions)" in found
    assert "  |    |  KeyError: 'k'" in found
    assert "  |  ValueError: 2" in found
    assert "  +- [4 of 8 left out]" in found


def test_a_group_in_a_group_in_a_group_has_an_end() -> None:
    group: Exception = ValueError("inmost")
    for _ in range(500):
        group = ExceptionGroup("g", [group])
    assert len(text(_raised(group))) < MAX_LENGTH


@pytest.mark.parametrize("error", [RecursionError, ValueError])
def test_of_deep_frames_the_first_and_the_last_are_kept(error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        _deep(10**6 if error is RecursionError else 100)
    found = text(caught.value)
    assert len(found) <= MAX_LENGTH
    assert "in test_of_deep_frames" in found
    assert found.splitlines()[-1].startswith(error.__name__)
    assert "frames left out]" in found


def test_a_chain_of_thousands_costs_what_a_short_one_does_and_keeps_its_end() -> None:
    short, long = _chain(50), _chain(20_000)
    began = time.thread_time()
    for _ in range(20):
        found = text(short)
    middle = time.thread_time()
    for _ in range(20):
        found = text(long)
    assert time.thread_time() - middle < 10 * (middle - began)
    assert found.startswith("[earlier exceptions left out]")
    assert found.endswith("ValueError: 19999")


def test_exceptions_that_cause_each_other_have_an_end() -> None:
    one, other = _raised(ValueError("one")), _raised(ValueError("other"))
    one.__cause__, other.__cause__ = other, one
    assert text(one).count("ValueError: ") == 2
    assert describe(one)["text"] == "one"


def test_a_huge_text_is_cut_before_it_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counted(given: str) -> str:
        seen.append(len(given))
        return masked_text(given)

    monkeypatch.setattr("strands_durable._records.exceptions.tracebacks.masked_text", counted)
    found = text(_raised(ValueError("eyJaaaaaaaa-" * 100_000)))
    assert len(found) <= MAX_LENGTH
    assert max(seen) <= MAX_LENGTH


def test_secrets_are_masked_also_in_the_text_of_a_cause() -> None:
    try:
        raise _raised(ValueError("password=hunter2hunter2")) from _raised(KeyError("AKIAABCDEFGHIJKLMNOP"))
    except ValueError as error:
        found = text(error)
    assert "hunter2" not in found.partition("ValueError: ")[2]
    assert "KeyError: '***'" in found


def test_an_exception_that_cannot_be_printed_is_recorded_and_restored() -> None:
    record = describe(_raised(BrokenError()))
    assert record["text"] == "(no text: __str__ of BrokenError raised RuntimeError)"
    assert record["traceback"].endswith(f"BrokenError: {record['text']}")
    assert type(revive(record)) in (BrokenError, RecordedError)


def test_the_frames_that_led_to_a_tool_are_left_out() -> None:
    @tool
    def fails(city: str) -> str:
        """Fail."""
        raise LookupError(city)

    async def result() -> Any:
        use: Any = {"toolUseId": "1", "name": "fails", "input": {"city": "Rome"}}
        return [event async for event in fails.stream(use, {})][-1].exception

    frames = [line for line in text(asyncio.run(result())).splitlines() if line.startswith("  File")]
    assert len(frames) == 1
    assert frames[0].endswith("in fails")


def test_where_all_frames_are_machinery_they_are_kept() -> None:
    @tool
    def takes_a_city(city: str) -> str:
        """Take a city."""
        return city

    async def result() -> Any:
        use: Any = {"toolUseId": "1", "name": "takes_a_city", "input": {}}
        return [event async for event in takes_a_city.stream(use, {})][-1].exception

    assert 'decorator.py", line' in text(asyncio.run(result()))
