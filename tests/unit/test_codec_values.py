"""Whatever `encode` takes, `decode` returns: equal, and of the same type at every level."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel

from strands_durable import register_type
from strands_durable._records.codec import decode, encode, peek, read_back
from strands_durable.errors import NotSerializableError

COUNT = 25_000


class Name(str):
    """A text that is more than one."""


class Number(int):
    pass


class Real(float):
    pass


class Pairs(dict[Any, Any]):
    pass


class Row(list[Any]):
    pass


class FrozenDict(dict[Any, Any]):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class Moment(datetime):
    pass


class Zone(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, at: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, at: datetime | None) -> str:
        return "X"


class Plain(str, Enum):
    RED = "red"


Point = namedtuple("Point", "x y")


@register_type
class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@register_type
class Level(IntEnum):
    LOW = 1


@register_type
class Rights(Flag):
    READ = 1
    WRITE = 2


@register_type
class Place(NamedTuple):
    name: str
    at: Any


@register_type
@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: Any = "EUR"


@register_type
@dataclass
class Cart:
    items: list[Any] = field(default_factory=list)


@register_type
class Trip(BaseModel):
    city: str
    day: date
    tags: set[str]


register_type(Real, name="reals", to_json=float, from_json=Real)
ZONES = [
    None, UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=1), "CET"),
    ZoneInfo("Europe/Paris"), ZoneInfo("UTC"), Zone(),
]  # fmt: skip
TEXTS = [
    "",
    "$",
    "v",
    "text",
    "\x00\u2028",
    "\U0001f600",
    "\ud800",
    "\udc00x",
    "\ud83d\ude00",
    'a"b\\',
    '{"$":"type"',
    "ü",
]


class Values:
    """Random values: most of them storable, some not, some nearly."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._leaves = self._exact() + self._registered() + self._refused()
        self._nests = self._containers()

    def make(self, depth: int = 0) -> Any:
        if depth >= 4 or self._random.random() < 0.45:
            return self._leaf()
        return self._random.choice(self._nests)(depth + 1)

    def _leaf(self) -> Any:
        kinds = self._leaves if self._random.random() < 0.2 else self._leaves[:12]
        return self._random.choice(kinds)()

    def _pick(self, *found: Any) -> Callable[[], Any]:
        return lambda: self._random.choice(found)

    def _moment(self, kind: Any = datetime) -> Any:
        at = kind(2026, 10, 25, 2, self._random.randrange(60), fold=self._random.randrange(2))
        return at.replace(tzinfo=self._random.choice(ZONES))

    def _exact(self) -> list[Callable[[], Any]]:
        pick, chance = self._pick, self._random
        return [
            pick(None), pick(True, False), lambda: chance.randrange(-(10**6), 10**6), pick(0, 1, 2**70, -(2**200)),
            chance.random, pick(0.0, -0.0, 1e300, float("inf"), float("-inf"), float("nan")), pick(*TEXTS), pick(*TEXTS),
            pick(b"", b"\x00\xff"), pick(Decimal("1.10"), Decimal("NaN"), Decimal("-0")), pick(date(2026, 1, 2)),
            self._moment,
            lambda: bytearray(b"ab"), pick(1j, complex(-0.0, float("nan"))), pick(range(3), range(9, 1, -2)),
            lambda: self._moment().timetz(), pick(timedelta(days=-1, microseconds=7)), pick(*ZONES[1:]),
            lambda: UUID(int=chance.getrandbits(128)), pick(Path("a/b"), PurePosixPath("/x"), PureWindowsPath("c:\\x")),
        ]  # fmt: skip

    def _registered(self) -> list[Callable[[], Any]]:
        pick = self._pick
        return [
            pick(*Colour), pick(Level.LOW), pick(Rights.READ, Rights.READ | Rights.WRITE, Rights(0)), pick(Real(1.5)),
            lambda: Place("x", self._leaf()), lambda: Money(Decimal("1.10"), self._leaf()), lambda: Cart([self._leaf()]),
            lambda: Trip(city="Rome", day=date(2026, 1, 2), tags={"a", "b"}),
        ]  # fmt: skip

    def _refused(self) -> list[Callable[[], Any]]:
        made: list[Callable[[], Any]] = [
            lambda: Name("n"), lambda: Number(3), lambda: Pairs(a=1), lambda: Row([1]), lambda: FrozenDict(a=1),
            lambda: Moment(2026, 1, 2), lambda: Plain.RED, lambda: Point(1, 2), lambda: UserDict(a=1), object,
            lambda: MappingProxyType({"a": 1}), lambda: memoryview(b"x"), lambda: defaultdict(lambda: 1), lambda: print,
        ]  # fmt: skip
        return made

    def _containers(self) -> list[Callable[[int], Any]]:
        return [
            self._list, self._list, self._dict, self._dict, self._dict,
            lambda depth: tuple(self._list(depth)),
            lambda depth: set(self._hashables(depth)),
            lambda depth: frozenset(self._hashables(depth)),
            lambda depth: deque(self._list(depth), self._random.choice([None, 5])),
            lambda depth: Counter({key: self._leaf() for key in self._hashables(depth)}),
            lambda depth: OrderedDict((key, self.make(depth)) for key in self._hashables(depth)),
            lambda depth: defaultdict(
                self._random.choice([None, int, list, dict, Name]), dict.fromkeys(self._hashables(depth), 1)
            ),
            lambda depth: {key: self.make(depth) for key in self._hashables(depth)},
        ]  # fmt: skip

    def _list(self, depth: int) -> list[Any]:
        return [self.make(depth) for _ in range(self._random.randrange(4))]

    def _dict(self, depth: int) -> dict[str, Any]:
        return {self._random.choice(TEXTS): self.make(depth) for _ in range(self._random.randrange(4))}

    def _hashables(self, depth: int) -> list[Any]:
        return [found for found in self._list(depth) if is_hashable(found)]


