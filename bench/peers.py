"""``make bench-peers``: the same steps on DBOS (SQLite) and on LangGraph's SqliteSaver, beside ours, in one run.

A step is a function that returns 2 KB. Each system is held against itself without durability: a plain loop for DBOS, a graph
without a saver for LangGraph, the same tool without the plugin for our `durable.step`. For our agents it is plain Strands with
our speed-ups: without them the difference would show how slow Strands is, not what durability costs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import operator
import os
import signal
import sqlite3
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TypedDict

from bench.run import RESULTS, console, environment, medians, new_table, resume_copy, scratch, steps_in
from bench.workload import EXECUTION_ID, PROMPT, Found, Watch, page_text, run_child, stored_bytes

MODULE = "bench.peers"
PACKAGES = ("dbos", "langgraph", "langgraph-checkpoint-sqlite")
COMMAND = 'pip install -e ".[peers]"'

InStep = Callable[[int], None]
Run = Callable[[], object]


# The systems: prepare a run of so many steps, or go on with one that was killed


class Dbos:
    """A DBOS workflow of many steps. Going on is launching: DBOS then recovers what was pending."""

    def __init__(self, folder: Path, in_step: InStep, *, durable: bool) -> None:
        from dbos import DBOS, DBOSConfig

        self._dbos, self._durable, self._launched = DBOS, durable, False
        url = f"sqlite:///{folder / 'runs.db'}"
        DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="ERROR"))

        @DBOS.step()
        def read_page(page: int) -> str:
            in_step(page)
            return page_text(page)

        @DBOS.workflow()
        def read_pages(steps: int) -> None:
            for page in range(steps):
                read_page(page)

        self._workflow = read_pages

    def prepare(self, execution_id: str, steps: int) -> Run:
        """Return a run that is ready to go."""
        from dbos import SetWorkflowID

        if not self._durable:
            return lambda: [page_text(page) for page in range(steps)]
        if not self._launched:
            self._dbos.launch()
            self._launched = True

        def run() -> None:
            with SetWorkflowID(execution_id):
                self._workflow(steps)

        return run

    def go_on(self, execution_id: str, steps: int) -> Run:
        """Return the continuation of a run that was killed."""

        def run() -> None:
            self._dbos.launch()
            self._dbos.retrieve_workflow(execution_id).get_result()

        return run


class Pages(TypedDict):
    """The state of the graph."""

    page: int
    pages: Annotated[list[str], operator.add]


class LangGraph:
    """A graph whose one node runs many times, with SqliteSaver and ``durability="sync"``."""

    def __init__(self, folder: Path, in_step: InStep, *, durable: bool) -> None:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph

        self._durable, self._left = durable, 0

        def read_page(state: Pages) -> dict[str, Any]:
            in_step(state["page"])
            return {"page": state["page"] + 1, "pages": [page_text(state["page"])]}

        graph = StateGraph(Pages)
        graph.add_node("read_page", read_page)
        graph.add_edge(START, "read_page")
        graph.add_conditional_edges("read_page", lambda state: "read_page" if state["page"] < self._left else END)
        saver = SqliteSaver(sqlite3.connect(folder / "runs.db", check_same_thread=False)) if durable else None
        self._graph = graph.compile(checkpointer=saver)

    def prepare(self, execution_id: str, steps: int) -> Run:
        """Return a run that is ready to go."""
        return lambda: self._invoke({"page": 0, "pages": []}, execution_id, steps)

    def go_on(self, execution_id: str, steps: int) -> Run:
        """Return the continuation of a run that was killed."""
        return lambda: self._invoke(None, execution_id, steps)

    def _invoke(self, given: Any, execution_id: str, steps: int) -> None:
        self._left = steps
        config = {"configurable": {"thread_id": execution_id}, "recursion_limit": steps + 10}
        self._graph.invoke(given, config, **({"durability": "sync"} if self._durable else {}))


class DurableStep:
    """One agent whose one tool makes many calls of `durable.step`."""

    def __init__(self, folder: Path, in_step: InStep, *, durable: bool) -> None:
        self._store, self._in_step, self._durable = folder / "runs.db", in_step, durable

    def prepare(self, execution_id: str, steps: int) -> Run:
        """Return a run that is ready to go."""
        from strands import Agent, tool

        from strands_durable import Durability, durable
        from strands_durable.testing import ScriptedModel, call

        def read_page(page: int) -> str:
            self._in_step(page)
            return page_text(page)

        @tool
        async def read_pages() -> str:
            """Read all pages."""
            for page in range(steps):
                await durable.step("read_page", lambda page=page: read_page(page))
            return "Read."

        plugins = [Durability(self._store, execution_id=execution_id)] if self._durable else []
        model = ScriptedModel([call("read_pages"), "All pages are read."])
        agent = Agent(model=model, tools=[read_pages], plugins=plugins, callback_handler=None)
        return lambda: asyncio.run(agent.invoke_async(PROMPT))

    go_on = prepare


@dataclass(frozen=True, kw_only=True)
class System:
    """A row of the table."""

    label: str
    make: Callable[..., Any] | None
    """None for our agents, which `bench.workload` runs."""


SYSTEMS = {
    "agent": System(label="ours: steps of an agent", make=None),
    "step": System(label="ours: durable.step", make=DurableStep),
    "dbos": System(label="DBOS, SQLite", make=Dbos),
    "langgraph": System(label="LangGraph, SqliteSaver, sync", make=LangGraph),
}


# Tasks of the children


def timed(system: str, durable: bool, plan: list[list[int]], folder: str) -> Found:
    """Time executions: ``plan`` holds pairs of steps and how many executions of that length."""
    make = SYSTEMS[system].make
    assert make is not None
    subject = make(Path(folder), lambda page: None, durable=durable)
    subject.prepare("warm-up", 3)()
    found: Found = {}
    for steps, executions in plan:
        rounds = []
        for number in range(executions):
            run = subject.prepare(f"{steps}-{number}", steps)
            gc.collect()
            watch = Watch()
            run()
            rounds.append(watch.read_ms())
        cpus, walls = zip(*rounds, strict=True)
        found[str(steps)] = {"cpu_ms": statistics.median(cpus), "wall_ms": statistics.median(walls)}
    return found


def crash(system: str, steps: int, folder: str) -> Found:
    """Run ``steps`` steps and be killed inside the next one."""

    def in_step(page: int) -> None:
        if page == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    make = SYSTEMS[system].make
    assert make is not None
    make(Path(folder), in_step, durable=True).prepare(EXECUTION_ID, steps + 1)()
    raise AssertionError("the process has outlived its crash")


def resume(system: str, steps: int, folder: str) -> Found:
    """Time a fresh process from its call to the first live step; imports are not counted."""
    seen: dict[int, float] = {}
    make = SYSTEMS[system].make
    assert make is not None
    subject = make(Path(folder), lambda page: seen.setdefault(page, watch.read_ms()[1]), durable=True)
    run = subject.go_on(EXECUTION_ID, steps + 1)
    watch = Watch()
    run()
    first, wall_ms = next(iter(seen.items()))
    return {"tool_wall_ms": wall_ms, "repeated": steps - first}


TASKS: dict[str, Callable[..., Found]] = {"timed": timed, "crash": crash, "resume": resume}


# Measuring and printing


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often each thing is measured."""

    sizes: tuple[int, ...] = (10, 100, 1000)
    rounds: tuple[int, ...] = (3, 3, 1)
    resumes: int = 3


