"""What a kill does to each tool and plugin of Strands and strands-agents-tools: the survey, and the tables in docs/features.md.

Each scenario is killed at every boundary and in the middle of each effect, resumed in a new process, and compared with its run
that was not killed: its result, messages and state, and all files of its folder, in which servers note their requests, too.
`python -m tests.public_tools.survey` writes the tables; a test compares them with what it finds.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

from strands_durable import ToolPolicy
from strands_durable._strands.public_tools import may_live_in_process
from strands_durable.testing import CrashPoints
from tests.crash.scenarios import seen
from tests.features.harness import answered
from tests.processes import run
from tests.public_tools import servers, strike, tables
from tests.public_tools.scenario import Place, Scenario, environment, scenarios

ROOMS = ("vended_tools", "vended_plugins", "strands_tools")
"""The rooms of scenarios."""
_DULL = re.compile(r"lease:|model .*:(chunk .*|end)@|(?!tool\.done).*:before@|tool .*:start@")
"""Points at which the world and the file are as they were at the point before, so that a kill there shows nothing new."""
_OURS = re.compile(r"runs\.db.*|found\.json|output|" + "|".join(strike.NOTES))
_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?([+-]\d\d:\d\d|Z)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)?m?s\b|\b\d+\.\d+\b"), "NUMBER"),
    (re.compile(r"\b[A-Za-z0-9]{52}\b"), "ID"),
    (re.compile(r"\btooluse_\w+_\d+"), "ID"),
    (re.compile(r"\b(?=[0-9a-f]*[a-f])[0-9a-f]{8,31}\b|\b\d{9,}\b"), "ID"),
)
"""What differs from run to run."""
_SECONDS = 60
_READ_AT_IMPORT = ("strands_tools.rss", "strands_tools.workflow")
"""They read the folder that they write to when they are imported, so that each run imports them anew."""


@dataclass
class Finding:
    """What was found of a scenario."""

    name: str
    kills: int = 0
    lost: int = 0
    """Kills after which the end was another though no tool was in doubt, or something was missing."""
    doubts: int = 0
    """Kills that left a tool in doubt."""
    repeated: int = 0
    """Those after which something was done twice."""
    changed: int = 0
    """Those after which the model saw something else, and nothing was done twice."""
    restored: bool = False
    """True if finished calls were repeated, and something is lost without that."""
    example: str = ""
    """The first kill that lost something, and what was different."""

    def row(self) -> str:
        """Return the line of the table."""
        found = scenarios[self.name]
        end = "**another**" if self.lost else "the same"
        if self.restored:
            end += "; finished calls are repeated"
        return f"| {found.title} | {self.kills} | {end} | {self._doubt()} | {found.note} |"

    def _doubt(self) -> str:
        kinds = {"done twice": self.repeated, "another result": self.changed}
        found = [kind for kind, times in kinds.items() if times]
        return ", ".join(found) or ("the same" if self.doubts else "never")


def load() -> dict[str, Scenario]:
    """Return all scenarios, by name."""
    for room in ROOMS:
        import_module(f"tests.public_tools.{room}")
    return scenarios


def examine(name: str, root: Path) -> Finding:
    """Kill a scenario everywhere."""
    with ExitStack() as stack:
        web, remote, aws = (
            stack.enter_context(found) for found in (servers.web(root), servers.remote(), servers.aws())
        )
        place = {"web": web, "remote": remote, "aws": aws}
        return Finding(**run(_examine, name, str(root), place, timeout=280).checked())


# In a process that has imported what the scenario needs, and is forked for each run


def _examine(name: str, root: str, urls: dict[str, str]) -> dict[str, Any]:
    load()
    if scenarios[name].module not in _READ_AT_IMPORT:
        import_module(scenarios[name].module)
    gc.freeze()  # a collection in a fork would copy every page that it looks at
    folder = Path(root)

    def place(number: object) -> Place:
        where = folder / f"run-{str(number).ljust(40, '-')}"  # all of one length, which servers give in headers
        where.mkdir()
        _prepare(where)
        return Place(where, **{**urls, "web": f"{urls['web']}/{where.name}"})

    found, whole = Finding(name), place("whole")
    expected = _played(name, whole)
    assert scenarios[name].may_fail or '"status": "error"' not in expected["end"], expected["end"]
    wanted = re.compile(scenarios[name].points)
    points = [point for point in expected["points"] if not _DULL.match(point) and wanted.match(point)]
    effects = [] if scenarios[name].points else _effects(whole.folder)
    for number, point in enumerate([*points, *effects]):
        killed = place(number)
        _kill(name, killed, point)
        _judge(found, point, _in_doubt(killed.folder), expected, _played(name, killed))
    found.restored = bool(expected["in_process"]) and not found.lost and _needs_repetition(name, place, expected)
    return asdict(found)


def _judge(found: Finding, point: str, in_doubt: list[str], expected: Any, resumed: Any) -> None:
    found.kills += 1
    found.doubts += bool(in_doubt)
    world = _without_repeated_payment(resumed["world"]) if "pay" in in_doubt else resumed["world"]
    same_world, same_end = world == expected["world"], resumed["end"] == expected["end"]
    if same_world and same_end:
        return
    is_less = any(len(world.get(name, "")) < len(text) for name, text in expected["world"].items())
    if in_doubt and not is_less:
        found.repeated += not same_world
        found.changed += same_world
        return
    found.lost += 1
    found.example = found.example or f"{point}:\n{_difference(expected, resumed)}"


def _needs_repetition(name: str, place: Callable[[object], Place], expected: Any) -> bool:
    """Return True if the end is another when finished calls are not repeated."""
    policies = dict.fromkeys(expected["in_process"], ToolPolicy(on_resume="reuse"))
    points = [point for point in expected["points"] if point.startswith("tool.done:after@")]
    for point in points:
        killed = replace(place(f"reuse-{point}"), policies=policies)
        _kill(name, killed, point)
        if _played(name, killed)["end"] != expected["end"]:
            return True
    return False


def _kill(name: str, place: Place, point: str) -> None:
    status = _forked(place, name, point)
    assert os.WIFSIGNALED(status), f"{point}: {_said(place)}"
    assert os.WTERMSIG(status) == signal.SIGKILL, f"{point}: {_said(place)}"


def _played(name: str, place: Place) -> Any:
    status = _forked(place, name, None)
    assert status == 0, f"in {place.folder}: {status}: {_said(place)}"
    found = json.loads((place.folder / "found.json").read_text())
    return {**found, "world": _world(place)}


def _forked(place: Place, name: str, point: str | None) -> int:
    """Run a scenario in a process of its own; return how that ended."""
    process = os.fork()
    if process == 0:
        try:
            _play(place, scenarios[name], point)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # without waiting for the threads of tools
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError(f"{name} does not end, {point}: {_said(place)}")


def _play(place: Place, scenario: Scenario, point: str | None) -> None:
    os.chdir(place.folder)
    os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(1, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    environment(place)
    kind, _, number = (point or "").partition("@")
    strikes = place.folder / "strike"
    strikes.unlink(missing_ok=True)
    points = CrashPoints()
    if kind == "effect":
        strikes.write_text(f"{os.getpid()} {number}")
    deadly = None if point is None or kind == "effect" else point
    with points.recording() if deadly is None else points.crashing(deadly):
        agent = scenario.build(place)
        result = answered(agent, "Go", lambda _: scenario.answer)
        end = _plain(json.dumps(seen(agent, result), default=str, sort_keys=True), place)
    in_process = [name for name, tool in agent.tool_registry.registry.items() if may_live_in_process(tool)]
    found = {"end": end, "points": points.reached, "in_process": in_process}
    Path("found.json").write_text(json.dumps(found))


# What is seen of a run


def _prepare(folder: Path) -> None:
    (folder / "trip").write_text("Rome\n")
    (folder / "loaded.py").write_text(_LOADED)
    Image.new("RGB", (1, 1)).save(folder / "given.png")


_LOADED = '''from strands import tool


@tool
def loaded(city: str) -> str:
    """Greet a city."""
    return f"Hello, {city}"
'''


def _world(place: Place) -> dict[str, str]:
    """Return all files that the run has made, without what differs from run to run."""
    files = (path for path in sorted(place.folder.rglob("*")) if path.is_file() and not path.is_symlink())
    names = {path: str(path.relative_to(place.folder)) for path in files}
    found: dict[str, str] = {}
    for path, name in names.items():
        if not _OURS.fullmatch(name) and not name.startswith((".config/", ".cache/", ".browser", "repl_state/")):
            shown = _plain(name, place)
            found[shown] = found.get(shown, "") + _plain(path.read_text(errors="replace"), place)
    return found


def _without_repeated_payment(world: dict[str, str]) -> dict[str, str]:
    """Leave out what is repeated with the same key: the payments of our own tool, which no row is about."""
    ledger = world.get("ledger.jsonl", "").splitlines(keepends=True)
    return {**world, "ledger.jsonl": "".join(dict.fromkeys(ledger))}


def _plain(text: str, place: Place) -> str:
    for given, name in (
        (str(place.folder), "FOLDER"),
        (place.web, "WEB"),
        (place.aws, "AWS"),
        (place.folder.name, "NAME"),
    ):
        text = text.replace(given, name)
    for volatile, name in _VOLATILE:
        text = volatile.sub(name, text)
    return re.sub(r'"attempt": \d+', '"attempt": 1', text)


def _effects(folder: Path) -> list[str]:
    """Return the effects that can be killed in the middle."""
    arrivals = folder / "arrivals"
    count = len(arrivals.read_text().splitlines()) if arrivals.exists() else 0
    return [f"effect@{number}" for number in range(1, count + 1)]


def _in_doubt(folder: Path) -> list[str]:
    """Return the tool calls that had started and have no result."""
    with sqlite3.connect(folder / "runs.db") as connection:
        rows = connection.execute(
            "SELECT name FROM steps WHERE kind = 'tool' AND status = 'started' AND attempt ="
            " (SELECT max(attempt) FROM steps AS later WHERE later.call = steps.call AND later.key = steps.key)"
        ).fetchall()
    connection.close()
    return [name for (name,) in rows]


def _said(place: Place) -> str:
    return (place.folder / "output").read_text(errors="replace")[-6000:]


def _difference(expected: Any, resumed: Any) -> str:
    """Return where the ends of two runs, or what they left, begin to differ."""
    pairs = {
        name: (expected["world"].get(name, ""), resumed["world"].get(name, ""))
        for name in (*expected["world"], *resumed["world"])
    }
    pairs["end"] = expected["end"], resumed["end"]
    parts = []
    for name, texts in pairs.items():
        if texts[0] != texts[1]:
            same = next((at for at, (one, two) in enumerate(zip(*texts, strict=False)) if one != two), 0)
            at = max(0, same - 100)
            parts += [f"{name}:", *(f"  {text[at : at + 300]!r}" for text in texts)]
    return "\n".join(parts)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        names = [name for name in load() if all(word in name for word in wanted)]
        found = list(pool.map(lambda name: examine(name, Path(tempfile.mkdtemp(dir=folder))), names))
    if wanted:
        print(*(f"{each.row()}\n{each.example}" for each in found), sep="\n")
    else:
        tables.write((scenarios[each.name].module, each.row()) for each in found)
