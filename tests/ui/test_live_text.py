"""Text that arrives in pieces."""

from __future__ import annotations

import pytest

from strands_durable._records.live_text import LiveText

KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----"


def shown(text: str, size: int) -> str:
    live = LiveText()
    return "".join(live.grown("a", 1, text[start : start + size]) for start in range(0, len(text), size))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Use password=hunter2hunter2 there. ", "hunter2"),
        ("Use api_key: abc123def456 there. ", "abc123"),
        ('It is {"password": "two words and more"} there. ', "words"),
        ('{"token": "abcdefgh1234"} there. ', "abcdefgh"),
        ("Authorization: Bearer abcdefghijkl there. ", "abcdefgh"),
        ("Open postgres://me:hunter2@db/x there. ", "hunter2"),
        ("It is sk-abcdefghijklmnop there. ", "abcdef"),
        (f"The key:\n{KEY}\n\nthere. ", "MIIEvQ"),
        (f"The key:\n{KEY}\n\nthere. ", "kqhkiG"),
    ],
)
def test_a_secret_in_pieces_is_masked(text: str, secret: str, size: int) -> None:
    found = shown(text, size)
    assert secret not in found
    assert "***" in found
    assert found.endswith("there. ")


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nhunter2\nhunter2\n-----END RSA PRIVATE KEY-----\n\nthere. ",
        'It is {"credentials": {"user": "app",\n\n"pw": "hunter2"}}\n\nthere. ',
        '"password": "one\n\nhunter2"\n\nthere. ',
        "Authorization: Bearer\n\nhunter2\n\nthere. ",
    ],
)
def test_a_secret_does_not_end_with_its_paragraph(text: str, size: int) -> None:
    found = shown(text, size)
    assert "hunter2" not in found
    assert found.endswith("there. ")


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("text", ["one two\n\nthree four ", "日本語のテキスト", "[1, 2] and {a} \n\n\n b "])
def test_other_text_arrives_as_it_was_written(text: str, size: int) -> None:
    assert shown(text, size) == text


def test_another_attempt_begins_anew() -> None:
    live = LiveText()
    assert live.grown("a", 1, "one two") == "one "
    assert live.grown("a", 2, "one two ") == "one two "


def test_the_last_word_is_shown_when_nothing_more_comes() -> None:
    live = LiveText()
    assert [live.grown("a", 1, "my password=hun"), live.grown("a", 1, "ter2"), live.rest()] == [
        "my ",
        "",
        "password=***",
    ]
    assert live.rest() == ""


def test_a_word_without_an_end_is_shown_at_last() -> None:
    assert shown("x" * 500, 10)
