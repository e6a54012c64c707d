"""The recorded forms of single values: JSON values as they are, everything else as an escape.

An escape is an object whose first key is ``"$"``: ``{"$": "bytes", "v": "aGk="}``. A user's dict that has a key ``"$"``, or a
key that is not a string, is escaped as a list of pairs, so nothing a user stores can be mistaken for an escape.

Types are compared exactly: a subclass of a known type would be restored as another type, and has a form only if it is
registered (see `registered_types`). Left out on purpose: pickle, imports, and any guess.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from ..errors import UnreadableError
from . import registered_types

_PLAIN = frozenset({str, int, bool, type(None)})
_TEXT = frozenset({str})
MAX_DEPTH = 200


class Unpackable(Exception):
    """A value has no form; ``path`` leads to it, from the inside out."""

    def __init__(self, type_name: str, detail: str = "") -> None:
        super().__init__(type_name, detail)
        self.type_name, self.detail = type_name, detail
        self.path: list[str] = []


def is_built_in(kind: type) -> bool:
    """Return True if values of a class have a recorded form without being registered."""
    return kind in _PLAIN or kind in (dict, list) or kind in _PACKERS


def pack(value: Any, depth: int) -> Any:
    """Return ``value`` as JSON data."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > MAX_DEPTH:
        raise Unpackable(kind.__name__, f" nested deeper than {MAX_DEPTH} levels, or in a circle")
    if kind is dict:
        return _pack_dict(value, depth)
    if kind is list:
        return value if _PLAIN.issuperset(map(type, value)) else _pack_items(value, depth)
    packer = _PACKERS.get(kind)
    return _pack_registered(value, depth) if packer is None else packer(value, depth)


def _pack_registered(value: Any, depth: int) -> dict[str, Any]:
    kind = type(value)
    registered, name = registered_types.by_class.get(kind), f"{kind.__module__}.{kind.__qualname__}"
    if registered is None:
        raise Unpackable(name, _kinship(kind))
    try:
        form = registered.to_json(value)
    except Exception as error:
        raise Unpackable(name, f", whose to_json raised {type(error).__name__}: {error}") from error
    return {"$": "type", "name": registered.name, "v": pack(form, depth + 1)}


def _kinship(kind: type) -> str:
    """Return what a value of a subclass would be restored as if it were recorded as its base class."""
    for base in kind.__mro__[1:]:
        if base is not object and is_built_in(base):
            return f", which extends {base.__name__} and would come back as a plain {base.__name__}"
    return ""


def _pack_dict(value: dict[Any, Any], depth: int) -> Any:
    if "$" in value or not _TEXT.issuperset(map(type, value)):
        return {"$": "dict", "v": _pack_pairs(value, depth)}
    if _PLAIN.issuperset(map(type, value.values())):
        return value
    packed = {}
    for key, item in value.items():
        try:
            packed[key] = item if type(item) in _PLAIN else pack(item, depth + 1)
        except Unpackable as error:
            error.path.append(f"[{key!r}]")
            raise
    return packed


def _pack_pairs(value: dict[Any, Any], depth: int) -> list[list[Any]]:
    pairs = []
    for key, item in value.items():
        try:
            pairs.append([pack(key, depth + 1), pack(item, depth + 1)])
        except Unpackable as error:
            error.path.append(f"[{key!r}]")
            raise
    return pairs


def _pack_items(value: Iterable[Any], depth: int) -> list[Any]:
    packed = []
    for index, item in enumerate(value):
        try:
            packed.append(pack(item, depth + 1))
        except Unpackable as error:
            error.path.append(f"[{index}]")
            raise
    return packed


def _pack_set(value: Any, depth: int) -> dict[str, Any]:
    """Sort by recorded form: the order must not depend on the hash seed."""
    items = sorted(_pack_items(value, depth), key=lambda item: json.dumps(item, sort_keys=True))
    return {"$": type(value).__name__, "v": items}


def _pack_float(value: float, depth: int) -> Any:
    return value if math.isfinite(value) else {"$": "float", "v": repr(value)}


def _pack_default(value: defaultdict[Any, Any], depth: int) -> dict[str, Any]:
    factory: Any = value.default_factory
    if factory is not None and _FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
        raise Unpackable("collections.defaultdict", f" whose default_factory {factory!r} has no recorded form")
    return {"$": "defaultdict", "of": factory and factory.__name__, "v": _pack_pairs(value, depth)}


def _pack_moment(value: datetime | time, depth: int) -> dict[str, Any]:
    """A fixed offset is part of the text; any other zone is recorded beside it."""
    zone = value.tzinfo
    form = {"$": type(value).__name__, "v": value.isoformat(), "fold": value.fold}
    if zone is None or (type(zone) is timezone and len(_offset(zone)) == 1):
        return form
    try:
        return {**form, "v": value.replace(tzinfo=None).isoformat(), "zone": pack(zone, depth + 1)}
    except Unpackable as error:
        error.path.append(".tzinfo")
        raise


