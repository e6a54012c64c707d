"""The recorded form of values."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, defaultdict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from strands_durable._codec import decode, digest, encodable, encode
from strands_durable.errors import NotSerializableError

VALUES: list[Any] = [
    None, True, 0, -1, 2**80, 1.5, -0.0, "", "text", "\x00\u2028\U0001f600", "lone \ud800 surrogate",
    b"", b"\x00\xff", bytearray(b"abc"), (), (1, (2, "x")), [], [1, [2]], set(), {1, "a", (2, 3)}, frozenset({1}),
    {}, {"a": {"b": [1]}}, {1: "int", (1, 2): "tuple", None: "none", b"k": "bytes"},
    {"$": "bytes", "v": "aGk="}, {"$": "unknown"}, {"x": {"$": 1}}, [{"$": "dict", "v": []}],
    datetime(2026, 11, 15, 23, 22, 1, 123456), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2026, 10, 25, 2, 30, fold=1), date(2026, 1, 2), time(1, 2, 3), timedelta(days=-1, seconds=5, microseconds=7),
    Decimal("1.10"), Decimal("NaN"), UUID(int=7), math.inf, -math.inf,
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


def test_what_extends_a_plain_type_is_recorded_as_that_type() -> None:
    class Colour(str, Enum):
        RED = "red"

    class Name(str):
        pass

    value = {"colour": Colour.RED, "name": Name("n"), "ordered": OrderedDict(a=1), "default": defaultdict(int, b=2)}
    assert decode(encode(value)) == {"colour": "red", "name": "n", "ordered": {"a": 1}, "default": {"b": 2}}


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
