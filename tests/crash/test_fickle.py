"""C61 at random: hooks, middlewares and cancels that change their mind in every life of a process that is killed.

Whatever they want, a payment is made under one idempotency key, and the model sees what it was.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent, BeforeToolsEvent
from strands.middleware import ExecuteToolStage
from strands.tools.executors import ConcurrentToolExecutor, SequentialToolExecutor
from strands.types._events import ToolResultEvent

from strands_durable import Durability, ToolPolicy, current_step, durable
from strands_durable._records.crash_points import listen
from strands_durable.testing import ScriptedModel, call, reach
from tests.crash.scenarios import Ledger
from tests.processes import run

LIVES, POINTS = 6, 60
LAST = 99
"""What is paid in the second cycle."""
ledger = Ledger(Path("ledger.jsonl"))


def paying(amount: int) -> str:
    """Pay, with points to die at."""
    step = current_step()
    assert step is not None
    reach("pay:start")
    ledger.write(amount=amount, key=step.idempotency_key)
    reach("pay:end")
    return f"paid {amount}"


@tool
def pay(amount: int) -> str:
    """Pay in a thread."""
    return paying(amount)


@tool
async def pay_at_once(amount: int) -> str:
    """Pay on the event loop."""
    return paying(amount)


@tool
async def pay_inside(amount: int) -> str:
    """Pay in a step of a tool without an intent."""
    found = await durable.step("pay", lambda: paying(amount))
    reach("inside:end")
    return str(found)


@tool
def other(amount: int) -> str:
    """Do what no model has asked for."""
    ledger.write(amount=-amount, key="other")
    return "other"


class Mind:
    """What others want in one life; what is on record is what was when the life began."""

    def __init__(self, rng: random.Random) -> None:
        self._maybe: Callable[[], bool] = lambda: rng.random() < 0.5
        self.begun, self.settled = _on_record()

    def is_settled(self, tool_use: Any) -> bool:
        """Return True if the hooks after the call have left their decision."""
        return tool_use["toolUseId"] in self.settled

    # Hooks before

    def deny(self, event: BeforeToolCallEvent) -> None:
        event.cancel_tool = "denied" if self._maybe() else False

    async def deny_later(self, event: BeforeToolCallEvent) -> None:
        event.cancel_tool = "denied" if self._maybe() else False

    def deny_all(self, event: BeforeToolsEvent) -> None:
        event.cancel = "denied" if self._maybe() else False

    def ask_about_all(self, event: BeforeToolsEvent) -> None:
        event.cancel = "refused" if event.interrupt("all") == "no" else False

    def ask(self, event: BeforeToolCallEvent) -> None:
        event.cancel_tool = "refused" if event.interrupt("one") == "no" else False

    def select(self, event: BeforeToolCallEvent) -> None:
        if event.tool_use["toolUseId"] in self.begun:
            event.selected_tool = other

    def rename(self, event: BeforeToolCallEvent) -> None:
        if event.tool_use["toolUseId"] in self.begun:
            event.tool_use = {**event.tool_use, "name": "other"}

    def reissue(self, event: BeforeToolCallEvent) -> None:
        event.tool_use = {**event.tool_use, "input": {**event.tool_use["input"]}}

    # Hooks after

    def watch(self, event: AfterToolCallEvent) -> None:
        """Decide nothing."""

    def want_again(self, event: AfterToolCallEvent) -> None:
        event.retry = self.is_settled(event.tool_use) and self._maybe()

    def rewrite(self, event: AfterToolCallEvent) -> None:
        if self.is_settled(event.tool_use):
            event.result = {**event.result, "content": [{"text": "rewritten"}]}

    def fail(self, event: AfterToolCallEvent) -> None:
        if self.is_settled(event.tool_use):
            raise ValueError("failed")

    def stop(self, event: AfterToolCallEvent) -> None:
        if self._maybe():
            event.agent.cancel(after_current_tools=self._maybe())

    # Middlewares outside ours

    async def pass_on(self, context: Any, next_fn: Any) -> Any:
        async for event in next_fn(context):
            yield event

    async def answer(self, context: Any, next_fn: Any) -> Any:
        if not self._maybe():
            async for event in next_fn(context):
                yield event
            return
        use = context.tool_use["toolUseId"]
        yield ToolResultEvent({"toolUseId": use, "status": "error", "content": [{"text": "answered"}]})

    async def ask_around(self, context: Any, next_fn: Any) -> Any:
        context.interrupt("around")
        async for event in next_fn(context):
            yield event

    async def raise_before(self, context: Any, next_fn: Any) -> Any:
        if self._maybe():
            raise ValueError("raised before")
        async for event in next_fn(context):
            yield event

    async def raise_or_ask_after(self, context: Any, next_fn: Any) -> Any:
        async for event in next_fn(context):
            yield event
        if self.is_settled(context.tool_use):
            if self._maybe():
                raise ValueError("raised after")
            context.interrupt("after")

    async def call_twice(self, context: Any, next_fn: Any) -> Any:
        if self.is_settled(context.tool_use):
            async for _ in next_fn(context):
                pass
        async for event in next_fn(context):
            yield event


HARMLESS = ("watch", "reissue")
HOOKS = (
    *HARMLESS, "deny", "deny_later", "deny_all", "ask_about_all", "ask", "select", "rename", "want_again", "rewrite",
    "fail", "stop",
)  # fmt: skip
WRAPS = ("pass_on", "answer", "ask_around", "raise_before", "raise_or_ask_after", "call_twice")


def _on_record() -> tuple[set[str], set[str]]:
    """Return the ids of the calls that have begun, and of those whose hooks have decided."""
    if not Path("runs.db").exists():
        return set(), set()
    with closing(sqlite3.connect("runs.db")) as file:
        begun = [key for (key,) in file.execute("SELECT key FROM steps WHERE kind = 'tool'")]
        settled = [
            key for (data,) in file.execute("SELECT data FROM heads WHERE part = 'after'") for key in json.loads(data)
        ]
    return {_use_of(key) for key in begun}, {_use_of(key) for key in settled}


def _use_of(key: str) -> str:
    return key.partition(":")[2].partition("~")[0]


def live(seed: int, number: int) -> dict[str, str]:
    """Live once, and be killed at a random point, except the last time; return what the model saw."""
    rng, script = random.Random(f"{seed}.{number}"), random.Random(seed)
    mind = Mind(rng)
    tools = [pay, pay_at_once, pay_inside]
    uses = [call(script.choice(tools).tool_name, f"u{n}", amount=n) for n in range(script.randint(1, 4))]
    hooks = [getattr(mind, name) for name in (HOOKS if number else HARMLESS) if rng.random() < 0.25]
    agent = Agent(
        agent_id="clerk", model=ScriptedModel([uses, call("pay", f"u{LAST}", amount=LAST), "Done."]),
        tools=[*tools, other], hooks=rng.sample(hooks, len(hooks)), callback_handler=None,
        tool_executor=script.choice([SequentialToolExecutor, ConcurrentToolExecutor])(),
    )  # fmt: skip
    for name in WRAPS if number else ():
        if rng.random() < 0.15:
            agent.add_middleware(ExecuteToolStage, getattr(mind, name))
    durability = Durability("runs.db", execution_id="trip", tool_policies={"pay_inside": ToolPolicy(inline=True)})
    durability.init_agent(agent)  # after the middlewares: they are outside
    cancel = threading.Event()
    if number and rng.random() < 0.15:
        cancel.set()
    if number < LIVES - 1:
        points = iter(range(rng.randint(1, POINTS)))
        listen(lambda _: next(points, None) is None and os.kill(os.getpid(), SIGKILL))
    result = agent("Go", cancel_signal=cancel)
    while result.stop_reason == "interrupt":
        asked = [found.id for found in result.interrupts or ()][: 1 if rng.random() < 0.5 else None]
        answers = [{"interruptId": found, "response": rng.choice(["yes", "no"])} for found in asked]
        result = agent([{"interruptResponse": answer} for answer in answers])
    blocks = [block["toolResult"] for said in agent.messages for block in said["content"] if "toolResult" in block]
    return {block["toolUseId"]: str(block["content"][0].get("text")) for block in blocks}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_c61_minds_that_change_pay_nothing_twice_and_hide_no_payment(seed: int) -> None:
    for number in range(LIVES):
        ended = run(live, seed, number)
        if ended.exitcode == 0:
            break
    seen = ended.checked()
    keys: dict[int, set[str]] = {}
    for entry in ledger.read():
        keys.setdefault(entry["amount"], set()).add(entry["key"])
    assert all(amount >= 0 and len(found) == 1 for amount, found in keys.items()), keys
    assert {amount: seen.get(f"u{amount}") for amount in keys} == {amount: f"paid {amount}" for amount in keys}
