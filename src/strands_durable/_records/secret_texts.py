"""Secrets in text, recognized by their own format or by the name before them.

The time grows with the length of the text alone, whatever the text is made of: no search begins again inside what another has
looked through in vain. So names are found by their last word, and quotes and brackets are paired by functions.
"""

from __future__ import annotations

import re

MASK = "***"
TOKEN_END = "aaaa.aaaa"
"""What a token may continue with where a text is cut: followed by this, the part before the cut is recognized."""
LONGEST_LOOK = 1_000
"""How far behind the beginning of a secret without blanks the search has to see to recognize it; a token apart."""

_WORDS = (
    r"pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|account[_-]?key"
    r"|secret[_-]?(?:access[_-]?)?key|signing[_-]?key|encryption[_-]?key|authorization|credentials?|cookie|session[_-]?id"
    r"|connection[_-]?string|signature"
)
_NAME = rf"(?=[acepst])(?:{_WORDS})(?:[_-]?(?:hash|value|b64|base64))?"
_LONGEST_NAME = 64
_SECRET_NAME = re.compile(rf"{_NAME}\Z", re.IGNORECASE)
_NAMED = re.compile(
    # "password": "..." in JSON, also in JSON inside a JSON string; password=..., as in a query; api_key: ...; password='...'
    # and 'password': '...' as Python writes them; --password ...
    rf"{_NAME}(?:(?P<json>\\*+\"\s*+:\s*+)|(?:\\*+')?\s{{0,3}}(?:=|:(?!//))\s{{0,3}}(?P<pair>)|\s(?P<option>))",
    re.IGNORECASE,
)
_NAMED_HINTS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "authorization",
    "credential",
    "cookie",
    "session",
    "string",
    "signature",
)
_BARE = re.compile(r"[^,}\]\s\"\\\[{]+")
_PAIRED = re.compile(r"(?![\s*\"'\\{\[]|(?:Bearer|Basic)\b)[^\s,;&\"'\\}\])<>]+", re.IGNORECASE)
_OPENING = re.compile(r"[bru]{0,2}(?P<quote>\\*+['\"])(?![\s,;:&}\])<>'\"]|\Z)", re.IGNORECASE)
"""Not a quote that ends a text, as in ``"Enter the password:", "city"``."""
_CLOSING = {quote: re.compile(rf"(?<!\\)\\*+{quote}|\n") for quote in "'\""}
_ARGUMENT = re.compile(r"(?![\s*-])\S+")
_OPTION_NAME = re.compile(r"[\w.-]*")
_QUOTE = re.compile(r'(?<!\\)\\*+"')
_QUOTE_OR_BRACKET = re.compile(rf"{_QUOTE.pattern}|[\[\]{{}}]")