def measure(plan: Plan) -> Found:
    """Measure every system at every size, one after the other in each round."""
    raw: dict[str, list[Found]] = {}
    for size, rounds in zip(plan.sizes, plan.rounds, strict=True):
        for number in range(rounds):
            for system in SYSTEMS:
                for durable in (False, True):
                    with console.status(f"{size} steps, round {number + 1} of {rounds}: {system}"):
                        raw.setdefault(f"{system} {durable} {size}", []).append(_timed(system, durable, size))
    found: Found = {name: {} for name in SYSTEMS}
    for system in SYSTEMS:
        empty = _killed(system, 0, 0)["stored_bytes"]
        for size in plan.sizes:
            killed = _killed(system, size, plan.resumes)
            plain, own = (medians(raw[f"{system} {durable} {size}"]) for durable in (False, True))
            count = steps_in(size) if system == "agent" else size
            found[system][str(size)] = {
                "cpu_ms_per_step": (own["cpu_ms"] - plain["cpu_ms"]) / count,
                "wall_ms_per_step": (own["wall_ms"] - plain["wall_ms"]) / count,
                "kb_per_step_of_2_kb": (killed["stored_bytes"] - empty) / size / 1024,
                "resume_ms": killed.get("tool_wall_ms"),
                "repeated_steps": killed.get("repeated", 0),
            }
    return found


