"""Foreign text made safe to print and to log: without control characters, and without what looks like a secret.

Ids, names, questions and model text come from users, models and tools. Printed raw they can control a terminal, forge a log
line or expose a password. Secrets are recognized by their field name or by their own format (see `secret_texts`); one that has
neither is not found. Imports neither Strands nor a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from .secret_texts import LONGEST_LOOK, MASK, TOKEN_END, is_secret_name, without_secrets

T = TypeVar("T")
_CUT = "…"
_DEEPEST = 250
"""More than the depth at which a value is recorded."""
_SMALL = 4
"""How many characters a number takes, or what separates two items."""
_JOINERS = "\u200c\u200d"
"""Invisible, harmless, and part of words and emoji."""


def printable(text: str) -> str:
    """Return text of several lines without terminal control characters."""
    parts = re.split(r"(\r?\n|\t)", text)
    return "".join(part.replace("\r", "") if index % 2 else _plain(part) for index, part in enumerate(parts))


def one_line(text: str) -> str:
    """Return text as one line without terminal control characters."""
    return " ".join(_plain(text).split())


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in _JOINERS else " " for letter in text)


def masked(value: Any) -> Any:
    """Return JSON data in which everything that looks like a secret is masked, at any depth."""
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, dict):
        return {name: MASK if _is_secret(name) and item is not None else masked(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return value


def masked_text(text: str) -> str:
    """Return text in which everything that looks like a secret is masked."""
    if text[:1] in ("{", "["):
        try:
            data = json.loads(text, object_pairs_hook=_unique)
            hidden = masked(data)
            return text if hidden == data else json.dumps(hidden, ensure_ascii=False)
        except (ValueError, RecursionError):  # it is no JSON, or is nested so deeply that it is looked through as text
            pass
    return without_secrets(text)


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of a name that is given twice, only one value would be looked at."""
    found = dict(items)
    if len(found) < len(items):
        raise ValueError("a name is given twice")
    return found


def masked_beginning(value: Any, length: int) -> tuple[Any, bool]:
    """Return about the first ``length`` characters of JSON data, masked, and whether there is more, which is not looked at."""
    part = _Beginning(length)
    return part.of(value, 0), part.is_cut


class _Beginning:
    """The beginning of JSON data, as much as there is room for."""

    def __init__(self, room: int) -> None:
        self._room, self.is_cut = room, False

    def of(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            self.is_cut = True
            return _CUT
        if isinstance(value, str):
            return self._take(self._text(value))
        if isinstance(value, dict):
            return dict(self._item(name, item, depth) for name, item in self._fitting(value.items()))
        if isinstance(value, (list, tuple)):
            return [self.of(item, depth + 1) for item in self._fitting(value)]
        self._room -= _SMALL
        return value

    def _item(self, name: Any, item: Any, depth: int) -> tuple[Any, Any]:
        if _is_secret(name) and item is not None:
            return self._take(name), self._take(MASK)
        return self._take(name) if isinstance(name, str) else name, self.of(item, depth + 1)

    def _fitting(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items as long as there is room."""
        for item in items:
            if self._room <= 0:
                self.is_cut = True
                return
            self._room -= _SMALL
            yield item

    def _take(self, text: str) -> str:
        shown = text[: max(0, self._room)]
        self.is_cut = self.is_cut or len(shown) < len(text)
        self._room -= len(shown)
        return shown

    def _text(self, text: str) -> str:
        """Return the beginning of a text, masked as the whole is: a secret that is cut at its end is left out."""
        looked_at = text[: max(0, self._room) + 2 * LONGEST_LOOK]
        if len(looked_at) == len(text):
            return masked_text(text)
        self.is_cut = True
        hidden = without_secrets(looked_at + TOKEN_END)
        return hidden[:-LONGEST_LOOK] if hidden.endswith(TOKEN_END) else hidden


def _is_secret(name: Any) -> bool:
    return isinstance(name, str) and is_secret_name(name)


def url_for_people(url: str) -> str:
    """Return a URL without passwords and keys: its own, and those of a URL in its query."""
    location, mark, query = url.partition("?")
    parts = []
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        plain = unquote(value)
        shown = MASK if _is_secret(name) else url_for_people(plain) if "://" in plain else plain
        parts.append(part if shown == plain else f"{name}{equals}{quote(shown, safe=':/?&=*@+,-_.~')}")
    return masked_text(location) + mark + "&".join(parts)
