"""C37: a hook that hangs delays no other hook, no new notification, and no worker that stops."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from strands_durable import Notification, Webhook, connect
from strands_durable._dispatch.notifications import hooks
from tests.contract.test_c37_hooks_that_misbehave import URL, dispatch, query, reporting
from tests.receiver import SECRET, receiving, silent
from tests.waiting import until

MANY = 20
"""More than any limit of calls at a time."""


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """What hooks of a test wait for; set at its end."""
    found = threading.Event()
    yield found
    found.set()


def test_c37_a_receiver_that_never_answers_delays_no_other_hook_and_no_stop() -> None:
    with silent() as first, receiving() as second:
        backend = connect(URL)
        backend.notify(webhooks=[Webhook(first.url, SECRET, timeout_seconds=25), Webhook(second.url, SECRET)])
        backend.start()
        try:
            for number in range(MANY):
                dispatch(f"trip-{number}")
            until(lambda: len(second.bodies) == MANY or first.has_lost)
        finally:
            asyncio.run(backend.close())
        assert not first.has_lost, (
            "its first request was given up before the others were delivered, or the worker had stopped"
        )
        assert len({body["execution_id"] for body in second.bodies}) == MANY
        assert query("SELECT count(*) FROM notices") == [(MANY,)], "what has not taken them gets them again"


def test_c37_retries_that_hang_delay_no_new_notification(go: threading.Event) -> None:
    calls: Counter[str] = Counter()

    def hook(notification: Notification) -> None:
        calls[notification.execution_id] += 1
        if notification.execution_id == "new":
            return
        if calls[notification.execution_id] == 1:
            raise OSError("not up yet")
        go.wait(60)

    with reporting(hook):
        for number in range(MANY):
            dispatch(f"old-{number}")
        until(lambda: query("SELECT count(*) >= 8 FROM notices WHERE tries > 1") == [(1,)])
        dispatch("new")
        until(lambda: calls["new"], seconds=20)
        assert max(calls.values()) > 1
        assert not go.is_set()


def test_c37_a_function_that_never_returns_does_not_take_a_thread_for_each_try(
    go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_HOOK_SECONDS", 0.1)
    most, inside, lock = 0, 0, threading.Lock()

    def hook(notification: Notification) -> None:
        nonlocal most, inside
        with lock:
            inside += 1
            most = max(most, inside)
        go.wait(60)
        with lock:
            inside -= 1

    with reporting(hook):
        for number in range(MANY):
            dispatch(f"trip-{number}")
        until(lambda: query("SELECT count(*) FROM notices WHERE tries > 1") >= [(MANY,)])
        until(lambda: query("SELECT count(*) > 0 FROM notices WHERE error LIKE '%have not returned%'") == [(1,)])
        assert 1 < most <= 8
