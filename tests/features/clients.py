"""A real client of a model: OpenAI's, over HTTP, against a server that counts what it is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from strands import Agent, ModelRetryStrategy
from strands.middleware import InvokeModelStage, ModelStopReason
from strands.models.openai import OpenAIModel
from strands.types.exceptions import ModelThrottledException

from strands_durable.testing import reach
from tests.crash.scenarios import book
from tests.features.harness import bill, durability, feature, seen
from tests.processes import served

SERVER = str(Path(__file__).with_name("openai_server.py"))


@contextmanager
def openai(folder: Path) -> Iterator[None]:
    """Run the server; it outlives the killed processes."""
    with served(SERVER, str(folder)) as (port, _):
        (folder / "port").write_text(str(port))
        yield


def model_of(kind: str, **client_args: Any) -> OpenAIModel:
    """Return Strands' own model; its requests are counted in this folder."""
    url = f"http://127.0.0.1:{Path('../port').read_text()}/{Path.cwd().name}/v1"
    return OpenAIModel(client_args={"base_url": url, "api_key": "x", "max_retries": 0, **client_args}, model_id=kind)


class RetriesBrokenStreams(ModelRetryStrategy):
    """Strands' strategy, with the one error more that a connection gives."""

    def is_retryable(self, exception: Exception) -> bool:
        return isinstance(exception, (ModelThrottledException, httpx.RemoteProtocolError))


async def with_points(context: Any, next_fn: Any) -> Any:
    """Stand around a model call inside the journal, where a process may die before, within and after a stream."""
    bill()
    reach("model:start")
    within = False
    async for event in next_fn(context):
        if isinstance(event, ModelStopReason):
            reach("model:end")
        elif not within and "contentBlockDelta" in event.get("event", {}):
            within = True
            reach("model:chunk")
        yield event


def booked(kind: str) -> Any:
    agent = Agent(
        model=model_of(kind),
        tools=[book],
        plugins=[durability()],
        retry_strategy=RetriesBrokenStreams(max_attempts=4, initial_delay=0, max_delay=0),
        callback_handler=None,
    )
    agent.add_middleware(InvokeModelStage, with_points)
    return seen(agent, agent("Book"))


def requests_in(folder: Path, event: str = "request") -> list[Any]:
    path = folder / "requests.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [entry for entry in entries if entry["event"] == event]


def at_most_one_request_more(whole: Path, place: Path, point: str) -> None:
    """An answer is paid for once, except the one that was running."""
    running = point.startswith(("model:", "model.done:before"))
    assert len(requests_in(place)) <= len(requests_in(whole)) + running, point
    assert len(requests_in(place, "answer")) <= len(requests_in(whole, "answer")) + running, point


@feature(14, "OpenAI over HTTP", around=openai, check=at_most_one_request_more)
def plain() -> Any:
    return booked("plain")


@feature(14, "OpenAI throttles, and Strands retries", around=openai, check=at_most_one_request_more, points="model")
def throttled() -> Any:
    return booked("throttled")


@feature(
    14, "OpenAI breaks a stream, and it is a new attempt", around=openai, check=at_most_one_request_more, points="model"
)
def breaking() -> Any:
    return booked("breaking")
