"""The runs that are killed: each a small agent with tools that leave a mark in an outside ledger."""

from __future__ import annotations

import copy
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, ToolContext, tool
from strands.types.exceptions import ModelThrottledException

from strands_durable import Durability, current_step
from strands_durable.testing import Answer, CrashPoints, ScriptedModel, call, reach


class Ledger:
    """What the outside world saw, one line per effect."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **entry: Any) -> None:
        line = json.dumps(entry) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def read(self) -> list[dict[str, Any]]:
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written


ledger = Ledger(Path("ledger.jsonl"))


def effect(name: str, **facts: Any) -> None:
    """Do something in the outside world, with a point to die at before, and after it."""
    step = current_step()
    assert step is not None
    reach(f"tool {name}:start")
    ledger.write(
        kind="tool",
        name=name,
        execution_id=step.execution_id,
        key=step.key,
        idempotency_key=step.idempotency_key,
        attempt=step.attempt,
        **facts,
    )
    reach(f"tool {name}:effect")


def bill() -> int:
    """Write the running model call to the ledger; return how often it was called before, by any process."""
    step = current_step()
    assert step is not None
    calls = [entry for entry in ledger.read() if (entry["kind"], entry["key"]) == ("model", step.key)]
    ledger.write(kind="model", execution_id=step.execution_id, key=step.key, attempt=step.attempt)
    return sum(entry["execution_id"] == step.execution_id for entry in calls)


class LedgerModel(ScriptedModel):
    """A scripted model whose calls are on the bill, too."""

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        turn = sum(message["role"] == "assistant" for message in messages)
        self._attempts[turn] = bill()  # a provider that throttles does not begin again because a process was killed
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


@tool
def book(city: str) -> str:
    """Book a hotel."""
    effect("book", city=city)
    return f"booked {city}"


@tool
async def pay(amount: int) -> dict[str, Any]:
    """Pay a bill."""
    effect("pay", amount=amount)
    return {"status": "success", "content": [{"json": {"paid": amount}}]}


@tool
def refuse(reason: str) -> str:
    """Fail."""
    effect("refuse")
    raise RuntimeError(reason)


@tool(context=True)
def save(key: str, value: int, tool_context: ToolContext) -> str:
    """Keep a value in the agent's state, and count."""
    state = tool_context.agent.state
    state.set("count", (state.get("count") or 0) + 1)
    effect("save", item=key)
    state.set(key, value)
    tool_context.invocation_state["request_state"][key] = value
    return "saved"


TOOLS = [book, pay, refuse, save]
THROTTLED = Answer(calls=[call("book", city="Paris")], errors=[ModelThrottledException("slow down")] * 2)


@dataclass(frozen=True)
class Scenario:
    """A script and the prompts that drive it."""

    script: list[Any]
    prompts: list[str]
    options: dict[str, Any] = field(default_factory=dict)


SCENARIOS: dict[str, Scenario] = {
    "single tool": Scenario([call("book", city="Paris"), "Booked in Paris."], ["Book"]),
    "parallel tools": Scenario(
        [[call("book", city="Paris"), call("pay", amount=3), call("book", city="Rome")], "All done."], ["Book and pay"]
    ),
    "several cycles": Scenario(
        [call("book", city="Paris"), call("pay", amount=1), [call("book", city="Rome"), call("pay", amount=2)], "Done."],
        ["Go"],
        {"segment_turns": 2},
    ),
    "several invocations": Scenario(
        [call("book", city="Paris"), "One.", call("pay", amount=1), "Two.", "Three."], ["First", "Second", "Third"]
    ),
    "state-changing tools": Scenario(
        [call("save", key="a", value=1), [call("save", key="b", value=2), call("book", city="Rome")], "Saved.",
         call("save", key="c", value=3), "Again."],
        ["Save", "Save more"],
    ),
    "failing tool": Scenario([call("refuse", reason="no room"), call("book", city="Paris"), "Failed, then booked."], ["Try"]),
    "throttled model": Scenario([THROTTLED, Answer(text="Done at last.", errors=[ModelThrottledException("again")])], ["Go"]),
}  # fmt: skip


def build(scenario: Scenario, durability: Durability) -> Agent:
    """Return the agent of a scenario, as a new process builds it."""
    return Agent(
        model=LedgerModel(scenario.script),
        tools=TOOLS,
        plugins=[durability],
        system_prompt="You travel.",
        retry_strategy=ModelRetryStrategy(max_attempts=4, initial_delay=0, max_delay=0),
        callback_handler=None,
    )


def play(name: str, folder: str, deadly: str | None = None) -> dict[str, Any]:
    """Run a scenario to its end in this process, or die at a point of it; return what must be equal, and the points."""
    os.chdir(folder)
    scenario = SCENARIOS[name]
    points = CrashPoints()
    with points.recording() if deadly is None else points.crashing(deadly):
        durability = Durability("runs.db", execution_id="trip", **scenario.options)
        agent = build(scenario, durability)
        results = [seen(agent, agent(prompt)) for prompt in scenario.prompts]
    return {"results": results, "points": points.reached}


def seen(agent: Agent, result: Any) -> dict[str, Any]:
    """Return what must be equal after a crash: all but random ids and clocks."""
    messages = copy.deepcopy(agent.messages)
    for message in messages:
        assert message.pop("tracking_id")
        message.get("metadata", {}).pop("metrics", None)
    metrics = result.metrics
    return {
        "stop_reason": result.stop_reason,
        "text": str(result),
        "messages": messages,
        "state": agent.state.get(),
        "request_state": result.state,
        "usage": dict(metrics.accumulated_usage),
        "cycles": metrics.cycle_count,
        "invocations": [[dict(cycle.usage) for cycle in found.cycles] for found in metrics.agent_invocations],
        "tools": {name: [found.call_count, found.error_count] for name, found in sorted(metrics.tool_metrics.items())},
    }


def loop(folder: str, execution_id: str, turns: int, pause: float) -> Any:
    """Run one execution of many turns, for kills at random times."""
    os.chdir(folder)

    def script(turn: int, messages: list[Any]) -> Any:
        return [call("book", city=f"c{turn}"), call("slow", seconds=pause)] if turn < turns else "Done."

    @tool
    async def slow(seconds: float) -> str:
        """Take some time."""
        effect("slow")
        time.sleep(seconds)
        return "slept"

    model = LedgerModel(script)
    agent = Agent(
        model=model,
        tools=[book, slow],
        plugins=[Durability("runs.db", execution_id=execution_id)],
        callback_handler=None,
    )
    return seen(agent, agent("Go"))
