"""The official plugin's side, as its README has it: a workflow of one's own, a `TemporalAgent`, the tool as an activity.

``python -m bench.temporal.official worker ADDRESS QUEUE`` is its worker.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.strands_agents import StrandsPlugin, TemporalAgent
from temporalio.strands_agents.workflow import activity_as_tool
from temporalio.worker import Replayer, Worker

with workflow.unsafe.imports_passed_through():
    from strands.agent.conversation_manager import NullConversationManager

    from bench.temporal.script import SYSTEM_PROMPT, model, read

MODEL_SECONDS, TOOL_SECONDS = 60, 30
"""How long a step may take: the figures of its README."""
HEARTBEAT_SECONDS = 10
"""Its model calls heartbeat by themselves if they are told how often; its README leaves this out. Its tools do not."""


@activity.defn
async def read_page(page: int) -> str:
    """Read a page.

    Args:
        page: Its number.
    """
    return read(page)


@workflow.defn
class ReadPages:
    """One run of the agent."""

    @workflow.run
    async def run(self, prompt: str) -> str:
        """Run the agent."""
        agent = TemporalAgent(
            model="scripted",
            system_prompt=SYSTEM_PROMPT,
            tools=[activity_as_tool(read_page, start_to_close_timeout=timedelta(seconds=TOOL_SECONDS))],
            start_to_close_timeout=timedelta(seconds=MODEL_SECONDS),
            heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS),
            conversation_manager=NullConversationManager(),
            callback_handler=None,
        )
        return str(await agent.invoke_async(prompt))


def plugin() -> StrandsPlugin:
    """Return the plugin with the scripted model."""
    return StrandsPlugin(models={"scripted": model})


def replayer() -> Replayer:
    """Return what replays its histories."""
    from bench.temporal.official import ReadPages as Imported  # as the worker names it, not as __main__

    return Replayer(workflows=[Imported], plugins=[plugin()])


async def work(address: str, queue: str) -> None:
    """Be a worker until the process is ended."""
    from bench.temporal import official as own

    client = await Client.connect(address, plugins=[plugin()])
    await Worker(client, task_queue=queue, workflows=[own.ReadPages], activities=[own.read_page]).run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[2:]))
