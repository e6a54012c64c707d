"""The time that masking takes grows with the length of a text, whatever the text is made of."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

import pytest

from strands_durable._cli.log_format import JsonLines
from strands_durable._records.printable import masked, masked_beginning, masked_text, printable
from strands_durable._records.views import short

MOST_GROWTH = 2.5
"""How much longer twice the text may take."""
_SIZES = (15_000, 120_000, 500_000)
_LEAST_SECONDS, _TRIES = 0.02, 5

# Each piece is repeated; each beginning leads to the search that a piece is hostile to.
PIECES = [
    "\\", "\\\\x", '\\"', '"', "\"'", "-", "--a", "a.", "aB3-", " ", "\n", "x://", "a://b:", "a://b:c",
    "a%3A%2F%2Fb%3A", "://:", "%3A", "%40", "eyJaaaaaaaa-", "eyJaaaaaaaa.", "-eyJ", "eyJaaaaaaaa.bbb-", "QUJD",
    "QUJD/+", "password", "password ", "password=", 'password"', "password\\", '"password":', '"password":"',
    '\\"password\\":\\"', '"password" ', '"password": {', '"token": [', "--password ", "--password", "api_key: '",
    "Bearer ", "Bearer", "Basic\t", "sk-", "sk-abc", "sk-aaaaaaaaaaaa ", "sk_live_", "ghp_", "github_pat_", "AKIA",
    "AKIAaaaaaaaaaaa-", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----END ", "-----BEGIN A PRIVATE KEY",
    "Server=x;Password=y;", "AccountKey=a==;", "connectionString", "[", "{", '{"a":', '[{"password":', "]",
    "password='", 'password="', "password='\\n", "password=b'x\\n", "'password': '", "'password': \"\\\\",
    "\\\\'password\\\\': \\\\'", "password='\\\\",
    "secret_access_key", "X-Api-Key", "authorization: ", "\u0130", "\x1b[", "\\u0022",
]  # fmt: skip
BEGINNINGS = [
    "password ",
    '"password": "',
    '\\\\\\"password\\\\\\": \\\\\\"',
    "-----BEGIN PRIVATE KEY-----",
    "eyJ",
    "a://b:",
]


def seconds(work: Callable[..., object], *given: object) -> float:
    started = time.process_time()
    work(*given)
    return time.process_time() - started


def assert_linear(work: Callable[[str], object], text: Callable[[int], str]) -> None:
    """Fail at the smallest size at which twice the text takes too long: what grows faster would take hours at the largest."""
    for size in _SIZES:
        one, two = text(size), text(2 * size)
        short_runs, long_runs = list[float](), list[float]()
        for _ in range(_TRIES):
            short_runs.append(seconds(work, one))
            long_runs.append(seconds(work, two))
            if min(long_runs) < max(_LEAST_SECONDS, MOST_GROWTH * min(short_runs)):
                break
        else:
            pytest.fail(f"{2 * size} characters take {min(long_runs):.3f} s, half of them {min(short_runs):.3f} s")


def repeated(piece: str, size: int, beginning: str) -> str:
    return beginning + piece * (size // len(piece))


@pytest.mark.parametrize("piece", PIECES)
def test_twice_the_text_takes_twice_the_time_to_mask(piece: str) -> None:
    assert_linear(masked_text, lambda size: repeated(piece, size, "password "))


@pytest.mark.long
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("piece", PIECES)
def test_twice_the_text_takes_twice_the_time_after_every_beginning(piece: str, beginning: str) -> None:
    assert_linear(masked_text, lambda size: repeated(piece, size, beginning))


@pytest.mark.parametrize("quotes", [3, 40])
def test_quotes_behind_many_backslashes_do_not_make_it_slow(quotes: int) -> None:
    def text(size: int) -> str:
        run = "\\" * (size // quotes)
        return f'"password": {run}"' + f"{run[1:]}x" * (quotes - 1)

    assert_linear(masked_text, text)


@pytest.mark.parametrize("work", [lambda text: masked({text: text}), printable, lambda text: masked([text] * 2)])
@pytest.mark.parametrize("piece", ["_", "aB", "A1-", "x_", "\\", "eyJaaaaaaaa-", "\r"])
def test_names_and_control_characters_are_looked_through_in_one_go(work: Callable[[str], object], piece: str) -> None:
    assert_linear(work, lambda size: repeated(piece, size, ""))


@pytest.mark.parametrize("piece", ["aB3", "a=<%", "a=<%s>, ", "%s=<", "key=<%s"])
def test_a_log_record_of_others_is_looked_through_in_one_go(piece: str) -> None:
    def logged(text: str) -> str:
        return JsonLines().format(logging.LogRecord("other", logging.INFO, "", 0, text, (), None))

    for ending in ("", " | text"):
        assert_linear(logged, lambda size: repeated(piece, size, "") + ending)  # noqa: B023


def test_the_short_form_of_a_large_value_costs_what_is_shown() -> None:
    def cost(size: int) -> float:
        value = {"rows": ["password eyJaaaaaaaa-"] * size, "text": "password eyJaaaaaaaa-" * size}
        return min(seconds(lambda: [short(value) for _ in range(20)]) for _ in range(3))

    cost(10)
    assert cost(40_000) < max(_LEAST_SECONDS, 3 * cost(1_000))


def nested(depth: int, inside: str = "1") -> str:
    return '{"a":[' * (depth // 2) + inside + "]}" * (depth // 2)


@pytest.mark.parametrize(
    "text", ["[" * 1_000, "[" * 200_000, nested(900), nested(5_000), '{"a":' * 3_000, json.dumps(nested(900))]
)
def test_text_that_is_nested_deeply_is_text(text: str) -> None:
    assert masked_text(text) == text
    assert masked({"text": text, "list": [text]}) == {"text": text, "list": [text]}
    assert short({"text": text})
    assert short(text)


@pytest.mark.parametrize("depth", [10, 400, 900, 3_000])
def test_secrets_are_masked_however_deeply_they_are_nested(depth: int) -> None:
    text = nested(depth, '{"password": "hunter2", "credentials": {"user": ["app"], "pw": "}hunter2"}, "city": "Paris"}')
    hidden = masked_text(text)
    assert "hunter2" not in hidden
    assert "Paris" in hidden


LONG = "".join(chr(ord("a") + (index * 7 + index // 26) % 26) for index in range(6_000))
"""A secret of which each piece of eight letters occurs once in the first 676."""
SECRETS = [
    f'{{"password": "{LONG}"',
    f'{{"body": "{{\\"password\\": \\"{LONG[:300]}\\\\\\"{LONG[300:]}\\"',
    f'{{"credentials": {{"user": ["app"], "pw": "}}{LONG}"}}',
    f"password={LONG}",
    f"run --db-password {LONG}",
    f"Authorization: Bearer {LONG}",
    f"postgresql://app:{LONG[:390]}@db/x",
    f"ghp_{LONG[:2_500]} and postgresql://app:{LONG[:390]}@db/x",
    f"eyJ{LONG}.{LONG[:300]}.{LONG[:300]}",
    f"eyJ{LONG[:3000]}.{LONG[3000:]}",
    f"sk-{LONG}",
    f"ghp_{LONG}",
    f"AKIA{LONG[:400]}",
    f"-----BEGIN PRIVATE KEY-----\n{LONG}\n-----END PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS, ids=[each[:24] for each in SECRETS])
@pytest.mark.parametrize("rest", [" and on it goes, word by word." * 200, "/and" * 3_000, "\n" * 6_000])
def test_no_part_of_a_secret_is_shown_wherever_the_text_is_cut(secret: str, rest: str) -> None:
    text = f"It says {secret}{rest}"
    pieces = {LONG[at : at + 8] for at in range(676)}
    for length in [*range(20, 100, 13), 250, *range(580, 980, 45), 1_000, 3_000, 4_000, 5_900, 6_100, 7_500]:
        for value in (text, {"text": text}, [text, text]):
            shown = json.dumps(masked_beginning(value, length)[0]) + short(value, length)
            assert not any(piece in shown for piece in pieces), (length, shown[:300])
            assert len(shown) < 20 * (length + 10)


def test_what_is_cut_is_shown_as_far_as_there_is_room() -> None:
    assert masked_beginning("word " * 1_000, 100) == (("word " * 20), True)
    assert masked_beginning("word " * 20, 100) == (("word " * 20), False)
    assert masked_beginning("x" * 5_000_000, 100) == ("x" * 100, True)
    assert masked_beginning({"a": 1, "b": [2.5, None, True]}, 100) == ({"a": 1, "b": [2.5, None, True]}, False)
    found, is_cut = masked_beginning({"first": "x" * 60, "second": "y" * 60, "third": 3}, 100)
    assert is_cut
    assert found["first"] == "x" * 60
    assert set(found["second"]) == {"y"}
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    assert masked_beginning(deep, 100_000)[1]
    assert len(short(deep)) <= 160


def test_an_escaped_quote_in_json_inside_a_string_does_not_end_a_secret() -> None:
    body = json.dumps({"password": 'a"hunter2\\', "city": "Paris"})
    for text in (body, json.dumps({"body": body}), json.dumps(json.dumps({"body": body}))):
        for shown in (masked_text(text), masked_text(f"got {text}"), masked_text(text[:-4])):
            assert "hunter2" not in shown
            assert "city" in shown
