"""Findings of many executions as one: by their reasons, with a few of their ids."""

from __future__ import annotations

import pytest

from strands_durable._records.findings import by_reason, few


def test_an_id_in_its_own_reason_makes_no_other_reason() -> None:
    found = [(f"run-{number}", f"accept it: resume run-{number} --now") for number in range(12)]
    assert by_reason(found) == {"accept it: resume ID --now": [name for name, _ in found]}
    assert by_reason(found[:1]) == {"accept it: resume run-0 --now": ["run-0"]}


def test_ids_that_are_words_or_parts_of_each_other_lose_none() -> None:
    damaged = [("a", "a row is damaged"), ("b", "a row is damaged"), ("row", "a row is damaged")]
    assert by_reason(damaged) == {"a row is damaged": ["a", "b", "row"]}
    nested = [("run", "resume run or run-1"), ("run-1", "resume run or run-1")]
    assert sorted(name for names in by_reason(nested).values() for name in names) == ["run", "run-1"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2, 3"), (5, "0, 1, 2 and 2 more"), (9, "0, 1, 2 and 6 more")],
)
def test_a_few_ids_are_named(count: int, text: str) -> None:
    assert few([str(number) for number in range(count)]) == text
