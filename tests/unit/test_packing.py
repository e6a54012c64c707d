"""How batches are kept in a key-value store: small, and readable for ever."""

from __future__ import annotations

import base64
import zlib
from json import dumps

from strands_durable._enginekit.key_value.packing import pack, unpack

STEP = {
    "id": 2,
    "call": 1,
    "key": "000001/000:call-0-0~0",
    "attempt": 1,
    "kind": "tool",
    "name": "book",
    "title": '{"city": "Orléans"}',
    "status": "done",
    "started_at": 1.5,
    "ended_at": 2.5,
    "result": '{"result":{"toolUseId":"call-0-0","status":"success","content":[{"text":"booked"}]}}',
    "number": 2,
}
BATCH = {"format": 5, "tables": {"steps": [STEP]}, "gone": {"replies": [{"call": 1}]}}
KEPT = (
    "MaO8WAfJ6BroGhAXzMCWYDZqIZ+cWVIJKej9i3IOr0wEpR6CBb6eKXJeNQJxiSvyYa4lo8gHOR1Uy4KCDbWsrwW22kGOBAZcUWpBTmYqSuSC1AMA"
)
"""The same batch, as version 0.1.0 has written it. Never change it: executions last longer than versions."""


def test_a_batch_comes_back_as_it_was() -> None:
    for batch in (BATCH, {}, {"text": "\ud800 half a character"}, {"text": "x" * 3_000_000}):
        assert unpack(pack(batch)) == batch


def test_a_batch_of_an_earlier_version_can_be_read() -> None:
    assert unpack(base64.b64decode(KEPT)) == BATCH


def test_a_small_batch_is_much_smaller_than_without_the_dictionary() -> None:
    assert len(pack(BATCH)) * 2 < len(zlib.compress(dumps(BATCH).encode(), 9))
