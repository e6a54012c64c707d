"""The whole agent as one activity of your own workflow: the short way. README.md lists what it loses.

Does not use strands-durable: a plain Strands agent and Temporal's own SDK.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from strands import Agent, tool

    from strands_durable.testing import ScriptedModel, call  # a model that needs no API key; replace it with yours

BOOKINGS = Path("bookings.txt")
HEARTBEAT_SECONDS = 3.0


@tool
def book_flight(city: str) -> str:
    """Book a flight to a city."""
    book(f"flight to {city}")
    return f"flight to {city} booked"


@tool
def book_hotel(city: str) -> str:
    """Book a hotel in a city."""
    book(f"hotel in {city}")
    return f"hotel in {city} booked"


def book(what: str) -> None:
    """Simulate a booking service, without an idempotency key: none would survive a second run of the agent."""
    with BOOKINGS.open("a") as ledger:
        print(what, file=ledger)
    if what.startswith("hotel"):
        time.sleep(float(os.environ.get("BOOKING_SECONDS", "0.1")))


@activity.defn
async def plan_trip(prompt: str) -> str:
    model = ScriptedModel([call("book_flight", city="Paris"), call("book_hotel", city="Paris"), "Have a good trip!"])
    agent = Agent(model=model, tools=[book_flight, book_hotel], callback_handler=None)
    async with heartbeats():
        return str(await agent.invoke_async(prompt)).strip()


@asynccontextmanager
async def heartbeats() -> AsyncIterator[None]:
    """Send heartbeats to Temporal; without them, a dead worker would be noticed only after the whole timeout."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS / 3)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


@workflow.defn
class PlanTrip:
    @workflow.run
    async def run(self, prompt: str) -> str:
        return await workflow.execute_activity(
            plan_trip,
            prompt,
            start_to_close_timeout=timedelta(minutes=30),  # for all model and tool calls together
            heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )


async def main() -> None:
    config = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    client = await Client.connect(**config)
    await Worker(client, task_queue="one-activity", workflows=[PlanTrip], activities=[plan_trip]).run()


if __name__ == "__main__":
    asyncio.run(main())
