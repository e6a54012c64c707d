"""A script that dispatches and ends while its own worker runs: the run stays intact, and the next script resumes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import asyncio, sys, time
from strands import Agent, tool
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel, call

@tool
def step(number: int) -> str:
    """A tool that runs in a thread of a pool."""
    time.sleep(0.02)
    return f"ok {number}"

@durable_agent
def worker() -> Agent:
    turns = [call("step", number=n) for n in range(40)]
    return Agent(model=ScriptedModel([*turns, "Done."]), tools=[step], callback_handler=None)

async def main() -> None:
    handle = await worker.on("sqlite:///runs.db").dispatch_async("Go.", execution_id="a")
    if sys.argv[1] == "leave":
        before = len(await handle.steps())
        async for event in handle.stream(after=before):
            if event["recorded"] and event["number"] > before + 3:
                return
    print(await handle.result())
    tools = [found for found in await handle.steps() if found.kind == "tool"]
    print(len(tools), {found.state for found in tools}, [found.error for found in tools if found.error])

asyncio.run(main())
'''


def test_c02_the_end_of_a_script_is_not_a_failure_of_the_running_step(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM)

    def run(how: str) -> str:
        done = subprocess.run(
            [sys.executable, "script.py", how], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    for _ in range(3):
        assert run("leave") == ""
    assert run("wait") == "Done.\n\n40 {'done'} []\n"
