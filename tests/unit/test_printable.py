"""What is printed and logged of foreign text: a table of secrets, of control characters and of URLs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from strands_durable._records.printable import masked, masked_text, one_line, printable, url_for_people
from strands_durable._records.views import short

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

TEXTS = [
    ("key AKIAIOSFODNN7EXAMPLE of AWS", "AKIAIOSFODNN7EXAMPLE"),
    ("key ASIAIOSFODNN7EXAMPLE of a session", "ASIAIOSFODNN7EXAMPLE"),
    ("aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    (f"the token is {JWT}", "dozjgNryP4J3"),
    ("postgresql://app:hunter2@db.example/orders", "hunter2"),
    ("see https://user:p%40ss@host/path?x=1", "p%40ss"),
    ("redis://:hunter2@cache:6379/0", "hunter2"),
    ("Authorization: Bearer abc.def-123", "abc.def-123"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("curl -H 'X-Api-Key: 0123456789abcdef'", "0123456789abcdef"),
    ("https://api.example/v1?api_key=0123456789&page=2", "0123456789"),
    ("run --password hunter2 --verbose", "hunter2"),
    ("run --db-password=hunter2", "hunter2"),
    ("sk-abcdefghijklmnop1234", "abcdefghijklmnop"),
    ("sk-ant-api03-abcdefghijklmnop", "abcdefghijklmnop"),
    ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWDarjtT1zdp7dc"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnop"),
    ("xoxb-123456789012-abcdefghijkl", "123456789012"),
    ("AIzaSyD-abcdefghijklmnopqrstuvwxyz12345", "abcdefghijkl"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA"),
    ('{"password": "a\\"b", "city": "Paris"}', 'a\\"b'),
    ('{"auth_token": "cut off by the len', "cut off"),
    ('{"body": "{\\"password\\": \\"hunter2\\", \\"city\\": \\"Paris\\"}"}', "hunter2"),
    ('{"body": "{\\"password\\": \\"hunter2\\", \\"cut', "hunter2"),
    ('{"db": {"credentials": {"user": "app", "pw": "hunter2"}}}', "hunter2"),
    ('{"headers": [{"Authorization": "Token hunter2"}]}', "hunter2"),
    ('{"clientSecret": "hunter2"}', "hunter2"),
    ("bad input {'user': 'app', 'password': 'hunter2', 'city': 'Paris'}", "hunter2"),
    ("input_value={'db_password': \"it's hunter2\"}, input_type=dict", "hunter2"),
    ("[{'password': b'hunter2'}, {'token': 'cut off by the len", "cut off"),
    ("{b'authorization': b'Token hunter2'}", "hunter2"),
    ("connect(host='db', password='two words, hunter2')", "hunter2"),
    ('    client = Client(api_key="hunter2", retries=3)', "hunter2"),
    ("Config(password=SecretBytes(b'x'), token='hunter2')", "hunter2"),
    ("export DB_PASSWORD='hunter2'", "hunter2"),
    ('password: "hunter2"', "hunter2"),
    ('{"log": "connect(password=\\"two hunter2\\")", "city": "cut', "hunter2"),
    ('{"x": {"password": "hunter2"}, "x": 1}', "hunter2"),
]


@pytest.mark.parametrize(("text", "secret"), TEXTS, ids=[secret for _, secret in TEXTS])
def test_what_looks_like_a_secret_is_masked_in_a_text(text: str, secret: str) -> None:
    assert secret not in masked_text(text)
    assert secret not in short(text)
    assert "***" in masked_text(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"db": {"credentials": {"user": "app", "pw": "x"}}}, {"db": {"credentials": "***"}}),
        ({"list": [{"apiKey": "x"}, {"api-key": "x"}, {"X-Api-Key": "x"}]},
         {"list": [{"apiKey": "***"}, {"api-key": "***"}, {"X-Api-Key": "***"}]}),
        ({"body": json.dumps({"password": "x", "n": 1})}, {"body": '{"password": "***", "n": 1}'}),
        ({"max_tokens": 100, "totalTokens": 3, "tokenizer": "bpe", "secretary": "Ann", "passenger": "Bob"},
         {"max_tokens": 100, "totalTokens": 3, "tokenizer": "bpe", "secretary": "Ann", "passenger": "Bob"}),
        ({"password": None}, {"password": None}),
        ({"url": "s3://key:secret@bucket/x"}, {"url": "s3://key:***@bucket/x"}),
        (["plain text: nothing here", 7, True, None], ["plain text: nothing here", 7, True, None]),
        ({"token": {"deep": ["x"]}}, {"token": "***"}),
    ],
)  # fmt: skip
def test_secrets_in_values_are_masked_at_any_depth_and_the_rest_is_left(value: Any, expected: Any) -> None:
    assert masked(value) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Book a hotel in Paris at 10:30, for 2 people: Ann and Bob.",
        "see https://example.com/path?page=2#top and mailto:ann@example.com",
        '{"max_tokens": 100, "city": "Paris"}',
        "the task is to check the sketch",
        "The passenger tokens were counted: 12",
        "time 12:30@noon",
        "{'max_tokens': 100, 'city': 'Paris', 'password': ''}",
        '{"hint": "Enter the password:", "city": "Paris"}',
        '{"hint": "Enter the password: ", "city": "Paris"',
        "print('password:', end='')",
        '<input type="password" name="word">',
        "if name == 'token' or name in ('password', 'city'):",
    ],
)
def test_what_is_no_secret_is_left_as_it_is(text: str) -> None:
    assert masked_text(text) == text


def test_a_quoted_secret_leaves_what_follows_it() -> None:
    text = "bad {'password': 'it\\'s hunter2', 'city': 'Paris'} and (token=\"a b\", n=1)"
    assert masked_text(text) == "bad {'password': '***', 'city': 'Paris'} and (token=\"***\", n=1)"
    assert masked_text("password='cut off\nnext line") == "password='***\nnext line"


def test_control_characters_are_taken_out_and_words_and_emoji_stay_whole() -> None:
    assert one_line("\x1b[31mred\x07\r\nnext\u202e \x9b2J") == "[31mred next 2J"
    assert printable("one\r\ntwo\x1b]0;title\x07\n\tthree") == "one\ntwo ]0;title \n\tthree"
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert printable(family) == one_line(family) == family


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///runs.db?worker=off", "sqlite:///runs.db?worker=off"),
        ("temporal://host:7233?namespace=x", "temporal://host:7233?namespace=x"),
        ("temporal://host?payloads=s3://key:hush@bucket/x", "temporal://host?payloads=s3://key:***@bucket/x"),
        ("temporal://host?payloads=s3%3A%2F%2Fkey%3Ahush%40bucket%2Fx&worker=off",
         "temporal://host?payloads=s3://key:***@bucket/x&worker=off"),
        ("temporal://host?payloads=abfs%3A%2F%2Fbox%2Fx%3Faccount_key%3Dhush",
         "temporal://host?payloads=abfs://box/x?account_key=***"),
        ("other://user:hush@host/db?api_key=hush", "other://user:***@host/db?api_key=***"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_secrets(url: str, expected: str) -> None:
    assert url_for_people(url) == expected


@pytest.mark.parametrize("text", ["a." * 50_000, "aB3-" * 25_000, "x://" * 25_000, '"' * 100_000, "password "])
def test_a_large_text_is_looked_through_in_one_go(text: str) -> None:
    started = time.process_time()
    assert masked_text(f"{text} secret of nobody") == f"{text} secret of nobody"
    assert time.process_time() - started < 3, "the time grows with the square of the length"
