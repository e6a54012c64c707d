"""examples/agentcore: AgentCore's own local server, killed with SIGKILL inside a tool; the next call goes on."""

from __future__ import annotations

import signal
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.examples.processes import EXAMPLES, entries, free_port, python, served
from tests.waiting import until

SESSION = "session-of-a-customer-0123456789-0123456789"
HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
BOOKINGS = "data/bookings.txt"
TRIP = {"prompt": "Book a trip to Paris"}

Where = dict[str, str]
Served = AbstractContextManager[tuple[httpx.Client, "subprocess.Popen[bytes]"]]


@pytest.fixture(params=["sqlite", "temporal"])
def where(request: pytest.FixtureRequest) -> Where:
    """The backend, as a container gets it: by its environment."""
    if request.param == "sqlite":
        return {}
    server: TemporalServer = request.getfixturevalue("temporal")
    name = uuid.uuid4().hex
    return {"STRANDS_DURABLE_BACKEND": f"{server.url}?task_queue={name}&prefix={name}-&heartbeat_seconds=2"}


def container(**environment: str) -> Served:
    port = free_port()
    return served(python(EXAMPLES / "agentcore" / "app.py", PORT=str(port), **environment), port, "/ping")


def invoke(client: httpx.Client, payload: dict[str, Any], session: str = SESSION) -> Any:
    return post(client, payload, session).raise_for_status().json()


def post(client: httpx.Client, payload: dict[str, Any], session: str = SESSION) -> httpx.Response:
    return client.post("/invocations", json=payload, headers={HEADER: session})


def answers(told: Any) -> dict[str, Any]:
    assert told["status"] == "SUSPENDED"
    return {"answers": {question["interrupt_id"]: "yes" for question in told["questions"]}}


def test_a_killed_container_goes_on_at_the_next_call(where: Where) -> None:
    with container(BOOKING_SECONDS="600", **where) as (client, server), ThreadPoolExecutor(1) as caller:
        lost = caller.submit(invoke, client, TRIP)
        until(lambda: entries(BOOKINGS))
        until(lambda: client.get("/ping").json()["status"] == "HealthyBusy")
        server.kill()
        assert server.wait() == -signal.SIGKILL
        with pytest.raises(httpx.TransportError):
            lost.result()
    with container(**where) as (client, _):
        told = invoke(client, TRIP)  # the same call again, as a client does that got no response
        assert told["execution_id"] == f"{SESSION}-1"
        told = invoke(client, answers(told))
        assert (told["status"], told["answer"]) == ("COMPLETED", "Your trip to Paris is booked.")
        assert client.get("/ping").json()["status"] == "Healthy"
    assert entries(BOOKINGS) == ["flight to Paris", "hotel in Paris"]


def test_a_question_survives_the_container_and_so_does_the_conversation(where: Where) -> None:
    with container(**where) as (client, server):
        asked = invoke(client, TRIP)
        server.kill()
        server.wait()
    with container(**where) as (client, _):
        assert invoke(client, {}) == asked
        assert post(client, {"prompt": "And Rome?"}).status_code == 409
        done = invoke(client, answers(asked))
        assert invoke(client, {**TRIP, "turn": 1}) == done  # its response was lost: nothing is booked again
        told = invoke(client, {"prompt": "How is the weather there?"})
        assert (told["execution_id"], told["answer"]) == (f"{SESSION}-2", "In Paris it rains.")
    assert entries(BOOKINGS) == ["flight to Paris", "hotel in Paris"]


def test_sessions_know_nothing_of_each_other() -> None:
    with container() as (client, _):
        invoke(client, TRIP)
        assert post(client, {}, f"{SESSION}-1").status_code == 400
        assert invoke(client, TRIP, f"{SESSION}-1")["execution_id"] == f"{SESSION}-1-1"
        assert invoke(client, {})["execution_id"] == f"{SESSION}-1"
        assert client.post("/invocations", json=TRIP).status_code == 400