def _offset(zone: Any) -> tuple[Any, ...]:
    """Return the offset of a fixed zone and its name, if it has one."""
    arguments: tuple[Any, ...] = zone.__getinitargs__()
    return arguments


def _pack_zone(value: ZoneInfo, depth: int) -> dict[str, Any]:
    if value.key is None:
        raise Unpackable("zoneinfo.ZoneInfo", " without a key")
    return {"$": "zoneinfo", "v": value.key}


def _escape(name: str, form: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    return lambda value, depth: {"$": name, "v": form(value)}


def _items(name: str, form: Callable[[Any], Iterable[Any]] = iter) -> Callable[[Any, int], Any]:
    return lambda value, depth: {"$": name, "v": _pack_items(form(value), depth)}


def _pairs(name: str) -> Callable[[Any, int], Any]:
    return lambda value, depth: {"$": name, "v": _pack_pairs(value, depth)}


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


_PATHS = {kind.__name__: kind for kind in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)}
_BUILT_IN = (int, float, bool, str, bytes, list, tuple, dict, set, frozenset, deque, Counter, OrderedDict)
_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in _BUILT_IN}
_PACKERS: dict[type, Callable[[Any, int], Any]] = {
    float: _pack_float,
    tuple: _items("tuple"),
    set: _pack_set,
    frozenset: _pack_set,
    bytes: _escape("bytes", _base64),
    bytearray: _escape("bytearray", _base64),
    complex: _items("complex", lambda value: (value.real, value.imag)),
    range: _items("range", lambda value: (value.start, value.stop, value.step)),
    datetime: _pack_moment,
    date: _escape("date", date.isoformat),
    time: _pack_moment,
    timedelta: _escape("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    timezone: _items("timezone", _offset),
    ZoneInfo: _pack_zone,
    Decimal: _escape("decimal", str),
    UUID: _escape("uuid", str),
    Counter: _pairs("counter"),
    OrderedDict: _pairs("ordereddict"),
    defaultdict: _pack_default,
    deque: lambda value, depth: {"$": "deque", "maxlen": value.maxlen, "v": _pack_items(value, depth)},
    **{kind: _escape(name, str) for name, kind in _PATHS.items()},
}


def _unpack_pairs(item: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(unpack(key), unpack(value)) for key, value in item["v"]]


def _unpack_default(item: dict[str, Any]) -> Any:
    return defaultdict(None if item["of"] is None else _FACTORIES[item["of"]], _unpack_pairs(item))


def _unpack_moment(kind: Any) -> Callable[[dict[str, Any]], Any]:
    def moment(item: dict[str, Any]) -> Any:
        value = kind.fromisoformat(item["v"]).replace(fold=item["fold"])
        return value.replace(tzinfo=unpack(item["zone"])) if "zone" in item else value

    return moment


_UNPACKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "str": lambda item: "".join(item["v"]),
    "dict": lambda item: {unpack(key): unpack(value) for key, value in item["v"]},
    "float": lambda item: float(item["v"]),
    "tuple": lambda item: tuple(map(unpack, item["v"])),
    "set": lambda item: set(map(unpack, item["v"])),
    "frozenset": lambda item: frozenset(map(unpack, item["v"])),
    "bytes": lambda item: base64.b64decode(item["v"]),
    "bytearray": lambda item: bytearray(base64.b64decode(item["v"])),
    "complex": lambda item: complex(*map(unpack, item["v"])),
    "range": lambda item: range(*item["v"]),
    "datetime": _unpack_moment(datetime),
    "date": lambda item: date.fromisoformat(item["v"]),
    "time": _unpack_moment(time),
    "timedelta": lambda item: timedelta(*item["v"]),
    "timezone": lambda item: timezone(*map(unpack, item["v"])),
    "zoneinfo": lambda item: ZoneInfo(item["v"]),
    "decimal": lambda item: Decimal(item["v"]),
    "uuid": lambda item: UUID(item["v"]),
    "counter": lambda item: Counter(dict(_unpack_pairs(item))),
    "ordereddict": lambda item: OrderedDict(_unpack_pairs(item)),
    "defaultdict": _unpack_default,
    "deque": lambda item: deque(map(unpack, item["v"]), item["maxlen"]),
    "type": lambda item: registered_types.restore(item["name"], unpack(item["v"])),
    **{name: lambda item, kind=kind: kind(unpack(item["v"])) for name, kind in _PATHS.items()},  # type: ignore[misc]
}


def unpack(value: Any) -> Any:
    """Return the value that was packed."""
    if type(value) is list:
        return [unpack(item) for item in value]
    if type(value) is dict:
        if "$" in value:
            unpacker = _UNPACKERS.get(value["$"])
            if unpacker is None:
                raise UnreadableError(f"it has a value of type {value['$']!r}, which this version does not know")
            return unpacker(value)
        return {key: unpack(item) for key, item in value.items()}
    return value
