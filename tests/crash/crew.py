"""Agents for crash tests of an engine, and the workers that carry them: in processes of their own, in a folder of their own.

What they do is written to a ledger, the outside world: who did what, in which attempt, under which idempotency key.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.hooks import AfterToolCallEvent, BeforeInvocationEvent, BeforeToolCallEvent
from strands.tools.executors import SequentialToolExecutor
from temporalio.worker import Worker

from strands_durable import DoubtfulStep, Durability, ToolPolicy, connect, current_step, durable, durable_agent
from strands_durable.backends.temporal import TemporalBackend, _worker
from strands_durable.testing import CrashPoints, ScriptedModel, call, reach
from tests.crash.scenarios import Ledger


def ledger() -> Ledger:
    """Return the outside world, as the environment says."""
    return Ledger(Path(os.environ["LEDGER"]))


def note(what: str, **facts: Any) -> None:
    """Write an entry to the outside world."""
    step = current_step()
    assert step is not None
    ledger().write(
        what=what,
        execution_id=step.execution_id,
        key=step.idempotency_key,
        attempt=step.attempt,
        pid=os.getpid(),
        **facts,
    )


def sign(name: str) -> Path:
    """Return a file beside the ledger, by which tests and tools understand each other."""
    return Path(os.environ["LEDGER"]).parent / name


class Billed(ScriptedModel):
    """A scripted model whose calls are on the bill; one that says "wait" first waits for a file."""

    def __init__(self, script: list[Any], waits_for: str = "") -> None:
        super().__init__([_turn(turn) for turn in script])
        self._waits_for = waits_for

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        note("model", turn=sum(message["role"] == "assistant" for message in messages))
        while self._waits_for and not sign(self._waits_for).exists():
            await asyncio.sleep(0.01)
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


def _turn(turn: Any) -> Any:
    if isinstance(turn, list):
        return [_turn(each) for each in turn]
    if isinstance(turn, dict):
        return call(turn["tool"], **{name: value for name, value in turn.items() if name != "tool"})
    return turn


@tool(context=True)
def book(city: str, tool_context: ToolContext) -> str:
    """Book a hotel, with a point to die at before and after it."""
    reach(f"tool book {city}:start")
    tool_context.agent.state.set(f"booked {city}", True)
    note("book", city=city)
    reach(f"tool book {city}:effect")
    return f"booked {city}"


@tool(context=True)
async def pay(amount: int, tool_context: ToolContext) -> dict[str, Any]:
    """Pay a bill in two recorded parts."""
    reach("tool pay:start")
    tool_context.agent.state.set("paid", amount)
    receipt = await durable.step("charge", lambda: _charge(amount))
    note("pay", amount=amount)
    reach("tool pay:effect")
    return {"status": "success", "content": [{"json": {"receipt": receipt}}]}


def _charge(amount: int) -> str:
    reach("step charge:start")
    note("charge", amount=amount)
    reach("step charge:effect")
    return f"charged {amount}"


@tool
def stamp(place: str) -> str:
    """Stamp a passport."""
    reach(f"tool stamp {place}:start")
    note("stamp", place=place)
    reach(f"tool stamp {place}:effect")
    return "stamped"


@tool(name="book", context=True)
def book_with_stamps(city: str, tool_context: ToolContext) -> str:
    """Book a hotel after two equal direct calls, and change the input in place."""
    for _ in range(2):
        tool_context.agent.tool.stamp(place=city, record_direct_tool_call=False)
    tool_context.tool_use["input"]["city"] = "spoiled"
    return str(book(city=city, tool_context=tool_context))


@tool
def wait(path: str) -> str:
    """Wait until a file exists, in a thread that cannot be stopped."""
    note("wait", path=path)
    while not sign(path).exists():
        time.sleep(0.01)
    note("waited", path=path)
    return "it is there"


@tool
async def rest(seconds: float) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return "rested"


@tool
def die() -> str:
    """Kill the process that runs this, unless the file ``fixed`` exists."""
    note("die")
    if not sign("fixed").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@tool
def die_once() -> str:
    """Kill the process that runs this for the first time."""
    note("die_once")
    step = current_step()
    if step is not None and step.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@tool
async def freeze() -> str:
    """Freeze the process that runs this, unless another one has been frozen."""
    note("freeze")
    if current_step().attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        note("thawed")
    return "thawed"


@tool
def delegate(url: str, script: list[Any]) -> str:
    """Have another execution do it, and wait for that."""
    return str(scripted.on(connect(url))("Go", script=script))


TOOLS = [book, pay, wait, rest, die, die_once, freeze, delegate]


def _agent(script: list[Any], *, waits_for: str = "", tools: list[Any] = TOOLS, **options: Any) -> Agent:
    return Agent(
        model=Billed(script, waits_for),
        tools=tools,
        retry_strategy=ModelRetryStrategy(max_attempts=1),
        callback_handler=None,
        **options,
    )


TRAVEL = [
    [{"tool": "book", "city": "Paris"}, {"tool": "pay", "amount": 3}],
    {"tool": "assistant", "input": "Book in Rome"},
    {"tool": "send", "city": "Oslo"},
    "All is booked.",
]


@tool
def send(city: str) -> str:
    """Have an agent book a hotel that is made for it."""
    return str(_agent([{"tool": "book", "city": city}, f"{city} it is."], tools=[book])(f"Book in {city}"))


@durable_agent
def traveller() -> Agent:
    """Two tools at the same time, an agent as a tool, a tool that builds one, a tool with a recorded step, and a state.

    One of its tools makes direct calls, and changes its input in place. Its hooks forbid what has happened, and want it
    again: after a kill, that is on record.
    """
    both = [{"tool": "book", "city": "Rome"}, {"tool": "book", "city": "Turin"}]
    tools: list[Any] = [book_with_stamps, stamp]
    assistant = _agent(
        [both, "Rome it is."],
        name="assistant",
        description="Books.",
        tool_executor=SequentialToolExecutor(),
        tools=tools,
    )
    agent = _agent(TRAVEL, tools=[*tools, pay, send, assistant.as_tool()], system_prompt="You travel.")
    for each in (agent, assistant):
        each.add_hook(_forbid_what_has_happened, BeforeToolCallEvent)
    assistant.add_hook(_want_rome_again, AfterToolCallEvent)
    return agent


def _happened() -> list[Any]:
    step = current_step()
    assert step is not None
    mine = [entry for entry in ledger().read() if entry.get("execution_id") == step.execution_id]
    return [entry.get("city") or entry["what"] for entry in mine]


def _forbid_what_has_happened(event: BeforeToolCallEvent) -> None:
    given = event.tool_use["input"]
    if {"assistant": "Rome", "pay": "charge"}.get(event.tool_use["name"], given.get("city")) in _happened():
        event.cancel_tool = "it has happened"


def _want_rome_again(event: AfterToolCallEvent) -> None:
    event.retry = event.tool_use["input"].get("city") == "Rome" and "Turin" in _happened()


@durable_agent(name="crew-scripted")
def scripted(script: list[Any], waits_for: str = "", in_doubt: Any = "retry", model_in_doubt: Any = "retry") -> Agent:
    """One agent with all tools; its model answers once the file ``waits_for`` is there."""
    policy = ToolPolicy(in_doubt=in_doubt, verify=_verify if in_doubt == "verify" else None)
    durability = Durability("runs.db", tool_policies={"wait": policy}, model_in_doubt=model_in_doubt)
    return _agent(script, waits_for=waits_for, plugins=[durability])


@durable_agent
def hesitant(script: list[Any]) -> Agent:
    """One agent with all tools, and a hook after each of them that waits for a file."""

    async def hesitate(event: AfterToolCallEvent) -> None:
        note("hesitate")
        while not sign("go").exists():
            await asyncio.sleep(0.01)

    agent = _agent(script)
    agent.add_hook(hesitate, AfterToolCallEvent)
    return agent


@durable_agent
def deadly() -> Agent:
    """An agent with a hook that kills its process."""

    def kill(event: BeforeInvocationEvent) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    agent = _agent(["Done."])
    agent.add_hook(kill, BeforeInvocationEvent)
    return agent


def _verify(step: DoubtfulStep) -> str | None:
    ledger().write(
        what="verify", execution_id=step.execution_id, key=step.idempotency_key, attempt=step.attempt, pid=os.getpid()
    )
    return "it had happened" if sign(f"verified {step.execution_id}").exists() else None


async def work(url: str, concurrency: int, trial_command: list[str] | None) -> None:
    """Be a worker until a file asks it to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await connect(url).work(concurrency=concurrency, stop=stop, trial_command=trial_command)


