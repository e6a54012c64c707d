"""Agents for what is special about AWS Lambda: long sleeps, large results, a throttled model, a limit of time."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.types.exceptions import ModelThrottledException

from strands_durable import Durability, ToolPolicy, current_step, durable, durable_agent
from strands_durable.testing import ScriptedModel, call


def note(folder: str, name: str) -> None:
    """Write to the ledger of a run what is done, by which process and in which attempt."""
    step = current_step()
    entry = {"name": name, "pid": os.getpid(), "attempt": None if step is None else step.attempt}
    with Path(folder, "ledger.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def ledger(folder: str | Path) -> list[dict[str, Any]]:
    """Return what was done, in order."""
    path = Path(folder, "ledger.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Model(ScriptedModel):
    """A scripted model that is throttled as long as a file holds a number above zero."""

    def __init__(self, folder: str, script: list[Any]) -> None:
        super().__init__(script)
        self._folder = folder

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        note(self._folder, "model")
        left = Path(self._folder, "throttled")
        if left.exists() and int(left.read_text()) > 0:
            left.write_text(str(int(left.read_text()) - 1))
            raise ModelThrottledException("slow down")
        if self.script[0] == "long-error":
            raise ValueError("x" + random.Random(1).randbytes(300_000).hex())
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


def _tools(folder: str) -> list[Any]:
    @tool
    async def nap(seconds: float) -> str:
        """Sleep, as a step of the engine."""
        note(folder, "nap")
        await durable.sleep(seconds)
        note(folder, "woke")
        return "rested"

    @tool
    async def book(city: str) -> str:
        """Book a hotel."""
        note(folder, f"book {city}")
        return f"booked {city}"

    @tool
    def large(size: int) -> str:
        """Return a text that cannot be compressed."""
        note(folder, "large")
        return random.Random(size).randbytes(size // 2).hex()

    @tool
    async def work(seconds: float) -> str:
        """Take time."""
        note(folder, "work")
        await asyncio.sleep(seconds)
        return "worked"

    @tool
    def block(seconds: float) -> str:
        """Take time in a thread, which cannot be stopped."""
        note(folder, "block")
        time.sleep(seconds)
        note(folder, "blocked")
        return "done"

    @tool(context=True)
    async def approve(what: str, tool_context: ToolContext) -> str:
        """Ask a person."""
        return f"{what}: {json.dumps(tool_context.interrupt(f'approve {what}', reason={'what': what}))}"

    @tool
    async def many(count: int) -> str:
        """Do many recorded things."""
        for number in range(count):
            await durable.step(f"n{number}", lambda: note(folder, "n"))
        return "many"

    return [nap, book, large, work, block, approve, many]


def _turn(turn: Any) -> Any:
    if isinstance(turn, list):
        return [_turn(each) for each in turn]
    return (
        call(turn["tool"], **{key: value for key, value in turn.items() if key != "tool"})
        if isinstance(turn, dict)
        else turn
    )


@durable_agent(name="lambda-agent")
def agent(folder: str, script: list[Any], in_doubt: Any = "retry", max_attempts: int = 6, timeout: Any = None) -> Agent:
    """An agent with all the tools."""
    slow = Path(folder, "slow")
    if slow.exists():
        time.sleep(float(slow.read_text()))
    policies = {name: ToolPolicy(in_doubt=in_doubt, timeout=timeout) for name in ("work", "block")}
    return Agent(
        model=Model(folder, [_turn(turn) for turn in script]),
        tools=_tools(folder),
        retry_strategy=ModelRetryStrategy(max_attempts=max_attempts, initial_delay=1, max_delay=2),
        plugins=[Durability("unused.db", tool_policies=policies)],
        callback_handler=None,
    )
