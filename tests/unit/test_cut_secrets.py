"""What is cut before it is recorded or logged shows no part of a secret that the cut goes through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from strands_durable._calls.tool_steps import title_of
from strands_durable._dispatch.notifications.hooks import Hook, called
from strands_durable._records.exceptions.tracebacks import traceback_of
from strands_durable._records.logs import safe_logger
from strands_durable._records.notifications import Notification
from strands_durable._records.outcomes import ToolOutcome
from strands_durable._records.views import short

URL = "postgresql://app:hunter2hunter2hunter2@db/orders"
TOKEN = "eyJodW50ZXIyIjoiSFMyNTYifQ.eyJodW50ZXIyIjoiMTIzNDU2Nzg5MCJ9.hunter2hunter2"
PIECES = ("hunter2", "eyJodW", "ZXIy")
logger = safe_logger("strands_durable.tests.cut")


def traced(text: str) -> str:
    try:
        raise ValueError(text)
    except ValueError as error:
        error.add_note(text)
        return traceback_of(error) or ""


def logged(text: str) -> str:
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, "error=<%s> | failed", (text,), None)
    assert logger.filter(record)
    return record.getMessage()


def title(text: str) -> str:
    return short(title_of({"url": text}))


def error_result(text: str) -> str:
    error = ToolOutcome(result={"status": "error", "content": [{"text": text}]}).error
    return short((error or {})["text"])


def notified(text: str) -> str:
    async def fails(notification: Notification) -> None:
        raise OSError(text)

    told = Notification(notification_id="n", event="failed", execution_id="e", agent="a", at=0.0)
    return (asyncio.run(called(Hook("page", frozenset(["failed"]), fails), told, is_new=True)) or "")[:300]


@pytest.mark.parametrize("secret", [URL, TOKEN], ids=["url", "token"])
@pytest.mark.parametrize(
    ("recorded", "length"),
    [(traced, 1_500), (logged, 4_000), (title, 160), (error_result, 160), (notified, 300)],
)
def test_no_part_of_a_secret_is_kept_where_a_text_is_cut(
    recorded: Callable[[str], str], length: int, secret: str
) -> None:
    for before in range(length - 100, length + 2):
        shown = recorded(f"{'x' * (before - 1)} {secret} and more")
        assert not any(piece in shown for piece in PIECES), (before, shown[-200:])


def test_what_is_cut_and_has_no_secret_is_kept_as_it_is() -> None:
    assert "x" * 1_500 in traced("x" * 5_000)
    assert "x" * 3_990 in logged("x" * 5_000)
    assert title_of({"text": "x" * 500}) == '{"text": "' + "x" * 149 + "…"
    assert error_result("word " * 100) == ("word " * 32).strip()
    assert notified("word " * 100) == ("word " * 60)
