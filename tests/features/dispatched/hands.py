"""What the agents share: a ledger, a model whose calls are in it, and tools that leave their marks there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, ToolContext, tool

from strands_durable import current_step, durable, durable_agent
from strands_durable.testing import ScriptedModel
from tests.crash.scenarios import Ledger

PICTURE = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(100))
IMAGE: Any = {"image": {"format": "png", "source": {"bytes": PICTURE}}}
DOCUMENT: Any = {"document": {"format": "txt", "name": "notes", "source": {"bytes": b"short"}}}


def played(factory: Any = None, /, **options: Any) -> Any:
    """Make a durable agent, under a name that no other tests have."""
    if factory is None:
        return partial(played, **options)
    return durable_agent(name=f"feature-{factory.__name__}", **options)(factory)


def note(folder: str, name: str, **facts: Any) -> None:
    """Leave a mark in the outside world."""
    step = current_step()
    where = None if step is None else [step.kind, step.name, step.phase, step.key, step.attempt, step.replaying]
    Ledger(Path(folder, "ledger.jsonl")).write(name=name, facts=facts, step=where)


def times(folder: str, name: str, **facts: Any) -> int:
    """Return how often something was done."""
    entries = Ledger(Path(folder, "ledger.jsonl")).read()
    return sum(entry["name"] == name and entry["facts"].items() >= facts.items() for entry in entries)


class Says(ScriptedModel):
    """A scripted model whose calls are in the ledger."""

    def __init__(self, folder: str, script: Any, **options: Any) -> None:
        super().__init__(script, **options)
        self.folder = folder

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """Stream the turn that comes next."""
        note(self.folder, "model", messages=len(messages), model=self.config["model_id"])
        async for chunk in super().stream(messages, *args, **kwargs):
            yield chunk


class Hands:
    """The tools."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @tool
    def book(self, city: str) -> str:
        """Book a hotel."""
        note(self.folder, "book", city=city)
        return f"booked {city}"

    @tool
    async def pay(self, amount: int) -> dict[str, Any]:
        """Pay."""
        note(self.folder, "pay", amount=amount)
        return {"status": "success", "content": [{"json": {"paid": amount}}]}

    @tool
    async def slow(self, city: str) -> Any:
        """Book slowly, and report progress."""
        yield "looking"
        note(self.folder, "slow", city=city)
        yield f"booked {city}"

    @tool(context=True)
    def keep(self, key: str, tool_context: ToolContext) -> str:
        """Keep a value everywhere, before and after an effect."""
        agent, invocation = tool_context.agent, tool_context.invocation_state
        agent.state.set(f"{key} began", True)
        note(self.folder, "keep", key=key, agent=agent.name)
        agent.state.set(key, {"by": key, "price": 3.5, "deep": [1, {"x": None}]})
        agent.state.delete(f"{key} began")
        invocation.setdefault("notes", {})[key] = key
        invocation["request_state"][key] = [key]
        return f"kept {key}"

    @tool(context=True)
    async def tell(self, tool_context: ToolContext) -> str:
        """Say what is there."""
        note(self.folder, "tell")
        invocation, agent = tool_context.invocation_state, tool_context.agent
        found = [
            sorted(agent.state.get() or {}),
            invocation.get("given"),
            sorted(invocation.get("notes", {})),
            sorted(invocation["request_state"]),
            len(agent.messages),
            tool_context.tool_use["toolUseId"],
        ]
        return str(found)

    @tool
    def refuse(self, reason: str) -> str:
        """Fail."""
        note(self.folder, "refuse", reason=reason)
        raise RuntimeError(reason)

    @tool
    def flaky(self, good_at: int) -> str:
        """Fail until it was called so often."""
        note(self.folder, "flaky")
        if times(self.folder, "flaky") < good_at:
            raise RuntimeError("not yet")
        return f"good after {times(self.folder, 'flaky')}"

    @tool
    async def stuck(self) -> str:
        """Take too long."""
        note(self.folder, "stuck")
        await asyncio.sleep(60)
        return "never"

    @tool
    def photograph(self, ok: bool) -> dict[str, Any]:
        """Take a picture, a good or a bad one."""
        note(self.folder, "photograph", ok=ok)
        return {"status": "success" if ok else "error", "content": [{"text": "look"}, IMAGE, DOCUMENT]}

    @tool
    async def errand(self, city: str) -> str:
        """Do two things, each of them once."""
        first = await durable.step("ask", lambda: note(self.folder, "ask") or "free")
        token, again = durable.uuid(), durable.uuid()
        at = durable.now()
        await durable.sleep(0.01)
        second = await durable.step("take", self._take)
        return f"{city}: {first}, {second}, {token != again}, {durable.now() >= at}"

    async def _take(self) -> list[Any]:
        note(self.folder, "take")
        return ["taken", None, 1.5]

    @tool
    async def half(self) -> str:
        """Do one thing, and another once a file is there."""
        note(self.folder, "half")
        await durable.step("first", lambda: note(self.folder, "first"))
        Path(self.folder, "half").touch()
        while not Path(self.folder, "go").exists():
            await asyncio.sleep(0.01)
        await durable.step("second", lambda: note(self.folder, "second"))
        return "whole"

    @tool(context=True)
    def approve(self, what: str, tool_context: ToolContext) -> str:
        """Ask a person."""
        note(self.folder, "approve", what=what, agent=tool_context.agent.name)
        return f"{what}: {tool_context.interrupt(f'approve {what}', reason={'what': what})}"

    @tool(context=True)
    async def approve_twice(self, what: str, tool_context: ToolContext) -> str:
        """Ask a person two things, one after the other."""
        first = tool_context.interrupt("colour", reason=what)
        second = tool_context.interrupt("size", reason=first)
        note(self.folder, "approve_twice", what=what)
        return f"{what}: {first}, {second}"

    @tool(context=True)
    def stop(self, how: str, tool_context: ToolContext) -> str:
        """End the call, in one of three ways."""
        note(self.folder, "stop", how=how)
        if how == "politely":
            tool_context.invocation_state["request_state"]["stop_event_loop"] = True
        else:
            tool_context.agent.cancel(message=f"stopped {how}", after_current_tools=how == "softly")
        return "stopping"

    @tool
    def strange(self) -> Any:
        """Return what cannot be recorded."""
        note(self.folder, "strange")
        return {"status": "success", "content": [{"json": {"handle": object()}}]}

    @tool(context=True)
    def open_client(self, tool_context: ToolContext) -> str:
        """Leave what cannot be recorded for the tools that follow."""
        note(self.folder, "open_client")
        tool_context.invocation_state["client"] = self
        return "open"

    @tool(context=True)
    def use_client(self, tool_context: ToolContext) -> str:
        """Use what another tool has left."""
        note(self.folder, "use_client")
        return f"client: {isinstance(tool_context.invocation_state.get('client'), Hands)}"

    @tool
    def book_and_die(self, city: str) -> str:
        """Book a hotel; the first process to do so in a city is killed before the result is known, unless it is immortal."""
        note(self.folder, "book_and_die", city=city)
        if times(self.folder, "book_and_die", city=city) == 1 and not Path(self.folder, "immortal").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return f"booked {city}"


def agent_of(folder: str, script: Any, *tools: Any, **options: Any) -> Agent:
    """Return an agent with a script and tools: names of `Hands`, or tools themselves."""
    hands = Hands(folder)
    return Agent(
        model=options.pop("model", None) or Says(folder, script),
        tools=[getattr(hands, found) if isinstance(found, str) else found for found in tools],
        **{"callback_handler": None, "retry_strategy": ModelRetryStrategy(max_attempts=1), **options},
    )
