"""Agents that tests dispatch to SQLite, and workers for them in processes of their own; all of them live in one folder."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.hooks import BeforeInvocationEvent
from strands.multiagent import GraphBuilder
from strands.multiagent.graph import Graph
from strands.tools.mcp import MCPClient

from strands_durable import Durability, ToolPolicy, connect, durable, durable_agent, errors
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing import Answer, ScriptedModel, call
from tests import script as scripts
from tests.processes import Child
from tests.script import CountingModel, note
from tests.waiting import until

MCP_SERVER = str(Path(__file__).with_name("features") / "mcp_server.py")
OFF = "sqlite:///runs.db?worker=off"


@tool
def die(city: str) -> str:
    """Kill the process that runs this, unless the file ``fixed`` exists."""
    note("die", city=city)
    if not Path("fixed").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@tool
def leave() -> str:
    """Ask for the end of the process."""
    note("leave")
    sys.exit(3)


@tool
async def leave_soon() -> str:
    """Ask for the end of the process, from async code."""
    note("leave_soon")
    raise KeyboardInterrupt


@tool
def delegate(task: str) -> str:
    """Have another durable agent do it."""
    note("delegate", task=task)
    return str(helper.on(backend())(task, script=[{"tool": "book", "city": task}, f"{task}!"])).strip()


@tool
def delegate_twice(task: str) -> str:
    """Have another durable agent do two things, and one of them again."""
    note("delegate_twice", task=task)
    tasks = (f"{task} 1", f"{task} 2", f"{task} 1")
    return " ".join(str(helper.on(backend())(each, script=[f"{each}!"])).strip() for each in tasks)


@tool
def delegate_and_die(task: str) -> str:
    """Have another durable agent do what kills the process the first time."""
    note("delegate_and_die", task=task)
    return str(helper.on(backend())(task, script=[{"tool": "book_and_die", "city": task}, f"{task}!"])).strip()


@tool
def delegate_and_wait(script: list[Any]) -> str:
    """Have another durable agent do it, once the file ``fixed`` exists."""
    note("delegate_and_wait")
    Path("begun").touch()
    until(Path("fixed").exists)
    return str(helper.on(backend())("Go", script=script)).strip()


@tool(context=True)
async def commit_and_obey(tool_context: ToolContext) -> str:
    """Be cancelled, commit something before anybody has looked for that, and wait for the signal."""
    await (await backend().get("run")).cancel()
    with suppress(errors.DurableError):
        await durable.step("late", lambda: "late")
    while not tool_context.cancel_signal.is_set():
        await asyncio.sleep(0.01)
    Path("obeyed").touch()
    return "cancelled"


@tool(context=True)
def obey(tool_context: ToolContext) -> str:
    """Wait until somebody cancels."""
    note("obey")
    until(tool_context.cancel_signal.is_set)
    Path("obeyed").touch()
    return "cancelled"


@tool
def linger() -> str:
    """Wait until a file is there, whoever cancels."""
    note("linger")
    until(Path("go").exists)
    return "it is there"


TOOLS = [
    *scripts.TOOLS,
    die,
    leave,
    leave_soon,
    delegate,
    delegate_twice,
    delegate_and_die,
    delegate_and_wait,
    obey,
    commit_and_obey,
    linger,
]
_backends: dict[str, SqliteBackend] = {}


def backend() -> SqliteBackend:
    """Return a backend on the store of this folder, one for each process; it dispatches and holds, and has no worker."""
    found = _backends.get(os.getcwd())
    if found is None:
        found = _backends[os.getcwd()] = SqliteBackend(OFF)
    return found


def turns(script: list[Any]) -> list[Any]:
    """Return the turns of a script that came as JSON."""

    def turn(found: Any) -> Any:
        if isinstance(found, list):
            return [turn(each) for each in found]
        if isinstance(found, dict):
            return call(found["tool"], **{name: value for name, value in found.items() if name != "tool"})
        return found

    return [turn(found) for found in script]


def agent_of(script: list[Any], **options: Any) -> Agent:
    options = {"tools": TOOLS, **options}
    return Agent(
        model=CountingModel(turns(script)),
        retry_strategy=ModelRetryStrategy(max_attempts=1),
        callback_handler=None,
        **options,
    )


@durable_agent
def scripted(script: list[Any]) -> Agent:
    """One agent with all tools."""
    assistant = agent_of([{"tool": "obey"}, "Obeyed."], name="assistant")
    return agent_of(script, tools=[*TOOLS, assistant.as_tool()])


@durable_agent
def pair() -> Graph:
    """Two nodes at the same time, with something to do afterwards."""
    builder = GraphBuilder()
    for name in ("obey", "linger"):
        builder.add_node(agent_of([{"tool": name}, {"tool": "book", "city": name}, "Done."]), name)
        builder.set_entry_point(name)
    builder.set_max_node_executions(9)
    return builder.build()


@durable_agent
def slow_to_build() -> Agent:
    """An agent that takes a worker long to build."""
    if os.environ.get("BUILT_BY_A_WORKER") and not isinstance(threading.current_thread(), threading._MainThread):  # type: ignore[attr-defined]
        Path("building").touch()
        until(Path("go").exists)
    return agent_of(["Built."])


@durable_agent
def helper(script: list[Any]) -> Agent:
    """An agent that tools of others call."""
    return agent_of(script)


@durable_agent
def careful(script: list[Any]) -> Agent:
    """An agent with a Durability of its own inside its factory."""
    policies = {"wait_for": ToolPolicy(in_doubt="fail"), "book_and_die": ToolPolicy(in_doubt="ask")}
    return agent_of(script, plugins=[Durability("own.db", execution_id="own", tool_policies=policies)])


@durable_agent
def shopper() -> Agent:
    """An agent whose tools come from the server at the address in the file ``url``."""
    client = MCPClient(url=Path("url").read_text(), headers={"x-folder": os.getcwd()}, startup_timeout=5)
    return agent_of([{"tool": "price", "item": "tea"}, "Three."], tools=[client])


_shared: list[MCPClient] = []


@durable_agent
def regular() -> Agent:
    """An agent whose runs share one connection to a server that tells when it starts."""
    if not _shared:
        code = f"open('started', 'a').write('once '); import runpy; runpy.run_path({MCP_SERVER!r}, run_name='__main__')"
        server = StdioServerParameters(command=sys.executable, args=["-c", code, "stdio", "price"], cwd=os.getcwd())
        _shared.append(MCPClient(lambda: stdio_client(server)))
    return agent_of([{"tool": "price", "item": "tea"}, "Three."], tools=_shared)


@durable_agent
def odd() -> Agent:
    """An agent whose conversation cannot be recorded."""
    return agent_of(["Hi."], messages=[{"role": "user", "content": [{"text": "Hello", "handle": object()}]}])


@durable_agent
def fails_once() -> Agent:
    """An agent whose model raises when it is asked for the first time."""
    agent = agent_of([])
    agent.model = ScriptedModel([Answer(text="Fixed.", errors=[] if Path("failed").exists() else [ValueError("no")])])
    agent.add_hook(lambda event: Path("failed").touch(), BeforeInvocationEvent)
    return agent


@durable_agent
def wrong() -> Agent:
    """A factory that fails in a worker until the file ``fixed`` exists."""
    if os.environ.get("BUILT_BY_A_WORKER") and not Path("fixed").exists():
        raise RuntimeError("the factory is out of order")
    return agent_of(["Built."])


@durable_agent
def failing() -> Agent:
    """An agent whose model fails once a file is there."""

    class Failing(CountingModel):
        async def stream(self, *given: Any, **options: Any) -> Any:
            note("model fails")
            while not Path("go").exists():
                await asyncio.sleep(0.01)
            raise RuntimeError("the model is out of order")
            yield

    return Agent(model=Failing(["Done."]), retry_strategy=ModelRetryStrategy(max_attempts=1), callback_handler=None)


@durable_agent
def leaving() -> Agent:
    """A factory that ends the process where something is not set up."""
    if os.environ.get("LEAVE"):
        sys.exit("set it up")
    return agent_of(["Built."])


def version(prompt: str, **options: Any) -> Any:
    """Register a version of an agent in this process."""

    @durable_agent(name="versioned", **options)
    def versioned() -> Agent:
        return agent_of([{"tool": "wait_for", "path": "go"}, f"{prompt}!"], system_prompt=prompt)

    return versioned


def dispatch(script: list[Any], execution_id: str, prompt: str = "Go", agent: Any = None) -> Any:
    """Dispatch, and leave it to workers elsewhere; return the handle."""
    spec = (
        scripted.spec_with(script=script)
        if agent is None
        else agent.spec_with(**({"script": script} if script else {}))
    )
    return asyncio.run(backend().dispatch(spec, prompt, execution_id=execution_id))


def result(handle: Any, seconds: float = 30) -> Any:
    return asyncio.run(handle.result(seconds))


def status(execution_id: str) -> str:
    return asyncio.run(asyncio.run(connect(OFF).get(execution_id)).status()).value


def worker(**options: Any) -> Child:
    """Start a worker in a process of its own."""
    return Child(_work, os.getcwd(), options)


def ask_to_stop(*workers: Child) -> None:
    """Have workers end, as a deploy does; come back when they have begun to."""
    for each in workers:
        until(Path(f"ready-{each.pid}").exists)
        os.kill(each.pid, signal.SIGTERM)
    for each in workers:
        until(lambda each=each: Path(f"draining-{each.pid}").exists() or not each.process.is_alive())


def stop(*workers: Child) -> None:
    """End workers as a deploy does."""
    ask_to_stop(*workers)
    for each in workers:
        each.join().checked()


def kill(*workers: Child) -> None:
    for each in workers:
        os.kill(each.pid, signal.SIGKILL)
        each.join()


def _work(folder: str, options: dict[str, Any]) -> None:
    from strands_durable._dispatch import runner
    from strands_durable._dispatch.worker import Worker

    os.chdir(folder)
    os.environ["BUILT_BY_A_WORKER"] = "1"
    if "version" in options:
        version(options["version"], on_drift=options.get("on_drift"), version=options.get("declared"))
    if "back_off" in options:
        runner._BACK_OFF_SECONDS = options["back_off"]
    given = {name: options[name] for name in ("lease_seconds", "concurrency") if name in options}

    class Draining(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "draining" in record.getMessage():
                Path(f"draining-{os.getpid()}").touch()

    logging.getLogger("strands_durable").setLevel(logging.INFO)
    logging.getLogger("strands_durable").addHandler(Draining())

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        Path(f"ready-{os.getpid()}").touch()
        await Worker(Path("runs.db").resolve(), **given).run(stop, options.get("drain_seconds", 25.0))

    asyncio.run(main())
