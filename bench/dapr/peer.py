"""The peer: diagrid's runner for Strands agents, as its documentation shows it. Runs in a virtualenv of its own.

``python -m bench.dapr.peer PORT [CYCLES]`` is a worker beside the sidecar at PORT; with CYCLES, it also starts the run.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from diagrid.agent.strands import DaprWorkflowAgentRunner
from strands import Agent, tool
from strands.models import Model

from bench.dapr.script import LAST, begin, cycles_in, prompt_for, text

RUN = "run-1"


@tool
def read_page(page: int) -> str:
    """Read a page.

    Args:
        page: Its number.
    """
    begin("tool", page)
    return text("tool", page)


class Scripted(Model):
    """Answers as the model of the other side does."""

    def update_config(self, **model_config: Any) -> None:
        """Take no settings."""

    def get_config(self) -> Any:
        """Return no settings."""
        return {"model_id": "scripted"}

    async def structured_output(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Refuse: this bench does not ask for it."""
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Ask for the next page, or end."""
        page = sum(message["role"] == "assistant" for message in messages)
        begin("model", page)
        is_last = page == cycles_in(messages[0]["content"][0]["text"])
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": LAST if is_last else text("model", page)}}}
        yield {"contentBlockStop": {}}
        if not is_last:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": f"page-{page}", "name": "read_page"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"page": page})}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if is_last else "tool_use"}}


async def main(port: str, cycles: int = 0) -> None:
    """Be a worker until the process is ended."""
    agent = Agent(model=Scripted(), tools=[read_page], callback_handler=None)
    runner = DaprWorkflowAgentRunner(agent, name="reader", host="127.0.0.1", port=port, max_iterations=100_000)
    runner.start()
    print("ready", flush=True)
    if cycles:
        async for event in runner.run_async(prompt_for(cycles), "bench", workflow_id=RUN):
            print(json.dumps(event, default=str)[:500], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
