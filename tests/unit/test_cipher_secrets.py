"""A mistake in how keys are given shows no part of a key: not in errors and what caused them, not in what commands print."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strands_durable import Cipher, connect
from strands_durable._dispatch.examination import examined
from strands_durable.errors import CipherError

from ..commands import cli

pytest.importorskip("cryptography")
NEW, OLD = bytes(range(101, 133)), bytes(range(201, 233))
KEY, OTHER = (base64.b64encode(key).decode() for key in (NEW, OLD))
BARE, HALF = KEY.rstrip("="), len(KEY) // 2

KEYS = {
    "a key without an id": KEY,
    "a key without an id, unpadded": BARE,
    "two keys without ids": f"{KEY},{OTHER}",
    "no id before the equals sign": f"={KEY}",
    "a colon in place of the equals sign": f"2026:{KEY}",
    "a blank in place of the equals sign": f"2026 {KEY}",
    "key and id exchanged": f"{KEY}=2026",
    "unpadded key and id exchanged": f"{BARE}=2026",
    "not base64": f"2026=!{KEY}!",
    "in quotation marks": f'2026="{KEY}"',
    "url-safe base64": f"2026={base64.urlsafe_b64encode(NEW + OLD).decode()}",
    "hexadecimal": f"2026={NEW.hex()}",
    "hexadecimal, without an id": NEW.hex(),
    "too short": f"2026={KEY[:HALF]}",
    "too long": f"2026={base64.b64encode(NEW + OLD).decode()}",
    "empty": "2026=",
    "only separators": ", ,\n,",
    "twice the same id": f"2026={KEY},2026={OTHER}",
    "a line break inside of the key": f"2026={KEY[:HALF]}\n{KEY[HALF:]}",
    "a comma inside of the key": f"2026={KEY[:HALF]},{KEY[HALF:]}",
    "blanks inside of the key": f"2026={KEY[:HALF]} {KEY[HALF:]}",
    "blanks inside of an id that is a key": f"{KEY[:HALF]} {KEY[HALF:]}={OTHER}",
    "semicolons between": f"2026={KEY};2025={OTHER}",
    "blanks between": f"2026={KEY} 2025={OTHER}",
    "an equals sign between": f"{BARE}={OTHER}",
    "a key and a blank before an entry": f"{BARE} 2026={OTHER}",
    "an entry, then a key without an id": f"2026={KEY},{OTHER}",
    "a control character": f"2026\x1b={KEY}\x1b",
    "not ASCII": f"2026=é{KEY}",
    "the path of a file": "2026=/run/Zq8Wv3Xk",
    "only the path of a file": "/run/Zq8Wv3Xk",
    "a very long text": f"2026={KEY * 5000}",
}
OBJECTS = {
    "a key": KEY,
    "an unpadded key": BARE,
    "id and key": f"2026={KEY}",
    "id, colon and key": f"2026:{KEY}",
    "a name, colon and key": f"key:{BARE}",
    "key, colon and name": f"{BARE}:cipher",
    "half a key": KEY[:HALF],
    "a name, colon and half a key": f"json:{''.join(filter(str.isalnum, KEY[:HALF]))}",
    "the name of a module that is not there, colon and key": f"no_such_module_here:{BARE}",
    "a number": "json:codecs",
}
SECRETS = (KEY, OTHER, NEW.hex(), base64.urlsafe_b64encode(NEW + OLD).decode(), repr(NEW), "Zq8Wv3Xk")
_VARIABLES = ("STRANDS_DURABLE_CIPHER", "STRANDS_DURABLE_CIPHER_KEYS")
FORMS = [(_VARIABLES[1], form) for form in KEYS] + [(_VARIABLES[0], form) for form in OBJECTS]


def shown_of_a_key(text: str) -> set[str]:
    """Return the parts of four characters of a key that are in a text; times, ports and addresses have digits of their own."""
    text = re.sub(r"\b0x[0-9a-f]+", "", text)
    parts = {secret[at : at + 4] for secret in SECRETS for at in range(len(secret) - 3)}
    return {part for part in parts if part in text and not part.isdigit()}


def said_by(error: BaseException | None) -> str:
    """Return all that a program could print of an error and of those behind it."""
    said = "".join(traceback.format_exception(error)) if error is not None else ""
    while error is not None:
        said += f"{error!s}{error!r}{error.args!r}{vars(error)!r}"
        error = error.__cause__ or error.__context__
    return said


@pytest.fixture(params=FORMS, ids=" ".join)
def mistake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    variable, form = request.param
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, (KEYS if variable == _VARIABLES[1] else OBJECTS)[form])
    return str(variable)


def test_no_error_shows_a_part_of_a_key(mistake: str) -> None:
    with pytest.raises(CipherError) as raised:
        connect("memory://cipher")
    assert shown_of_a_key(said_by(raised.value)) == set()
    assert mistake in str(raised.value), "it does not say which setting is wrong"


@pytest.mark.parametrize("form", [form for form in KEYS if "without an id" in form or "without ids" in form])
def test_a_key_without_an_id_is_answered_with_the_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLES[1], KEYS[form])
    with pytest.raises(CipherError, match="not of the form ID=BASE64") as raised:
        connect("memory://cipher")
    assert "2026-11=BASE64" in str(raised.value)


def test_no_command_shows_a_part_of_a_key(mistake: str, caplog: pytest.LogCaptureFixture) -> None:
    Path("agents.py").write_text("")
    caplog.set_level(logging.DEBUG)
    for command in (["ls"], ["doctor"], ["doctor", "--json"], ["rekey"], ["ui", "--port", "0"]):
        said = cli(*command, "--backend", "runs.db")
        assert said.exit_code == 1, said.output
        assert shown_of_a_key(said.output + said_by(said.exception) + caplog.text) == set()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Cipher({KEY: "2026"}),
        lambda: Cipher({BARE: "2026"}),
        lambda: Cipher({NEW: "2026"}),  # type: ignore[dict-item]
        lambda: Cipher({"2026": KEY}, current=KEY),
        lambda: Cipher({"2026": KEY}, current=BARE),
        lambda: Cipher({"2026": KEY[:HALF]}),
        lambda: Cipher({"2026": [KEY]}),  # type: ignore[dict-item]
        lambda: Cipher({"2026": 10**15}),  # type: ignore[dict-item]
        lambda: Cipher({f"2026 {BARE}": OTHER}),
        lambda: Cipher({"2026": KEY, "2025": OTHER}),
        lambda: Cipher(KEY),  # type: ignore[arg-type]
        lambda: Cipher(NEW),  # type: ignore[arg-type]
        lambda: Cipher([("2026", KEY)]),  # type: ignore[arg-type]
    ],
)
def test_a_cipher_that_is_not_one_shows_no_part_of_a_key(build: Callable[[], Any]) -> None:
    with pytest.raises(CipherError) as raised:
        build()
    assert shown_of_a_key(said_by(raised.value)) == set()


def test_what_has_keys_does_not_show_them() -> None:
    cipher = Cipher({"2026": KEY, "2025": OLD}, current="2026")
    data_key = cipher.new_data_key("here")
    backend = connect("sqlite:///runs.db", cipher=cipher)
    assert shown_of_a_key("".join(map(repr, (cipher, data_key, data_key.key, backend, vars(backend))))) == set()


@pytest.mark.parametrize("given", [["rekey", KEY], ["rekey", f"--key={KEY}"], ["ls", "--limit", BARE], [KEY]])
def test_a_key_on_the_command_line_is_not_printed(given: list[str]) -> None:
    said = cli(*given)
    assert (said.exit_code, shown_of_a_key(said.output)) == (2, set()), said.output


def test_a_key_that_is_wrong_later_is_not_shown_by_what_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = connect("sqlite:///runs.db", cipher=Cipher({"2026": KEY}))
    Path("runs.db").write_bytes(b"")
    monkeypatch.setenv(_VARIABLES[1], KEY)
    assert shown_of_a_key("".join(map(repr, asyncio.run(examined(backend))))) == set()
