"""A time limit ends what is awaited, and nothing else: cancels and timeouts from elsewhere are passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from strands_durable._records.deadline import TimedOut, limited


def in_task(function: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(function(), 10)

    return asyncio.run(main())


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_what_comes_in_time_is_returned() -> None:
    async def main() -> Any:
        return await limited(asyncio.sleep(0, "here"), 10), await limited(asyncio.sleep(0, "there"), None)

    assert in_task(main) == ("here", "there")


def test_the_end_of_the_time_leaves_no_cancel_behind() -> None:
    async def main() -> int:
        with pytest.raises(TimedOut):
            await limited(for_ever(), 0.01)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert in_task(main) == 0


def test_a_timeout_of_what_is_awaited_is_its_own() -> None:
    async def late() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        in_task(lambda: limited(late(), 10))


def test_a_cancel_that_comes_together_with_the_end_of_the_time_is_passed_on() -> None:
    async def main() -> None:
        task = asyncio.create_task(limited(for_ever(), 0))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(task.cancel)  # right after the end of the time
        with pytest.raises(asyncio.CancelledError):
            await task

    in_task(main)


def test_a_cancel_that_comes_together_with_the_result_is_passed_on() -> None:
    async def main() -> None:
        answer = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(limited(answer, 10))
        await asyncio.sleep(0)
        answer.set_result("here")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    in_task(main)


def test_a_task_that_was_cancelled_and_continued_can_still_time_out() -> None:
    async def stubborn() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            with pytest.raises(TimedOut):
                await limited(for_ever(), 0.01)

    async def main() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        await task

    in_task(main)


def test_what_does_not_let_itself_be_cancelled_may_return() -> None:
    async def stubborn() -> str:
        try:
            await for_ever()
        except asyncio.CancelledError:
            return "here"
        raise AssertionError

    async def main() -> Any:
        found = await limited(stubborn(), 0.01)
        await asyncio.sleep(0)
        return found

    assert in_task(main) == "here"
