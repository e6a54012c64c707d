"""C13 with OpenAI's own client: who retries what, and what a broken stream leaves behind. Measured for docs/models.md."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from strands import Agent, ModelRetryStrategy
from strands.types.exceptions import EventLoopException, ModelThrottledException

from strands_durable import Durability
from strands_durable.testing import forget_process
from tests.crash.scenarios import book
from tests.features.clients import model_of, openai, requests_in
from tests.processes import Child, run
from tests.waiting import until


@pytest.fixture(autouse=True)
def server(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "run").mkdir()
    os.chdir(tmp_path / "run")
    with openai(tmp_path):
        yield


def agent_of(kind: str, attempts: int = 2, **client_args: Any) -> Agent:
    forget_process()
    return Agent(
        model=model_of(kind, **client_args),
        tools=[book],
        plugins=[Durability("runs.db", execution_id="trip")],
        retry_strategy=ModelRetryStrategy(max_attempts=attempts, initial_delay=0, max_delay=0),
        callback_handler=None,
    )


def steps() -> list[Any]:
    query = "SELECT attempt, status FROM steps WHERE kind = 'model' ORDER BY id"
    return sqlite3.connect("runs.db").execute(query).fetchall()


def test_c13_by_default_the_client_multiplies_what_strands_retries() -> None:
    with pytest.raises(ModelThrottledException):
        agent_of("refusing", max_retries=2)("Book")
    assert len(requests_in(Path.cwd())) == 2 * (1 + 2)


def test_c13_without_retries_of_the_client_each_request_is_an_attempt_on_record() -> None:
    with pytest.raises(ModelThrottledException):
        agent_of("refusing")("Book")
    assert len(requests_in(Path.cwd())) == 2
    assert steps() == [(1, "failed"), (2, "failed")]


def test_c13_what_the_client_retries_is_one_attempt() -> None:
    assert str(agent_of("throttled", attempts=1, max_retries=2)("Book")) == "Booked Paris.\n"
    assert [entry["turn"] for entry in requests_in(Path.cwd())] == [0, 0, 0, 1]
    assert steps() == [(1, "done"), (1, "done")]


def test_c11_a_broken_stream_leaves_no_half_answer_and_the_next_run_makes_a_new_attempt() -> None:
    agent = agent_of("breaking")
    with pytest.raises(EventLoopException) as caught:
        agent("Book")
    assert isinstance(caught.value.original_exception, httpx.RemoteProtocolError), "Strands does not retry it by itself"
    assert [message["role"] for message in agent.messages] == ["user", "assistant", "user"]
    again = agent_of("breaking")
    assert str(again("Book")) == "Booked Paris.\n"
    assert steps() == [(1, "done"), (1, "failed"), (2, "done")]
    assert [entry["turn"] for entry in requests_in(Path.cwd())] == [0, 1, 1]


def test_c11_a_stream_that_ends_early_in_good_order_is_an_answer_for_strands_and_so_for_the_journal() -> None:
    found = [agent_of("cutting")("Book").message["content"] for _ in range(2)]
    assert found == [[], []], "without its end, a block of text is no part of the message"
    assert [entry["turn"] for entry in requests_in(Path.cwd())] == [0, 1]


def _book(folder: str) -> str:
    os.chdir(folder)
    return str(agent_of("slow")("Book"))


def test_c11_a_process_killed_while_an_answer_comes_in_pays_for_that_answer_only() -> None:
    child = Child(_book, os.getcwd())
    until(lambda: requests_in(Path.cwd(), "half"))
    child.process.kill()
    assert child.join().exitcode == -signal.SIGKILL
    assert run(_book, os.getcwd()).checked() == "Booked Paris.\n"
    assert [entry["turn"] for entry in requests_in(Path.cwd())] == [0, 1, 1]
    assert [entry["turn"] for entry in requests_in(Path.cwd(), "answer")] == [0, 1]
