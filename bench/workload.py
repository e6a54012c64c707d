"""What is measured, and the child processes that measure it.

One cycle is one model call and one tool call: a scripted model without latency asks for a page, the tool returns 2 KB. Each
task runs in a process of its own (``python -m bench.workload TASK JSON``) and prints its findings as one line of JSON, so that
plain Strands is never measured in a process where `Durability` has quickened it.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import hashlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULT_CHARS = 2048
PAGE_BYTES = 8192
SEGMENT_TURNS = 20
EXECUTION_ID = "bench"
PROMPT = "Read the pages."

Found = dict[str, Any]


def page_text(page: int) -> str:
    """Return 2 KB that compress badly and differ from page to page."""
    return hashlib.shake_256(str(page).encode()).hexdigest(RESULT_CHARS // 2)


def run_child(task: str, module: str = "bench.workload", **given: Any) -> Found:
    """Run a task in a fresh process; return what it printed last, or nothing if it was killed as planned."""
    command = [sys.executable, "-m", module, task, json.dumps(given)]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == -signal.SIGKILL and task.endswith("crash"):
        return {}
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)} ended with {done.returncode}")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


class Watch:
    """CPU and wall time since it was started; CPU counts every thread of the process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read_ms(self) -> tuple[float, float]:
        """Return CPU and wall milliseconds."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return cpu * 1000, wall * 1000


# The agent, in three variants


class Probe:
    """Tells when the first tool and the first model call of a process begin, and lets a task act inside them."""

    def __init__(self) -> None:
        self.in_tool: Callable[[int], None] | None = None
        self.in_model: Callable[[], None] | None = None


def build(cycles: int, plugins: list[Any], probe: Probe | None = None) -> Any:
    """Return an agent that reads ``cycles`` pages and says so."""
    from strands import Agent, tool
    from strands.agent.conversation_manager import NullConversationManager

    from strands_durable.testing import ScriptedModel, call

    watched = probe or Probe()

    @tool
    def read_page(page: int) -> str:
        """Read a page.

        Args:
            page: Its number.
        """
        if watched.in_tool is not None:
            watched.in_tool(page)
        return page_text(page)

    def script(turn: int, messages: list[Any]) -> Any:
        if watched.in_model is not None:
            watched.in_model()
        return call("read_page", page=turn) if turn < cycles else "All pages are read."

    return Agent(
        model=ScriptedModel(script),
        tools=[read_page],
        plugins=plugins,
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )


def run_plain(agent: Any, prompt: str | None = PROMPT) -> None:
    """Run an agent in segments as long as those of `Durability`: in one piece Strands dies at about 320 cycles."""
    limits = {"turns": SEGMENT_TURNS}
    result = agent(prompt, limits=limits)
    while result.stop_reason == "limit_turns":
        result = agent(limits=limits)


def make(variant: str, cycles: int, store: Path, execution_id: str, probe: Probe | None = None) -> Callable[[], None]:
    """Return a run that is ready to go: building the agent is not part of what is timed.

    ``quickened`` is plain Strands with the two speed-ups that `Durability` brings along: what is left of the difference to
    ``durable`` is what durability itself costs.
    """
    if variant in ("durable", "encrypted"):
        from strands_durable import Durability

        plugin = Durability(
            store,
            execution_id=execution_id,
            segment_turns=SEGMENT_TURNS,
            cipher=_cipher() if variant == "encrypted" else None,
        )
        agent = build(cycles, [plugin], probe)
        return lambda: agent(PROMPT)
    if variant == "quickened":
        _quicken()
    agent = build(cycles, [], probe)
    return lambda: run_plain(agent)


@functools.cache
def _quicken() -> None:
    from strands_durable._strands.patches import DurableSeams

    def ignore(*_: Any) -> None:
        """No span is recorded here, and no model state."""

    def offer(agent: Any, model: Any) -> Any:
        return model

    DurableSeams(lambda: True, offer, lambda seconds, what: asyncio.sleep(seconds), ignore, ignore).open()


@functools.cache
def _cipher() -> Any:
    from strands_durable import Cipher

    return Cipher({"bench": bytes(32)})


# Tasks


def timed(variant: str, plan: list[list[int]], folder: str) -> Found:
    """Time executions: ``plan`` holds pairs of cycles and how many executions of that length."""
    store = Path(folder) / "timed.db"
    make(variant, 3, store, "warm-up")()
    found: Found = {}
    for cycles, executions in plan:
        rounds = []
        for number in range(executions):
            run = make(variant, cycles, store, f"{cycles}-{number}")
            gc.collect()
            rss_before = _rss_kb()
            watch = Watch()
            run()
            cpu, wall = watch.read_ms()
            rounds.append((cpu, wall, _rss_kb() - rss_before, _peak_rss_kb()))
            del run
        cpus, walls, grown, peaks = zip(*rounds, strict=True)
        found[str(cycles)] = {
            "cpu_ms": statistics.median(cpus),
            "wall_ms": statistics.median(walls),
            "rss_grown_kb": grown[0],
            "peak_rss_kb": peaks[0],
        }
    return found


def commits(cycles: int, folder: str) -> Found:
    """Count the transactions that one more cycle takes, by name."""
    from strands_durable.testing import CrashPoints

    points = CrashPoints()
    with points.recording():
        make("durable", cycles, Path(folder) / "commits.db", EXECUTION_ID)()
    names = [point.partition(":after@")[0] for point in points.reached if ":after@" in point]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def crash(cycles: int, folder: str) -> Found:
    """Run ``cycles`` cycles and be killed inside the tool of the next one; leave the conversation beside the journal."""
    probe = Probe()
    agent: Any = None

    def in_tool(page: int) -> None:
        if page == cycles:
            (Path(folder) / "messages.json").write_text(json.dumps(agent.messages))
            os.kill(os.getpid(), signal.SIGKILL)

    from strands_durable import Durability

    plugin = Durability(Path(folder) / "runs.db", execution_id=EXECUTION_ID, segment_turns=SEGMENT_TURNS)
    agent = build(cycles + 1, [plugin], probe)
    probe.in_tool = in_tool
    agent(PROMPT)
    raise AssertionError("the process has outlived its crash")


def resume(variant: str, cycles: int, folder: str) -> Found:
    """Time a fresh process from its call to the first tool call, and on to the first model call; imports are not counted."""
    probe, seen, watch = Probe(), {}, Watch()

    def note(name: str, page: int | None = None) -> None:
        seen.setdefault(name, (*watch.read_ms(), page))

    probe.in_tool = lambda page: note("tool", page)
    probe.in_model = lambda: note("model")
    if variant == "durable":
        run = make(variant, cycles + 1, Path(folder) / "runs.db", EXECUTION_ID, probe)
        watch = Watch()
    else:
        agent = build(cycles + 1, [], probe)
        messages = json.loads((Path(folder) / "messages.json").read_text())
        watch = Watch()
        agent.messages = messages

        def run() -> None:
            run_plain(agent, None)

    run()
    if seen["tool"][2] != cycles:
        raise AssertionError(f"the first live tool call was page {seen['tool'][2]}, not {cycles}")
    return {f"{name}_{unit}": value[at] for name, value in seen.items() for at, unit in ((0, "cpu_ms"), (1, "wall_ms"))}


def bare_commits(folder: str, rows: int, work_ms: float) -> Found:
    """Time bare SQLite commits of one 2 KB row; ``work_ms`` of other computing in between is not counted.

    Between the commits of a real run the agent computes, and the caches hold something else; a tight loop hides that.
    """
    connection = sqlite3.connect(Path(folder) / f"bare-{work_ms:g}.db", isolation_level=None)
    for statement in (f"page_size = {PAGE_BYTES}", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {statement}")
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data TEXT NOT NULL)")
    conversation = [{"role": "user", "content": [{"text": page_text(page)}]} for page in range(20)]
    cpus, walls = [], []
    for row in range(rows):
        until = time.perf_counter() + work_ms / 1000
        while time.perf_counter() < until:
            copy.deepcopy(json.loads(json.dumps(conversation[row % 20])))
        data = page_text(row)
        watch = Watch()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows (data) VALUES (?)", (data,))
        connection.execute("COMMIT")
        cpu, wall = watch.read_ms()
        cpus.append(cpu)
        walls.append(wall)
    connection.close()
    return {"cpu_ms": statistics.median(cpus), "wall_ms": statistics.median(walls)}


def stored_bytes(folder: Path) -> int:
    """Return the size of a journal, with its WAL moved into the file and the file closed."""
    copied = folder / "closed"
    copied.mkdir()
    for file in folder.glob("runs.db*"):
        shutil.copy(file, copied)
    connection = sqlite3.connect(copied / "runs.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return sum(file.stat().st_size for file in copied.iterdir())


def _rss_kb() -> int:
    """Return the memory in use now, in KB; 0 where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize() // 1024


def _peak_rss_kb() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


TASKS: dict[str, Callable[..., Found]] = {
    "timed": timed,
    "commits": commits,
    "crash": crash,
    "resume": resume,
    "bare_commits": bare_commits,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
