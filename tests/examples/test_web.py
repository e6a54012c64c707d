"""examples/web: a real server, killed with SIGKILL inside a tool and started again; approvals over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import AbstractContextManager
from typing import Any

import httpx

from tests.examples.processes import EXAMPLES, entries, free_port, python, served
from tests.waiting import until

Served = AbstractContextManager[tuple[httpx.Client, "subprocess.Popen[bytes]"]]


def web(**environment: str) -> Served:
    port = free_port()
    arguments = ["-m", "uvicorn", "--app-dir", EXAMPLES / "web", "--port", str(port), "app:app"]
    return served(python(*arguments, **environment), port, "/openapi.json")


def show(client: httpx.Client, execution_id: str = "order-1") -> Any:
    return client.get(f"/runs/{execution_id}").json()


def order(client: httpx.Client, execution_id: str = "order-1", prompt: str = "A lamp") -> httpx.Response:
    return client.post("/runs", json={"id": execution_id, "prompt": prompt})


def approve(client: httpx.Client, execution_id: str = "order-1") -> httpx.Response:
    until(lambda: show(client, execution_id)["status"] == "SUSPENDED")
    [question] = show(client, execution_id)["questions"]
    assert question["reason"] == "Charge 40 euros?"
    return client.post(f"/runs/{execution_id}/answers", json={question["interrupt_id"]: "yes"})


def follow(client: httpx.Client, after: int | None = None) -> list[tuple[str, Any]]:
    """Return the events of a run, by what they are called."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    blocks = client.get("/runs/order-1/events", headers=headers).text.strip().split("\n\n")
    fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    assert all(("id" in found) == (found["event"] == "step") for found in fields)
    return [(found["event"], json.loads(found["data"])) for found in fields]


def test_a_killed_server_goes_on_when_it_is_started_again() -> None:
    with web(CHARGE_SECONDS="600") as (client, server):
        assert order(client).status_code == 202
        assert approve(client).status_code == 202
        until(lambda: "charge 40" in entries("ledger.txt"))
        assert show(client) == {"id": "order-1", "status": "RUNNING"}
        server.kill()
        assert server.wait() == -signal.SIGKILL
    with web(CHARGE_SECONDS="0") as (client, _):
        until(lambda: show(client)["status"] == "COMPLETED")
        assert show(client)["result"] == "The lamp is on its way."
        done = [(event["name"], event["attempt"]) for name, event in follow(client) if name == "step"]
    assert entries("ledger.txt") == ["reserve lamp", "charge 40"]
    assert done.count(("reserve", 1)) == 1
    assert [attempt for name, attempt in done if name == "charge"][-1] == 3  # asked, killed, done


def test_a_run_is_followed_from_where_a_reader_was() -> None:
    with web() as (client, _):
        order(client)
        approve(client)
        *_, (kind, end) = events = follow(client)
        assert (kind, end["status"]) == ("end", "COMPLETED")
        numbers = [event["number"] for name, event in events if name == "step"]
        assert numbers == list(range(1, len(numbers) + 1))
        again = [event["number"] for name, event in follow(client, after=2) if name == "step"]
        assert again == numbers[2:]


def test_a_request_may_be_repeated_and_what_cannot_be_is_refused() -> None:
    with web() as (client, _):
        assert client.get("/runs/order-1").status_code == 404
        assert order(client).status_code == order(client).status_code == 202
        assert order(client, prompt="Two lamps").status_code == 409
        assert order(client, "no/id").status_code == 422
        assert client.post("/runs", json={}).status_code == 422
        assert client.get("/runs/order-1/events", headers={"Last-Event-ID": "x"}).status_code == 422
        until(lambda: show(client)["status"] == "SUSPENDED")
        assert client.post("/runs/order-1/answers", json={"unknown": "yes"}).status_code == 409
        assert client.post("/runs/order-1/cancel").json() == {"id": "order-1", "status": "CANCELLED"}
        refused = order(client)
        assert (refused.status_code, refused.json()["error"]) == (409, "ExecutionCancelledError")
    assert entries("ledger.txt") == ["reserve lamp"]
