"""Nothing of Strands is replaced for agents that are not durable: not after a durable call, and without effect during one."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import sys
import threading
import types
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from strands import Agent, ModelRetryStrategy, tool
from strands.hooks import AfterModelCallEvent
from strands.multiagent import GraphBuilder, Swarm
from strands.telemetry.tracer import Tracer
from strands.types.exceptions import ModelThrottledException

from strands_durable import Durability, durable_agent
from strands_durable.testing import Answer, ScriptedModel, call
from tests.processes import run
from tests.waiting import until

PERMITTED: set[str] = {"Agent.stream_async", "Graph.stream_async", "Swarm.stream_async"}
"""The one seam on classes: it reads a context variable."""
_CODE = (type, types.FunctionType, types.ModuleType, property, staticmethod, classmethod)


def parts() -> dict[str, Any]:
    """Return every function, class, property and module that Strands' own modules and classes have, by name."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "strands":
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, _CODE):
                found[f"{name}:{key}"] = value
            if isinstance(value, type) and value.__module__ == name:
                members = list(vars(value).items())
                found |= {f"{name}:{key}.{member}": part for member, part in members if isinstance(part, _CODE)}
            if isinstance(value, Tracer):
                found[f"{name}:{key}"] = dict(vars(value))
    return found


def replaced(before: dict[str, Any]) -> list[str]:
    """Return the names of what is not what it was."""
    now = parts()
    names = [name for name, part in before.items() if now.get(name) is not part and now.get(name) != part]
    return [name for name in names if name.partition(":")[2] not in PERMITTED]


def plain(*script: Any, **options: Any) -> Agent:
    return Agent(model=ScriptedModel(list(script or ("Hi.",))), callback_handler=None, **options)


def inline(folder: str) -> list[str]:
    """Make durable calls of all kinds, one after the other; return what is replaced afterwards."""
    os.chdir(folder)
    plain()("Hello")  # some parts of Strands are set when they are first used
    before = parts()
    plugins: Any = [Durability("runs.db")]

    @tool
    def fail() -> str:
        """Fail."""
        raise RuntimeError("no")

    agent = plain([call("fail"), call("fail")], "Done.", tools=[fail], plugins=plugins)
    agent("Go")
    throttled = plain(
        Answer(text="At last.", errors=[ModelThrottledException("slowly")]), plugins=plugins,
        retry_strategy=ModelRetryStrategy(max_attempts=2, initial_delay=0),
    )  # fmt: skip
    throttled("Go")
    broken = plain(Answer(text="", errors=[ValueError("broken")]), plugins=plugins)
    with suppress(ValueError):
        broken("Go")
    builder = GraphBuilder()
    builder.add_node(plain(), "node")
    builder.set_plugins([Durability("runs.db")])
    builder.build()("Go")
    Swarm([plain(name="one")], plugins=[Durability("runs.db")])("Go")

    async def leave() -> None:
        stream = plain(plugins=plugins).stream_async("Go")
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(leave())
    return replaced(before)


def dispatched(folder: str) -> list[str]:
    """Dispatch, and run it in a worker of this process."""
    os.chdir(folder)
    plain()("Hello")
    before = parts()

    @durable_agent(name="untouched", durable_backend="sqlite:///runs.db")
    def agent() -> Agent:
        return plain("Done.")

    assert str(agent("Go", execution_id="trip")).strip() == "Done."
    asyncio.run(agent.backend.close())
    return replaced(before)


def forked(folder: str) -> Any:
    """Fork in the middle of a durable call; return what the child found replaced."""
    os.chdir(folder)
    plain()("Hello")
    before = parts()

    @tool
    def fork() -> str:
        """Fork a process that looks around."""
        child = os.fork()
        if child == 0:
            try:
                Path("found").write_text(json.dumps(replaced(before)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return "forked"

    plain(call("fork"), "Done.", tools=[fork], plugins=[Durability("runs.db")])("Go")
    return json.loads(Path("found").read_text())


class Watch:
    """Counts what Strands does, by the agent that it is done for."""

    def __init__(self) -> None:
        self.copies: dict[str, int] = {}
        self.events: dict[str, int] = {}
        deepcopy, add_event = copy.deepcopy, Tracer._add_event

        def copying(*given: Any) -> Any:
            self._count(self.copies)
            return deepcopy(*given)

        def adding(*given: Any, **more: Any) -> Any:
            self._count(self.events)
            return add_event(*given, **more)

        copy.deepcopy = copying
        Tracer._add_event = adding  # type: ignore[method-assign]

    def _count(self, counts: dict[str, int]) -> None:
        name = _who.get()
        counts[name] = counts.get(name, 0) + 1


_who: ContextVar[str] = ContextVar("who", default="")
"""The agent that runs."""


def called(agent: Agent, name: str) -> None:
    _who.set(name)
    agent("Go")


def beside(folder: str) -> dict[str, Any]:
    """Run an agent that is not durable alone, then beside two durable ones in threads of their own; return what it had done."""
    os.chdir(folder)
    watch = Watch()

    def ordinary(name: str) -> list[Any]:
        agent = plain(
            Answer(text="Hi.", errors=[ModelThrottledException("slowly")]),
            retry_strategy=ModelRetryStrategy(max_attempts=2, initial_delay=0),
        )
        seen: list[Any] = []
        agent.add_hook(lambda event: seen.append(event.agent.aux_model is event.agent.model), AfterModelCallEvent)
        called(agent, name)
        return seen

    alone = ordinary("alone")
    before = parts()
    go = {"first": threading.Event(), "second": threading.Event()}
    waits: list[str] = []

    def durable(name: str) -> threading.Thread:
        @tool
        def wait() -> str:
            """Wait."""
            waits.append(name)
            assert go[name].wait(30)
            return "waited"

        agent = plain(call("wait"), "Done.", tools=[wait], plugins=[Durability("runs.db", execution_id=name)])
        thread = threading.Thread(target=called, args=(agent, name))
        thread.start()
        until(lambda: name in waits)
        return thread

    first, second = durable("first"), durable("second")
    during = ordinary("beside both")
    go["first"].set()
    first.join(30)
    still = ordinary("beside one")
    go["second"].set()
    second.join(30)
    return {
        "seen": [alone, during, still],
        "copies": watch.copies,
        "events": watch.events,
        "replaced": replaced(before),
    }


def test_after_durable_calls_nothing_of_strands_is_replaced(tmp_path: Path) -> None:
    assert run(inline, str(tmp_path)).checked() == []


def test_after_a_dispatched_run_nothing_of_strands_is_replaced(tmp_path: Path) -> None:
    assert run(dispatched, str(tmp_path)).checked() == []


def test_a_child_that_was_forked_during_a_durable_call_has_nothing_replaced(tmp_path: Path) -> None:
    assert run(forked, str(tmp_path)).checked() == []


def test_beside_durable_calls_an_agent_that_is_not_durable_is_treated_as_without_them(tmp_path: Path) -> None:
    found = run(beside, str(tmp_path)).checked()
    assert found["seen"] == [[True, True]] * 3
    for what in ("copies", "events"):
        alone = found[what]["alone"]
        assert alone > 0
        assert (found[what]["beside both"], found[what]["beside one"]) == (alone, alone), what
    assert found["copies"].get("first", 0) < found["copies"]["alone"], "a durable one is spared the slow copies"
    assert found["copies"].get("second", 0) < found["copies"]["alone"], "also once the other has ended"
    assert found["replaced"] == []