def _timed(system: str, durable: bool, size: int) -> Found:
    plan = [(size, 10 if size == 10 else 1)]
    with scratch() as folder:
        if system == "agent":
            variant = "durable" if durable else "quickened"
            found = run_child("timed", variant=variant, plan=plan, folder=folder)
        else:
            found = run_child("timed", MODULE, system=system, durable=durable, plan=plan, folder=folder)
    times: Found = found[str(size)]
    return times


def _killed(system: str, size: int, resumes: int) -> Found:
    """Kill a run, look at what it stored, and go on with it a few times."""
    with scratch() as folder, console.status(f"{size} steps, then a kill: {system}"):
        if system == "agent":
            run_child("crash", cycles=size, folder=folder)
            rounds = [resume_copy(folder, variant="durable", cycles=size) for _ in range(resumes)]
        else:
            run_child("crash", MODULE, system=system, steps=size, folder=folder)
            rounds = [resume_copy(folder, MODULE, system=system, steps=size) for _ in range(resumes)]
        return {**(medians(rounds) if rounds else {}), "stored_bytes": stored_bytes(Path(folder))}


TABLES = {
    "Milliseconds per step, over the same without durability": {
        "CPU": ("cpu_ms_per_step", "+.2f"),
        "wall": ("wall_ms_per_step", "+.2f"),
    },
    "KB per result of 2 KB, and ms to the first new step after a kill": {
        "KB": ("kb_per_step_of_2_kb", ".1f"),
        "ms": ("resume_ms", ".0f"),
    },
}


def show(plan: Plan, found: Found) -> None:
    """Print one row per system."""
    for title, columns in TABLES.items():
        table = new_table(title, plan.sizes, *columns)
        for name, system in SYSTEMS.items():
            cells = [format(found[name][str(size)][key], form) for key, form in columns.values() for size in plan.sizes]
            table.add_row(system.label, *cells)
        console.print(table)
    console.print(
        "An agent's step is a model or a tool call, its KB those of a whole cycle. After a kill: from the call (DBOS: from"
        " launch) in a new process to the first live step, imports not counted; ours with what Strands itself needs."
    )


def missing() -> list[str]:
    """Return the packages that are not installed."""
    absent = []
    for package in PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            absent.append(package)
    return absent


def main() -> None:
    """Measure, print, and keep the numbers as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--quick", action="store_true", help="10 and 100 steps only")
    plan = Plan(sizes=(10, 100), rounds=(1, 1), resumes=1) if parser.parse_args().quick else Plan()
    absent = missing()
    if absent:
        print(f"bench.peers needs {', '.join(absent)}. Run: {COMMAND}", file=sys.stderr)
        raise SystemExit(2)
    found = measure(plan)
    show(plan, found)
    about = {**environment(), **{package: version(package) for package in PACKAGES}}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "peers.json").write_text(json.dumps({"environment": about, "systems": found}, indent=2) + "\n")
    console.print("Kept in bench/results/peers.json: " + ", ".join(f"{name} {value}" for name, value in about.items()))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in TASKS:
        print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))), flush=True)
        os._exit(0)  # the systems leave threads behind
    main()
