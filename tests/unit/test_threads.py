"""A thread of a test that does not end fails the test and shows what holds it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import threads


@pytest.fixture
def end() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_thread_that_does_not_end_fails_with_the_stacks_of_threads_and_tasks(end: threading.Event) -> None:
    running = threading.Event()

    async def waits_for_ever() -> None:
        running.set()
        while not end.is_set():
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(waits_for_ever()), name="stuck", daemon=True)
    thread.start()
    running.wait()
    with pytest.raises(AssertionError) as caught:
        threads.join(thread, seconds=0.01)
    text = str(caught.value)
    assert "stuck did not end within 0.01 s" in text
    assert "Thread MainThread" in text
    assert "waits_for_ever" in text
    assert "Task pending" in text


def test_a_worker_is_stopped_and_its_thread_has_ended() -> None:
    ended = threading.Event()

    async def work(stop: asyncio.Event) -> None:
        await stop.wait()
        ended.set()

    with threads.worker(work):
        assert not ended.is_set()
    assert ended.is_set()


def test_no_test_joins_a_thread_without_a_limit() -> None:
    texts = {path.name: path.read_text() for path in Path(__file__).parents[1].rglob("*.py")}
    named = [(file, name) for file, text in texts.items() for name in re.findall(r"(\w+) = threading\.Thread\(", text)]
    assert len(named) > 10
    assert [(file, name) for file, name in named if re.search(rf"\b{name}\.join\(\)", texts[file])] == []
