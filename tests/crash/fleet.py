"""Workers on one file, and the agent they work on: a program for crash tests and for the bench."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from strands import Agent, tool

from strands_durable import connect, current_step, durable_agent
from strands_durable.testing import ScriptedModel, call

TOOLS = 4


@tool(context=True)
async def work(number: int, tool_context: Any) -> str:
    """Do a piece of work, and write to the ledger when it begins and when it is done."""
    step = current_step()
    assert step is not None
    entry = {"execution_id": step.execution_id, "number": number, "key": step.idempotency_key, "attempt": step.attempt}
    ledger = Path(os.environ["LEDGER"])
    _append(ledger, {**entry, "what": "begun"})
    await asyncio.sleep(random.uniform(0.3, 0.9))
    _append(ledger, {**entry, "what": "done"})
    tool_context.agent.state.set(f"work-{number}", "done")
    return f"work {number} is done"


def _append(ledger: Path, entry: dict[str, Any]) -> None:
    """Append one line, whole or not at all, at once: it is the outside world, and must not forget."""
    line = json.dumps({**entry, "pid": os.getpid(), "at": time.time()}) + "\n"
    descriptor = os.open(ledger, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@durable_agent
def labourer() -> Agent:
    """Works through its list, one piece after the other."""
    turns = [call("work", number=number) for number in range(TOOLS)]
    return Agent(model=ScriptedModel([*turns, "All is done."]), tools=[work], callback_handler=None)


@durable_agent
def hanging() -> Agent:
    """Cannot be built by a worker: something that it needs does not answer."""
    while "HANG_FACTORY" in os.environ:
        time.sleep(0.1)
    return labourer.build({})  # type: ignore[no-any-return]


def serve(url: str, ledger: str, concurrency: int) -> None:
    """Be a worker, with a process of its own for what may have killed one."""
    os.environ["LEDGER"] = ledger
    command = [sys.executable, "-m", "strands_durable", "worker", __file__, "--trial", "--quiet", "--backend", url]
    asyncio.run(connect(url).work(concurrency=concurrency, trial_command=command))
