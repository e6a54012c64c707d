"""Texts that are made to stop the page: nested deeply, without a blank, or long to look through for secrets."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from strands import Agent, tool

from strands_durable import durable_agent
from strands_durable._records.live_text import LiveText
from strands_durable.testing import ScriptedModel, call
from strands_durable.ui import _pages
from strands_durable.ui import _wording as wording
from strands_durable.ui._content import blocks_of, conversation_of
from tests.ui.site import Site, asking_agent

NESTED = '{"a":[' * 450 + '{"password": "hunter2"}' + "]}" * 450
REASONS = ["[" * 1_000, '{"a":' * 1_000, NESTED, {"question": "[" * 1_000}, {"question": NESTED, "more": ["[" * 1_000]}]


@tool
def say(piece: str, count: int, times: int = 1) -> dict[str, Any]:
    """Say something often."""
    return {"status": "success", "content": [{"text": piece * count}] * times}


@durable_agent
def saying_agent(script: list[dict[str, Any]]) -> Agent:
    """An agent whose tool says what a test wants."""
    model = ScriptedModel([*(call("say", **each) for each in script), "Done."])
    return Agent(model=model, tools=[say], callback_handler=None)


@pytest.mark.parametrize("reason", REASONS, ids=["brackets", "braces", "nested", "inside", "several"])
def test_a_question_that_is_nested_deeply_is_shown_and_so_are_all_others(page: Site, reason: Any) -> None:
    page.started("deep-1", asking_agent, reason=reason)
    page.started("plain-1", asking_agent, reason="Shall we?")
    inbox = page.text("/inbox")
    assert "Shall we?" in inbox
    assert "hunter2" not in inbox
    for path in ("/", "/executions/deep-1", "/executions/deep-1/conversation", "/executions/deep-1/cancel"):
        assert "deep-1" in page.text(path)
    assert page.post("/executions/deep-1/answer", interrupt_id="x", text="[" * 1_000).status_code in (303, 400, 409)


def test_the_reason_of_a_question_has_a_limit_in_all_of_its_parts(page: Site) -> None:
    page.started(
        "large-1", asking_agent, reason={f"part {number}": "password eyJaaaaaaaa- " * 5_000 for number in range(20)}
    )
    assert len(page.get("/inbox").text) < 60_000
    assert "strands-durable show prints all of it" in page.text("/inbox")
    assert page.get("/executions/large-1").status_code == 200


def test_a_result_that_is_nested_deeply_is_shown(page: Site) -> None:
    page.started("deep-1", saying_agent, script=[{"piece": "[", "count": 1_000}, {"piece": NESTED, "count": 1}])
    for path in ("/executions/deep-1", "/executions/deep-1/conversation"):
        found = page.text(path)
        assert "hunter2" not in found
    assert "[[[[" in page.text("/executions/deep-1/conversation")


def test_other_requests_are_answered_while_a_large_page_is_made(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    page.started("large-1", saying_agent, script=[{"piece": "password eyJaaaaaaaa-", "count": 15_000}])
    begun, others_are_answered = threading.Event(), threading.Event()

    def slowly(*given: Any) -> Any:
        begun.set()
        assert others_are_answered.wait(30), "a page that takes long to make kept the others waiting"
        return conversation_of(*given)

    async def get(path: str) -> None:
        assert (await page.client.get(path)).status_code == 200

    async def together() -> None:
        large = asyncio.create_task(get("/executions/large-1/conversation"))
        await asyncio.to_thread(begun.wait, 30)
        await get("/inbox")
        await get("/")
        others_are_answered.set()
        await large

    monkeypatch.setattr(_pages, "conversation_of", slowly)
    page.run(together())


def test_a_page_has_a_limit_however_much_there_is_to_show(page: Site) -> None:
    script = [{"piece": "word ", "count": 30_000, "times": 20}] * 15
    page.started("large-1", saying_agent, script=script)
    assert len(page.get("/executions/large-1/conversation").text) < 3_000_000
    assert "strands-durable show prints all of it" in page.text("/executions/large-1/conversation")


def test_parts_of_a_message_beyond_what_is_shown_are_not_looked_at() -> None:
    blocks = blocks_of([{"text": "word " * 30_000}] * 50)
    assert sum(len(each.text) for each in blocks) < 2 * wording.MOST_CHARACTERS + 200
    assert "strands-durable show" in blocks[-1].text


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5_000,
        "\u0633" * 5_000,
        "\u00a0" * 5_000,
        "a\u0301" * 2_500,
        "<b>" * 2_000,
        "word " + "y" * 1_200 + "\n" + "z" * 499,
    ],
)
def test_a_browser_may_break_what_has_no_blank(text: str) -> None:
    html = str(wording.breakable(text))
    assert max(map(len, html.replace("<wbr>", "\n").split("\n"))) <= 500 * len("&lt;")
    assert html.replace("<wbr>", "").replace("&lt;", "<").replace("&gt;", ">") == text


def test_words_are_left_to_the_browser() -> None:
    assert wording.breakable("a <b> of words " * 1_000) == "a <b> of words " * 1_000


def test_twice_the_text_takes_twice_the_time_to_follow() -> None:
    def seconds(pieces: int) -> float:
        started, live = time.process_time(), LiveText()
        for _ in range(pieces):
            live.grown("model", 1, "password eyJaaaaaaaa-")
        return time.process_time() - started

    for pieces in (600, 10_000):
        assert min(seconds(2 * pieces) for _ in range(3)) < max(0.02, 2.5 * min(seconds(pieces) for _ in range(3)))


def test_live_text_of_one_paragraph_ends_and_that_of_the_next_step_is_shown() -> None:
    live = LiveText()
    shown = "".join(live.grown("model 1", 1, "word ") for _ in range(10_000))
    assert 5_000 < len(shown) < 20_000
    assert shown.endswith("The rest is shown when the step has ended.\n")
    assert live.grown("model 2", 1, "word and ") == "word and "
    assert json.dumps(shown).count("The rest is shown") == 1
