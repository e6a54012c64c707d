"""C37: whatever a hook, a receiver or a damaged row does, the worker works on and other notifications are delivered."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_durable import Durability, Notification, Webhook, connect
from strands_durable._dispatch.notifications import hooks
from strands_durable.testing import ScriptedModel, forget_process
from tests import reported
from tests.receiver import SECRET
from tests.waiting import until

URL = "sqlite:///runs.db"
REPORT = Notification(notification_id="1", event="failed", execution_id="trip", agent=None, at=0.0)


def dispatch(execution_id: str) -> None:
    asyncio.run(reported.planner.on(f"{URL}?worker=off").dispatch_async("Go", execution_id=execution_id))


def query(sql: str) -> list[Any]:
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        return connection.execute(sql).fetchall()


@contextmanager
def reporting(hook: Callable[[Notification], Any]) -> Iterator[None]:
    backend = connect(URL)
    try:
        backend.notify(on_completed=hook)
        backend.start()
        yield
    finally:
        asyncio.run(backend.close())


class Asynchronous:
    """A hook with an async ``__call__``."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, notification: Notification) -> None:
        self.seen.append(notification.execution_id)


def test_c37_a_hook_that_is_async_in_another_way_than_a_function_is_awaited() -> None:
    first, second = Asynchronous(), Asynchronous()
    with reporting(first), reporting(lambda notification: second(notification)):
        dispatch("trip")
        until(lambda: first.seen and second.seen)
    assert (first.seen, second.seen) == (["trip"], ["trip"])


def exits(notification: Notification) -> None:
    sys.exit(3)


async def exits_async(notification: Notification) -> None:
    sys.exit(3)


async def is_cancelled(notification: Notification) -> None:
    raise asyncio.CancelledError


def stops(notification: Notification) -> None:
    raise StopIteration


@pytest.mark.parametrize("hook", [exits, exits_async, is_cancelled, stops])
def test_c37_a_hook_that_exits_is_put_off_as_any_that_fails_and_the_worker_works_on(hook: Any) -> None:
    with reporting(hook):
        dispatch("trip")
        until(lambda: query("SELECT tries FROM notices WHERE error IS NOT NULL AND claimed_by IS NULL") != [])
        dispatch("next")
        until(lambda: connect(f"{URL}?worker=off").sync.list(search="next")[0].status.value == "COMPLETED")
        assert query("SELECT max(tries) FROM notices") < [(5,)], "it is called again after a wait, not at once"


def test_c37_a_damaged_notification_or_execution_keeps_no_other_from_being_delivered() -> None:
    hook = Asynchronous()
    with reporting(hook):
        dispatch("first")
        until(lambda: hook.seen == ["first"])
    for name in ("damaged", "unreadable", "whole"):
        plugin = Durability("runs.db", execution_id=name)
        Agent(model=ScriptedModel(["Hi."]), plugins=[plugin], callback_handler=None)("Go")
    forget_process()
    rows = "(SELECT id FROM executions WHERE execution_id = '{}')"
    query(f"UPDATE notices SET at = at - 60 WHERE execution = {rows.format('damaged')}")
    query(f"UPDATE calls SET scope = 'other' WHERE execution = {rows.format('unreadable')}")
    with reporting(hook):
        until(lambda: hook.seen == ["first", "whole"])
        until(lambda: query("SELECT count(*) FROM notices WHERE error IS NOT NULL") == [(1,)])
    assert "damaged" in query("SELECT error FROM notices WHERE error IS NOT NULL")[0][0]


def test_c37_no_run_fails_because_of_what_is_recorded_about_watches() -> None:
    plugin = Durability("runs.db", execution_id="first")
    Agent(model=ScriptedModel(["Hi."]), plugins=[plugin], callback_handler=None)("Go")
    forget_process()
    query("INSERT INTO watches (status, until, sum) VALUES ('COMPLETED', 'for ever', 0)")
    plugin = Durability("runs.db", execution_id="second")
    result: Any = Agent(model=ScriptedModel(["Hi."]), plugins=[plugin], callback_handler=None)("Go")
    assert result.stop_reason == "end_turn"


def test_c37_what_happened_while_no_worker_ran_is_tried_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "GIVE_UP_SECONDS", 0.0)
    calls: list[float] = []

    def fails_once(notification: Notification) -> None:
        calls.append(time.time())
        if len(calls) == 1:
            raise OSError("not up yet")

    with reporting(fails_once):
        dispatch("trip")
        until(lambda: len(calls) == 2)
        until(lambda: query("SELECT count(*) FROM notices") == [(0,)])


# Webhooks


@pytest.mark.parametrize(
    "url",
    [
        "https://user:s3cret@example.com/x",
        "https://example.com/a b/s3cret",
        "https://example.com:port/s3cret",
        "https://example.com:99999/s3cret",
        "https://example.com/s3cret\n",
        "https://bücher.example/s3cret",
    ],
)
def test_c37_a_url_that_no_request_can_be_sent_to_is_refused_at_the_start_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="webhook") as refused:
        Webhook(url, SECRET)
    assert "s3cret" not in str(refused.value)


def test_c37_events_may_be_any_iterable() -> None:
    assert Webhook("https://example.com", SECRET, (each for each in ["failed"])).events == ("failed",)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reports suspended, failed, completed"):
        Webhook("https://example.com", SECRET, ())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed"),
        (b"hello\r\n\r\n", "did not answer as an HTTP server does"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "it answered 301"),
        (None, "timed out"),
    ],
)
def test_c37_a_receiver_that_answers_anything_else_than_success_has_not_taken_it(
    answer: bytes | None, why: str
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        done = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with closing(connection):
                request = b""
                while not request.endswith(
                    b"}"
                ):  # headers and body come apart; what is not read would reset the connection
                    request += connection.recv(65536)
                if answer is None:
                    done.wait()
                else:
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        webhook = Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/s3cret", SECRET, timeout_seconds=0.5)
        with pytest.raises(OSError, match=why) as failed:
            webhook.send(REPORT)
        done.set()
    assert "s3cret" not in str(failed.value)


def test_c37_the_file_of_a_store_that_vanishes_ends_no_worker() -> None:
    hook = Asynchronous()
    with reporting(hook):
        dispatch("trip")
        until(lambda: hook.seen)
        Path("runs.db").unlink()
    assert hook.seen == ["trip"]