def is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):
        return False
    return True


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values are the same, down to types, orders, signs and time zones."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        is_alike = is_same(getattr(one, "default_factory", None), getattr(other, "default_factory", None))
        return is_alike and is_same(list(one.items()), list(other.items()))
    if isinstance(one, deque):
        return one.maxlen == other.maxlen and is_same(list(one), list(other))
    if isinstance(one, (set, frozenset)):
        return len(one) == len(other) and is_same(sorted(one, key=encode), sorted(other, key=encode))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, (datetime, time)):
        return repr(one) == repr(other) and one.tzinfo == other.tzinfo and one.fold == other.fold
    if isinstance(one, (Money, Cart)):
        return is_same(vars(one), vars(other))
    return bool(repr(one) == repr(other))


def test_what_is_meant_to_be_taken_is_and_what_is_not_is_not() -> None:
    values = Values(seed=1)
    exact, registered, refused = values._exact(), values._registered(), values._refused()
    for make in exact[:11] + exact[12:15] + exact[16:17] + exact[18:] + registered[:4] + registered[7:]:
        encode(make())
    for made in refused:
        with pytest.raises(NotSerializableError):
            encode(made())


def test_whatever_is_taken_comes_back_equal_and_of_the_same_type() -> None:
    values, taken, named = Values(seed=14), 0, set()
    for number in range(COUNT):
        value = values.make()
        try:
            text = encode(value)
        except NotSerializableError as error:
            named.add(error.type_name)
            continue
        text.encode()
        assert is_same(decode(text), value), f"value {number}: {value!r} came back as {decode(text)!r}"
        assert encode(decode(text)) == text, number
        peek(text)
        taken += 1
    assert len(named) >= 14
    assert COUNT // 3 < taken < COUNT * 9 // 10  # both ways are tried


def test_reading_back_writes_what_encode_does_and_reads_what_decode_does() -> None:
    values, plain = Values(seed=15), 0
    for number in range(COUNT // 5):
        value = values.make()
        try:
            text = encode(value)
        except NotSerializableError:
            with pytest.raises(NotSerializableError):
                read_back(value)
            continue
        written, found = read_back(value)
        assert written == text, f"value {number}: {value!r}"
        assert is_same(found, value), f"value {number}: {value!r} came back as {found!r}"
        kept = read_back(value, keeps=True)[1]
        assert is_same(kept, value), number
        plain += kept is value
    assert plain > COUNT // 50, "plain values are kept"


@pytest.mark.parametrize(
    "value", [{"$": 1}, {"a": "\ud800"}, float("nan"), 10**4000, {1: 2}, (1,), {"a": [(1,)]}, -0.0]
)
def test_values_that_are_not_plain_are_read_back_as_they_are_recorded(value: Any) -> None:
    try:
        text = encode(value)
    except NotSerializableError:
        with pytest.raises(NotSerializableError):
            read_back(value)
        return
    assert read_back(value)[0] == text
    assert is_same(read_back(value)[1], decode(text))


def test_a_value_that_is_too_deep_or_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = "leaf"
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, deep):
        with pytest.raises(NotSerializableError):
            read_back(value)