def serve_until(url: str, folder: str, point: str) -> None:
    """Be a worker that dies at a point."""
    with CrashPoints().crashing(point):
        serve(url, folder)


def serve_books(url: str, folder: str) -> None:
    """Keep the books of workflows, and carry no execution."""

    async def work() -> None:
        backend = connect(url)
        assert isinstance(backend, TemporalBackend)
        client, queue = await backend.client(), backend.config.task_queue
        await Worker(
            client, task_queue=queue, workflows=[_worker.ExecutionWorkflow], workflow_runner=_worker.sandbox()
        ).run()

    asyncio.run(work())


def serve_deaf(url: str, folder: str) -> None:
    """Be a worker that never hears that a step may begin."""

    class Deaf(_worker.Activities):
        def __init__(self, client: Any, queue: str, *given: Any) -> None:
            super().__init__(client, f"{queue}-deaf", *given)

    _worker.Activities = Deaf  # type: ignore[misc]
    serve(url, folder)


def serve_typed(url: str, folder: str) -> None:
    """Be a worker as one types it: with a process of its own for what may have killed one."""
    command = [sys.executable, "-m", "strands_durable", "worker", __file__, "--trial", "--quiet", "--backend", url]
    root = Path(__file__).resolve().parents[2]
    os.environ["PYTHONPATH"] = f"{root}:{root / 'src'}"  # for the process in which suspects are tried
    serve(url, folder, trial_command=command)


def serve(url: str, folder: str, concurrency: int = 10, trial_command: list[str] | None = None) -> None:
    """Be a worker; the folder holds the ledger, and nothing else of ours."""
    os.environ["LEDGER"] = str(Path(folder) / "ledger.jsonl")
    os.chdir(folder)
    asyncio.run(work(url, concurrency, trial_command))
