"""The recorded form of values: JSON, with one escape for what JSON lacks.

An escape is an object whose first key is ``"$"``: ``{"$": "bytes", "v": "aGk="}``. A user's dict that has a key ``"$"``, or a
key that is not a string, is escaped as a list of pairs, so nothing a user stores can be mistaken for an escape.

Left out on purpose: pickle, classes, and any guess. What has no form here raises, with the path inside the value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from .errors import NotSerializableError

_MARK = '"$"'
_PLAIN = (str, int, bool, type(None))
_MAX_DEPTH = 200


def encode(value: Any, what: str = "A value") -> str:
    """Return the recorded form of ``value``; ``what`` names it in the error."""
    try:
        packed = _pack(value, 0)
    except _Unpackable as error:
        raise NotSerializableError(
            what, "value" + "".join(reversed(error.path)), error.type_name, error.detail
        ) from None
    try:
        return _dump(packed)
    except ValueError as error:  # an integer of more digits than Python writes
        raise NotSerializableError(what, "value", "int", f" ({error})") from None


def decode(text: str) -> Any:
    """Return the value whose recorded form is ``text``."""
    value = json.loads(text)
    return _unpack(value) if _MARK in text else value


def encodable(value: Any) -> bool:
    """Say whether ``value`` has a recorded form."""
    try:
        encode(value)
    except NotSerializableError:
        return False
    return True


def digest(value: Any) -> str:
    """Return a fingerprint of ``value`` that does not depend on key order, hash seeds or the process."""
    packed = json.dumps(_pack(value, 0), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()


class _Unpackable(Exception):
    def __init__(self, type_name: str, detail: str = "") -> None:
        super().__init__(type_name, detail)
        self.type_name, self.detail = type_name, detail
        self.path: list[str] = []


# Values are packed by then: there is no circle in them, and nothing that JSON lacks.
_dump_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_dump_ascii = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def _dump(packed: Any) -> str:
    text = _dump_text(packed)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: JSON can carry it escaped, UTF-8 cannot
        return _dump_ascii(packed)
    return text


def _pack(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > _MAX_DEPTH:
        raise _Unpackable(kind.__name__, f" nested deeper than {_MAX_DEPTH} levels, or in a circle")
    if kind is dict:
        return _pack_dict(value, depth)
    if kind is list:
        return _pack_items(value, depth)
    packer = _PACKERS.get(kind)
    if packer is not None:
        return packer(value, depth)
    return _pack_kin(value, depth)


def _pack_kin(value: Any, depth: int) -> Any:
    """Subclasses are recorded as what they extend: the first run already returns the plain form."""
    for base, plain in _KIN.items():
        if isinstance(value, base):
            return _pack(plain(value), depth)
    kind = type(value)
    raise _Unpackable(f"{kind.__module__}.{kind.__qualname__}")


def _pack_dict(value: dict[Any, Any], depth: int) -> Any:
    packed = {}
    for key, item in value.items():
        if type(key) is not str or key == "$":
            return {"$": "dict", "v": [_pack_pair(pair, depth + 1) for pair in value.items()]}
        if type(item) is str:
            packed[key] = item
            continue
        try:
            packed[key] = _pack(item, depth + 1)
        except _Unpackable as error:
            error.path.append(f"[{key!r}]")
            raise
    return packed


def _pack_pair(pair: tuple[Any, Any], depth: int) -> list[Any]:
    key, item = pair
    try:
        return [_pack(key, depth), _pack(item, depth)]
    except _Unpackable as error:
        error.path.append(f"[{key!r}]")
        raise


def _pack_items(value: Any, depth: int) -> list[Any]:
    packed = []
    for index, item in enumerate(value):
        try:
            packed.append(_pack(item, depth + 1))
        except _Unpackable as error:
            error.path.append(f"[{index}]")
            raise
    return packed


def _pack_set(value: Any, depth: int) -> dict[str, Any]:
    """Sort by recorded form, so that hash seeds do not show."""
    items = sorted(_pack_items(value, depth), key=lambda item: json.dumps(item, sort_keys=True))
    return {"$": type(value).__name__, "v": items}


def _pack_float(value: float, depth: int) -> Any:
    return value if math.isfinite(value) else {"$": "float", "v": repr(value)}


def _escape(name: str, form: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    return lambda value, depth: {"$": name, "v": form(value)}


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def _pack_tuple(value: Any, depth: int) -> Any:
    return {"$": "tuple", "v": _pack_items(value, depth)}


_KIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int,
    float: float,
    Mapping: dict,
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    bytes: bytes,
    datetime: lambda value: datetime.fromisoformat(value.isoformat()),
    date: lambda value: date.fromisoformat(value.isoformat()),
}
_PACKERS: dict[type, Callable[[Any, int], Any]] = {
    float: _pack_float,
    tuple: _pack_tuple,
    set: _pack_set,
    frozenset: _pack_set,
    bytes: _escape("bytes", _base64),
    bytearray: _escape("bytearray", _base64),
    datetime: lambda value, depth: {"$": "datetime", "v": value.isoformat(), "fold": value.fold},
    date: _escape("date", date.isoformat),
    time: lambda value, depth: {"$": "time", "v": value.isoformat(), "fold": value.fold},
    timedelta: _escape("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    Decimal: _escape("decimal", str),
    UUID: _escape("uuid", str),
}
_UNPACKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": lambda item: {_unpack(key): _unpack(value) for key, value in item["v"]},
    "float": lambda item: float(item["v"]),
    "tuple": lambda item: tuple(_unpack(value) for value in item["v"]),
    "set": lambda item: {_unpack(value) for value in item["v"]},
    "frozenset": lambda item: frozenset(_unpack(value) for value in item["v"]),
    "bytes": lambda item: base64.b64decode(item["v"]),
    "bytearray": lambda item: bytearray(base64.b64decode(item["v"])),
    "datetime": lambda item: datetime.fromisoformat(item["v"]).replace(fold=item["fold"]),
    "date": lambda item: date.fromisoformat(item["v"]),
    "time": lambda item: time.fromisoformat(item["v"]).replace(fold=item["fold"]),
    "timedelta": lambda item: timedelta(*item["v"]),
    "decimal": lambda item: Decimal(item["v"]),
    "uuid": lambda item: UUID(item["v"]),
}


def _unpack(value: Any) -> Any:
    if type(value) is list:
        return [_unpack(item) for item in value]
    if type(value) is dict:
        if "$" in value:
            return _UNPACKERS[value["$"]](value)
        return {key: _unpack(item) for key, item in value.items()}
    return value
