"""The recorded form of values."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from http import HTTPStatus
from pathlib import Path, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from strands_durable._records.codec import decode, decode_all, digest, encodable, encode
from strands_durable.errors import NotSerializableError, UnreadableError

VALUES: list[Any] = [
    None, True, 0, -1, 2**80, 1.5, -0.0, "", "text", "\x00\u2028\U0001f600", "lone \ud800 surrogate",
    b"", b"\x00\xff", bytearray(b"abc"), (), (1, (2, "x")), [], [1, [2]], set(), {1, "a", (2, 3)}, frozenset({1}),
    {}, {"a": {"b": [1]}}, {1: "int", (1, 2): "tuple", None: "none", b"k": "bytes"},
    {"$": "bytes", "v": "aGk="}, {"$": "unknown"}, {"x": {"$": 1}}, [{"$": "dict", "v": []}],
    datetime(2026, 11, 15, 23, 22, 1, 123456), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2026, 10, 25, 2, 30, fold=1), date(2026, 1, 2), time(1, 2, 3), timedelta(days=-1, seconds=5, microseconds=7),
    Decimal("1.10"), Decimal("NaN"), UUID(int=7), math.inf, -math.inf,
    "halves \ud83d\ude00", {"\ud83d\ude00": 1}, complex(-0.0, math.inf), range(9, 1, -2), Path("a/b"), PureWindowsPath("c:\\x"),
    Counter({"a": 2, (1, 2): -1}), OrderedDict([("b", 1), (2, "a")]), defaultdict(None, a=1), defaultdict(int, {1: 2}),
    deque([1, (2,)]), deque([1, 2], maxlen=2), UTC, timezone(timedelta(hours=1), "CET"), ZoneInfo("Europe/Paris"),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")), time(1, tzinfo=timezone(timedelta(0), "GMT")),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    text = encode(value)
    text.encode()
    back = decode(text)
    assert back == value or repr(back) == repr(value)
    assert type(back) is type(value)
    if not isinstance(value, (set, frozenset)):  # whose order is nobody's promise
        assert repr(back) == repr(value)
    json.loads(text)


def test_nan_comes_back() -> None:
    assert math.isnan(decode(encode({"x": [math.nan]}))["x"][0])


def test_what_extends_a_plain_type_is_refused_by_name_and_not_flattened() -> None:
    class Colour(str, Enum):
        RED = "red"

    class Name(str):
        pass

    class Pairs(dict[str, int]):
        pass

    for value in (Colour.RED, Name("n"), Pairs(a=1), HTTPStatus.OK, namedtuple("Point", "x")(1)):
        with pytest.raises(NotSerializableError, match=r"would come back as a plain (str|dict|int|tuple)") as caught:
            encode({"seen": [value]})
        assert caught.value.path == "value['seen'][0]"
        assert caught.value.type_name.endswith(type(value).__qualname__)
        assert "register_type" in str(caught.value)


def test_a_zone_that_cannot_come_back_is_refused_with_its_place() -> None:
    class Zone(tzinfo):
        def utcoffset(self, at: datetime | None) -> timedelta:
            return timedelta(0)

    with pytest.raises(NotSerializableError, match=r"value\['at'\]\.tzinfo is a .*Zone"):
        encode({"at": datetime(2026, 1, 1, tzinfo=Zone())})


def test_a_default_that_cannot_come_back_is_refused() -> None:
    assert decode(encode(defaultdict(list, a=[1])))["new"] == []
    with pytest.raises(NotSerializableError, match=r"whose default_factory .*lambda.* has no recorded form"):
        encode(defaultdict(lambda: 7))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": [1, 2', "cut off or damaged"),
        ('{"$":"tensor","v":[1]}', "a value of type 'tensor', which this version does not know"),
        ('{"$":"set","v":[{"a":1}]}', "unhashable"),
        ('{"$":"decimal","v":"x"}', "InvalidOperation|ConversionSyntax"),
        ('{"$":"zoneinfo","v":"Moon/Sea"}', "No time zone found"),
        ('{"$":"bytes"}', "KeyError"),
        ("", "cut off or damaged"),
    ],
)
def test_what_is_no_recorded_form_is_an_error_of_ours(text: str, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        decode(text)


@pytest.mark.parametrize(
    ("value", "path", "type_name"),
    [
        (object(), "value", "builtins.object"),
        ({"a": [1, {"b": object()}]}, "value['a'][1]['b']", "builtins.object"),
        ((1, {2: object()}), "value[1][2]", "builtins.object"),
        ({"f": print}, "value['f']", "builtins.builtin_function_or_method"),
    ],
)
def test_what_has_no_form_is_named_with_its_path(value: Any, path: str, type_name: str) -> None:
    assert not encodable(value)
    with pytest.raises(NotSerializableError) as caught:
        encode(value, "The result of tool 'x'")
    assert f"The result of tool 'x' cannot be recorded: {path} is a {type_name}" in str(caught.value)


def test_a_circle_is_an_error_and_not_the_end_of_the_stack() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(NotSerializableError, match="in a circle"):
        encode(circle)


def test_a_digest_does_not_depend_on_order() -> None:
    assert digest({"a": 1, "b": {2, 3}}) == digest({"b": {3, 2}, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest([1, 2]) != digest((1, 2))


def test_a_set_has_one_form_whatever_the_hash_seed() -> None:
    assert encode({"b", "a", "c"}) == encode({"c", "b", "a"}) == '{"$":"set","v":["a","b","c"]}'


def test_values_that_are_read_together_are_those_that_are_read_one_by_one() -> None:
    texts = [encode(value) for value in VALUES] + [encode({"n": n}) for n in range(600)]
    assert list(map(repr, decode_all(texts))) == [repr(decode(text)) for text in texts]
    assert decode_all([]) == []


@pytest.mark.parametrize("damaged", ["1,2", "", "[1", "1]"])
def test_a_damaged_value_among_those_that_are_read_together_is_an_error(damaged: str) -> None:
    with pytest.raises(UnreadableError):
        decode_all(["1", damaged, "3"])
