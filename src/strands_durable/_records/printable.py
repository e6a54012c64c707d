"""Foreign text made safe to print and to log: without control characters, and without what looks like a secret.

Ids, names, questions and model text come from users, models and tools. Printed raw they can control a terminal, forge a log
line or expose a password. Secrets are recognized by their field name or by their own format; one that has neither is not
found. Imports neither Strands nor a store.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote, unquote

MASK = "***"
_JOINERS = "\u200c\u200d"
"""Invisible, harmless, and part of words and emoji."""

_WORDS = (
    r"pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|account[_-]?key"
    r"|secret[_-]?(?:access[_-]?)?key|signing[_-]?key|encryption[_-]?key|authorization|credentials?|cookie|session[_-]?id"
    r"|connection[_-]?string|signature"
)
_FIELD = re.compile(
    rf"(?:.*[^a-z]|.*(?=[A-Z])|)(?:x[_-])?(?:{_WORDS})(?:[_-]?(?:hash|value|b64|base64))?$", re.I | re.S
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME = rf"[\w.-]{{0,40}}(?:{_WORDS})"
_SECRET = re.compile(
    # "password": "..." in JSON, also in JSON inside a JSON string, and also where the end is cut off
    rf"(?P<field>\\*\"{_NAME}\\*\"\s*:\s*)(?:(?P<quote>\\*\")(?:(?!(?P=quote))(?:[^\\]|\\.))*(?:(?P=quote))?|[^,}}\]\s\"\\\[{{]+)"
    # password=..., as in a query; api_key: ...; --password ...
    rf"|(?P<pair>(?<![\w\"])(?:--)?{_NAME}\s{{0,3}}(?:=|:(?!//))\s{{0,3}})(?![\s*\"'\\{{\[]|(?:Bearer|Basic)\b)[^\s,;&\"'\\}}\])<>]+"
    rf"|(?P<option>--{_NAME}\s)(?![\s*-])\S+"
    r"|(?P<scheme>\b(?:Bearer|Basic)\s+)[\w.~+/=-]+"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{0,20}(?:://|%3A%2F%2F)[^\s/?#@:\"'%]{0,200}(?::|%3A))(?:(?!%40)[^\s/@\"']){1,400}(?=@|%40)"
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"  # a JSON Web Token
    r"|\b(?:AKIA|ASIA|AIDA|AROA|ABIA|ACCA)[A-Z0-9]{12,}\b"
    r"|\b(?:sk-|[srp]k_)(?:live[-_]|test[-_]|ant[-_]|proj[-_])?[\w-]{12,}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|pypi-|AIza|ya29\.)[\w.-]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
    re.IGNORECASE | re.DOTALL,
)

_HINTS = (
    "pass", "pwd", "secret", "token", "key", "authorization", "credential", "cookie", "session", "connection", "signature",
    "bearer ", "basic ", "://", "%3a%2f", "eyj", "akia", "asia", "aida", "aroa", "abia", "acca", "sk-", "sk_", "rk_", "pk_",
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "npm_", "pypi-", "aiza", "ya29.",
)  # fmt: skip
"""Every secret that can be found contains one of these: text without any of them skips the slow search."""


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
    if text[:1] in "{[":
        try:
            data = json.loads(text)
        except ValueError:
            pass
        else:
            hidden = masked(data)
            return text if hidden == data else json.dumps(hidden, ensure_ascii=False)
    plain = text.lower()
    return _SECRET.sub(_mask, text) if any(hint in plain for hint in _HINTS) else text


def _mask(match: re.Match[str]) -> str:
    kept = next((match[name] for name in ("field", "pair", "option", "scheme", "url") if match[name]), "")
    return f"{kept}{MASK}"


def _is_secret(name: Any) -> bool:
    """Return True if a field of this name holds a secret: password, apiKey, db_password; not max_tokens, not token_count."""
    return isinstance(name, str) and _FIELD.fullmatch(_CAMEL.sub("_", name)) is not None


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
