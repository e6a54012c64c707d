"""What shows a text of a megabyte takes time in proportion to it, whatever the text is made of: commands, and the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from strands import Agent, tool

from strands_durable import Durability, connect
from strands_durable.testing import ScriptedModel, call
from strands_durable.ui import durable_ui
from tests.commands import cli

MOST_GROWTH = 2.5
"""How much longer twice the text may take."""
_LEAST_SECONDS, _TRIES = 0.1, 5
_SIZES = {"half": 500_000, "whole": 1_000_000}
PIECES = ["\\", '\\"', "eyJaaaaaaaa-", '"password": "', "\x1b[", "x"]


@pytest.fixture(params=PIECES)
def recorded(request: pytest.FixtureRequest) -> None:
    """Record a run with half a megabyte of a piece in its prompt and in the result of its tool, and one with a megabyte."""
    for name, size in _SIZES.items():
        text = request.param * (size // len(request.param))

        @tool
        def say(text: str = text) -> str:
            """Say something."""
            return text

        plugin = Durability("runs.db", execution_id=name)
        agent = Agent(model=ScriptedModel([call("say"), "Done."]), tools=[say], plugins=[plugin], callback_handler=None)
        agent(text)


def assert_proportional(work: Callable[[str], object]) -> None:
    """Fail if the run with twice the text takes more than it may."""
    half, whole = list[float](), list[float]()
    for _ in range(_TRIES):
        half.append(_seconds(work, "half"))
        whole.append(_seconds(work, "whole"))
        if min(whole) < max(_LEAST_SECONDS, MOST_GROWTH * min(half)):
            return
    pytest.fail(f"a megabyte takes {min(whole):.2f} s, half of it {min(half):.2f} s")


def _seconds(work: Callable[[str], object], name: str) -> float:
    started = time.process_time()
    work(name)
    return time.process_time() - started


@pytest.mark.parametrize("command", [["show", "--full"], ["show", "--json"], ["watch"]], ids=" ".join)
def test_commands_take_twice_the_time_for_twice_the_text(recorded: None, command: list[str]) -> None:
    def shown(name: str) -> None:
        result = cli(command[0], name, *command[1:], "--store", "runs.db")
        assert result.exit_code == 0, result.output[-500:]
        assert "say" in result.output

    assert_proportional(shown)


def test_the_page_takes_no_longer_for_a_text_that_it_cuts(recorded: None) -> None:
    app = durable_ui(connect("sqlite:///runs.db?worker=off"), authorize=lambda request: "me")

    def shown(name: str) -> None:
        async def get() -> list[Any]:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://testserver") as client:
                return [await client.get(f"/executions/{name}{part}") for part in ("", "/conversation")]

        assert [found.status_code for found in asyncio.run(get())] == [200, 200]

    assert_proportional(shown)
