"""A user's script, as data: one agent, one script for its model, some calls. Run in a new process, or in this one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, ToolContext, tool

from strands_durable import Durability, ToolPolicy, current_step
from strands_durable.testing import ScriptedModel
from tests.crash.scenarios import Ledger
from tests.processes import Child, Ended, run
from tests.waiting import until

ledger = Ledger(Path("ledger.jsonl"))


def note(name: str, **facts: Any) -> None:
    """Leave a mark in the outside world."""
    step = current_step()
    assert step is not None
    ledger.write(
        kind="tool", name=name, key=step.key, idempotency_key=step.idempotency_key, attempt=step.attempt, **facts
    )


def first_time(name: str) -> bool:
    """Say whether this is the first process to come here."""
    try:
        Path(f"{name}.marker").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@tool
def book(city: str) -> str:
    """Book a hotel."""
    note("book", city=city)
    return f"booked {city}"


@tool
def book_and_die(city: str) -> str:
    """Book a hotel; the first process to do so is killed before anybody hears of it."""
    note("book_and_die", city=city)
    if first_time("died"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"booked {city}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    note("approve", what=what)
    answer = tool_context.interrupt("approval", reason={"what": what})
    return f"{what}: {answer}"


@tool
def wait_for(path: str) -> str:
    """Wait until a file is there."""
    Path("waiting").touch()
    while not Path(path).exists():
        time.sleep(0.01)
    return "it is there"


@tool
def strange() -> Any:
    """Return what cannot be stored."""
    note("strange")
    return {"status": "success", "content": [{"json": {"handle": object()}}]}


class FailsOnce(ScriptedModel):
    """A scripted model that raises in the first process that asks it for its second turn."""

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        ledger.write(kind="model", turn=len(messages))
        if len(messages) > 1 and first_time("model failed"):
            raise ValueError("the model is out of order")
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


class CountingModel(ScriptedModel):
    """A scripted model whose calls are on the bill."""

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        step = current_step()
        ledger.write(kind="model", turn=len(messages), attempt=step.attempt if step else None)
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


TOOLS = [book, book_and_die, approve, wait_for, strange]


def answers(result: Any, *given: Any) -> list[dict[str, Any]]:
    """Return answers to the open interrupts of a result, in order."""
    pairs = zip(result.interrupts, given, strict=False)
    return [{"interruptResponse": {"interruptId": found.id, "response": answer}} for found, answer in pairs]


def calls(
    script: list[Any],
    inputs: list[Any],
    options: dict[str, Any] | None = None,
    agent_options: dict[str, Any] | None = None,
    model: str = "CountingModel",
    per_call: str | None = None,
) -> list[dict[str, Any]]:
    """Make one agent and call it with each input; return what came of each call.

    A tuple answers the open interrupts; ``("when there is", path)`` waits until a file is there. ``per_call`` is an id to give
    with each call.
    """
    options = {"execution_id": "trip", **(options or {})}
    agent = Agent(
        model=globals()[model](script),
        tools=TOOLS,
        plugins=[Durability("runs.db", **options)],
        retry_strategy=ModelRetryStrategy(max_attempts=1),
        callback_handler=None,
        **(agent_options or {}),
    )
    outcomes: list[dict[str, Any]] = []
    result: Any = None
    for given in inputs:
        if isinstance(given, tuple) and given[0] == "when there is":
            Path("paused").touch()
            until(Path(given[1]).exists)
            continue
        try:
            state = {} if per_call is None else {"execution_id": per_call}
            result = agent(answers(result, *given) if isinstance(given, tuple) else given, invocation_state=state)
            outcomes.append(
                {
                    "stop_reason": result.stop_reason,
                    "text": str(result).strip(),
                    "interrupts": [found.to_dict() for found in result.interrupts or ()],
                    "messages": len(agent.messages),
                }
            )
        except Exception as error:
            outcomes.append({"error": type(error).__name__, "text": str(error)})
    return outcomes


def in_new_process(*args: Any, **options: Any) -> Ended:
    """Run `calls` in a new process, in this folder."""
    return run(_calls, os.getcwd(), args, options)


def start_process(*args: Any, **options: Any) -> Child:
    """Start `calls` in a new process and come back at once."""
    return Child(_calls, os.getcwd(), args, options)


def _calls(folder: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    os.chdir(folder)
    return calls(*args, **options)


ASK = {"tool_policies": {"book_and_die": ToolPolicy(in_doubt="ask")}}
