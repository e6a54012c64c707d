"""The recorded form of values: JSON, with one escape for what JSON lacks.

A value is read back equal and of the same type at every level, or `encode` refuses it with the path inside the value. The
forms themselves are in `value_forms`.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import re
from typing import Any

from ..errors import NotSerializableError, UnreadableError
from .json_text import loads, writer
from .registered_types import by_class
from .value_forms import MAX_DEPTH, Unpackable, pack, unpack

_MARK = '"$"'
_REGISTERED_MARK = '{"$":"type"'
_REGISTERED = re.compile(r'\{"\$":"type","name":"((?:[^"\\]|\\.)*)"')
_PAIR = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
"""Where JSON would join two surrogates into one character."""
_TOGETHER = 256
_LONGEST_PATH = 200
_DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, NotImplementedError, RecursionError)


def encode(value: Any, what: str = "A value") -> str:
    """Return the recorded form of ``value``; ``what`` names it in the error."""
    text = _encoded(value, what)
    if by_class and _REGISTERED_MARK in text:
        _refuse_one_way(text, what)
    return text


def read_back(value: Any, what: str = "A value", *, keeps: bool = False) -> tuple[str, Any]:
    """Return the recorded form of ``value``, and what is read from it; with ``keeps``, ``value`` itself if it is the same.

    Most values are plain: what is read from their JSON is the same down to the types, and so they need no packing.
    """
    try:
        text = _dump_plain(value)
        found = loads(text)
        if _is_plain(text) and _is_same(found, value):
            return text, value if keeps else found
    except (ValueError, TypeError, RecursionError):
        pass
    text = encode(value, what)
    found = decode(text)
    return text, value if keeps and _is_same(found, value) else found


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two values are equal down to their types; False if that cannot be determined."""
    try:
        return marshal.dumps(one, 2) == marshal.dumps(other, 2)
    except ValueError:
        return False


def _is_plain(text: str) -> bool:
    """Return True if JSON has no escapes, no lone surrogates, and not the depth at which `pack` refuses a value."""
    if not text.isascii():
        text.encode()
    return _MARK not in text and text.count("{") + text.count("[") <= MAX_DEPTH


def decode(text: str) -> Any:
    """Return the value whose recorded form is ``text``.

    Raises:
        UnreadableError: It is not a recorded form, or one that this process cannot read.
    """
    try:
        value = loads(text)
        return unpack(value) if _MARK in text else value
    except _DAMAGE as error:
        raise _unreadable(error) from error


def decode_all(texts: list[str]) -> list[Any]:
    """Return the values whose recorded forms are ``texts``; many together are read several times as fast."""
    values: list[Any] = []
    for first in range(0, len(texts), _TOGETHER):
        some = texts[first : first + _TOGETHER]
        joined = ",".join(some)
        try:
            found = json.loads(f"[{joined}]")
        except (ValueError, RecursionError):
            found = []
        is_plain = len(found) == len(some) and not ("$" in joined and _MARK in joined)  # one character is found faster
        values += found if is_plain else map(decode, some)
    return values


def peek(text: str) -> Any:
    """Return a recorded value for display. Values of registered types become text: this process may not have the type.

    Raises:
        UnreadableError: It is not a recorded form.
    """
    if _REGISTERED_MARK not in text:
        return decode(text)
    try:
        return unpack(_described(json.loads(text)))
    except _DAMAGE as error:
        raise _unreadable(error) from error


def encodable(value: Any) -> bool:
    """Return True if ``value`` has a recorded form."""
    return refusal(value) is None


def refusal(value: Any, what: str = "A value") -> NotSerializableError | None:
    """Return why ``value`` has no recorded form; None if it has one."""
    try:
        encode(value, what)
    except NotSerializableError as error:
        return error
    return None


def digest(value: Any) -> str:
    """Return a fingerprint of ``value`` that does not depend on key order, hash seeds or the process."""
    try:
        packed = json.dumps(pack(value, 0), sort_keys=True, separators=(",", ":"))
    except (Unpackable, RecursionError, ValueError) as error:
        raise _refused(error, value, "A value") from None
    return hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()


def _encoded(value: Any, what: str) -> str:
    try:
        return _dump(pack(value, 0))
    except (Unpackable, RecursionError, ValueError) as error:
        raise _refused(error, value, what) from None


def _refused(error: Exception, value: Any, what: str) -> NotSerializableError:
    if isinstance(error, Unpackable):
        path = "value" + "".join(reversed(error.path))
        if len(path) > _LONGEST_PATH:
            path = f"{path[: _LONGEST_PATH // 2]} ... {path[-_LONGEST_PATH // 2 :]}"
        return NotSerializableError(what, path, error.type_name, error.detail)
    if isinstance(error, RecursionError):
        return NotSerializableError(what, "value", type(value).__name__, " that is nested too deeply")
    return NotSerializableError(what, "value", "int", f" ({error})")  # of more digits than Python writes


def _refuse_one_way(text: str, what: str) -> None:
    """Refuse values of registered types that do not survive a round trip through their own functions."""
    try:
        why = None if _encoded(decode(text), what) == text else "to_json(from_json(...)) is not what was recorded"
    except (UnreadableError, NotSerializableError) as error:
        why = str(error)
    if why is not None:
        names = " or ".join(sorted(set(_REGISTERED.findall(text))))
        raise NotSerializableError(what, "something in it", names, f" that is not restored unchanged ({why})")


def _unreadable(error: Exception) -> UnreadableError:
    if isinstance(error, json.JSONDecodeError):
        return UnreadableError(f"it is cut off or damaged ({error})")
    return UnreadableError(f"it has a malformed value ({type(error).__name__}: {error})")


# Packed values have no cycles, and nothing that JSON lacks.
_dump_text = writer(ensure_ascii=False)
_dump_ascii = writer()
_dump_plain = writer(ensure_ascii=False, allow_nan=False)


def _dump(packed: Any) -> str:
    text = _dump_text(packed)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate: JSON can carry it escaped, UTF-8 cannot
            return _dump_ascii(_with_halves_apart(packed))
    return text


def _with_halves_apart(packed: Any) -> Any:
    """Return a packed value in which no two surrogates are adjacent."""
    if type(packed) is str:
        parts = _PAIR.split(packed)
        return packed if len(parts) == 1 else {"$": "str", "v": parts}
    if type(packed) is list:
        return [_with_halves_apart(item) for item in packed]
    if type(packed) is not dict:
        return packed
    if any(_PAIR.search(key) for key in packed):
        return {"$": "dict", "v": [[_with_halves_apart(part) for part in pair] for pair in packed.items()]}
    return {key: _with_halves_apart(item) for key, item in packed.items()}


def _described(value: Any) -> Any:
    """Return parsed JSON with short text in place of values of registered types."""
    if type(value) is list:
        return [_described(item) for item in value]
    if type(value) is not dict:
        return value
    if value.get("$") == "type":
        return f"{value['name']}({json.dumps(_described(value['v']), ensure_ascii=False)})"
    return {key: _described(item) for key, item in value.items()}