_FORMATS = (
    (("-----begin ",), r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)"),
    (("bearer", "basic"), r"(?P<kept>\b(?:Bearer|Basic)\s++)[\w.~+/=-]+"),
    (
        ("://", "%3a%2f"),
        r"(?P<kept>(?<=[a-z0-9+.-])(?:://|%3A%2F%2F)[^\s/?#@:\"'%]{0,200}+(?::|%3A))(?:(?!%40)[^\s/@\"']){1,400}+(?=@|%40)",
    ),
    # a JSON Web Token, looked for once in each run of its letters
    (("eyj",), r"(?<![\w-])(?=[\w-]{11,}+\.[\w-]{4})(?P<kept>(?:[\w-]*?-)??)eyJ[\w-]{8,}+\.[\w-]++(?:\.[\w-]*+)?"),
    (("akia", "asia", "aida", "aroa", "abia", "acca"), r"\b(?:AKIA|ASIA|AIDA|AROA|ABIA|ACCA)[A-Z0-9]{12,}+\b"),
    (("sk-", "sk_", "rk_", "pk_"), r"\b(?:sk-|[srp]k_)(?:live[-_]|test[-_]|ant[-_]|proj[-_])?[\w-]{12,}+"),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "npm_", "pypi-", "aiza", "ya29."),
        r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|pypi-|AIza|ya29\.)[\w.-]{12,}+",
    ),
)  # fmt: skip
_FOUND_BY_FORMAT = [(hints, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for hints, pattern in _FORMATS]
"""Each with words of which a text has at least one if it has such a secret: most texts skip all of these searches."""


def is_secret_name(name: str) -> bool:
    """Return True if a field of this name holds a secret: password, apiKey, db_password; not max_tokens, not token_count."""
    return _SECRET_NAME.search(name.rstrip()[-_LONGEST_NAME:]) is not None


def without_secrets(text: str) -> str:
    """Return text in which everything that looks like a secret is masked."""
    plain = text.lower()
    for hints, pattern in _FOUND_BY_FORMAT:
        if any(hint in plain for hint in hints):
            text = pattern.sub(_masked_format, text)
    return _without_named(text) if any(hint in plain for hint in _NAMED_HINTS) else text


def _masked_format(match: re.Match[str]) -> str:
    return f"{match.groupdict().get('kept') or ''}{MASK}"


def _without_named(text: str) -> str:
    parts, shown = list[str](), 0
    match = _NAMED.search(text)
    while match is not None:
        value = _value(text, match)
        if value is not None:
            parts += (text[shown : value[0]], MASK)
            shown = value[1]
        match = _NAMED.search(text, match.end() if value is None else shown)
    return "".join([*parts, text[shown:]])


def _value(text: str, named: re.Match[str]) -> tuple[int, int] | None:
    """Return where the value of a name begins and ends; None if none follows."""
    at = named.end()
    if named["json"] is not None:
        end = _json_end(text, at, named["json"].index('"'))
        return None if end is None else (at, end)
    if named["pair"] is not None:
        if opening := _OPENING.match(text, at):
            return opening.end(), _quoted_end(text, opening.end(), opening["quote"])
        value = _PAIRED.match(text, at)
    else:
        value = _ARGUMENT.match(text, at) if _is_option(text, named.start()) else None
    return None if value is None else value.span()


def _quoted_end(text: str, at: int, quote: str) -> int:
    """Return where a text that was opened by a quote is closed, or its line is over."""
    found = _CLOSING[quote[-1]].finditer(text, at)
    return next((each.start() for each in found if each[0] == "\n" or _closes(each[0], len(quote) - 1)), len(text))


def _is_option(text: str, end: int) -> bool:
    """Return whether the name whose last word is at ``end`` begins with two dashes."""
    dashes = text.rfind("--", max(0, end - _LONGEST_NAME), end)
    return dashes >= 0 and _OPTION_NAME.fullmatch(text, dashes, end) is not None


def _json_end(text: str, at: int, level: int) -> int | None:
    """Return the end of a JSON value, or of the text if it is cut off; each quote around it has ``level`` backslashes."""
    if text.startswith(("[", "{"), at):
        return _brackets_end(text, at, level)
    if quote := _QUOTE.match(text, at):
        return _string_end(text, quote.end(), len(quote[0]) - 1)
    value = _BARE.match(text, at)
    return None if value is None else value.end()


def _string_end(text: str, at: int, level: int) -> int:
    return next((each.end() for each in _QUOTE.finditer(text, at) if _closes(each[0], level)), len(text))


def _brackets_end(text: str, at: int, level: int) -> int:
    depth, is_inside = 0, False
    for each in _QUOTE_OR_BRACKET.finditer(text, at):
        if each[0] in "[]{}":
            depth += 0 if is_inside else 1 if each[0] in "[{" else -1
            if not depth:
                return each.end()
        elif is_inside:
            is_inside = not _closes(each[0], level)
        else:
            is_inside = len(each[0]) - 1 == level
    return len(text)


def _closes(quote: str, level: int) -> bool:
    """Return whether a quote ends a string whose quotes have ``level`` backslashes, or is escaped inside it."""
    more = len(quote) - 1 - level
    return more >= 0 and more % (2 * level + 2) == 0
