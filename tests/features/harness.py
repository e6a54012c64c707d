"""One harness for every feature: kill its program at each boundary, run it again, compare with the run that was not killed.

A feature is a function that builds agents, calls them and returns what must be equal afterwards. It runs in a folder and a
process of its own, keeps its journal in ``runs.db`` under the execution id ``trip``, and writes what the outside world sees to
the ledger (`effect` for tools, `LedgerModel` for model calls).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from strands_durable import Durability
from strands_durable.testing import CrashPoints
from strands_durable.testing._model import _chunks
from tests.crash.audit import audit
from tests.crash.scenarios import Ledger, LedgerModel, bill, effect, seen
from tests.processes import run

__all__ = [
    "BriefModel",
    "LedgerModel",
    "answered",
    "bill",
    "durability",
    "effect",
    "feature",
    "kill_everywhere",
    "seen",
]

MODULES = (
    "interrupts",
    "values",
    "structured",
    "models",
    "managers",
    "media",
    "nesting",
    "children",
    "orchestrators",
    "processes",
    "remote",
    "servers",
    "sessions",
    "clients",
    "loop",
)
"""The rooms of `tests/features`."""


@dataclass(frozen=True)
class Feature:
    """One program."""

    line: int
    """The line of docs/features.md that it shows."""
    name: str
    module: str
    play: Callable[[], Any]
    lossy: bool = False
    """True if a repeated effect is what the feature asks for, so that only the results are compared."""
    around: Callable[[Path], AbstractContextManager[Any]] | None = None
    """Something that outlives the killed processes, a server: entered with the folder above those of the runs."""
    points: str = ""
    """Where it is killed, as a pattern, if killing it everywhere takes too long."""
    check: Callable[[Path, Path, str], None] | None = None
    """Compares what the outside world saw of the whole run and of one killed at a point, by their folders."""


features: dict[str, Feature] = {}
execution_id = "trip"
"""The id that programs run under, in this process."""
_DULL = re.compile(r"lease:|.*:before@|model .*:(chunk .*|end)@|tool .*:start@")
"""Points at which the world and the file are as they were at the point before, so that a kill there shows nothing new: a model
call is on the bill when it starts, and a tool has changed nothing before its effect. `tests/crash` dies at each of them."""
EVERY_POINT = "EVERY_POINT" in os.environ
"""Set it to die at the dull points, too."""


def feature(line: int, name: str, **options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a program to the list; options are those of `Feature`."""

    def add(play: Callable[[], Any]) -> Callable[[], Any]:
        assert name not in features
        features[name] = Feature(line, name, play.__module__.rpartition(".")[2], play, **options)
        return play

    return add


def load() -> dict[str, Feature]:
    """Return all features, by name."""
    for module in MODULES:
        if (Path(__file__).parent / f"{module}.py").exists():
            import_module(f"tests.features.{module}")
    return features


def durability(**options: Any) -> Durability:
    """Return the plugin of a feature's program."""
    return Durability("runs.db", **{"execution_id": execution_id, **options})


class BriefModel(LedgerModel):
    """A model whose stream is not killed chunk by chunk: for features that have nothing to do with it."""

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """Stream the turn that comes next."""
        bill()
        turn = sum(message["role"] == "assistant" for message in messages)
        for chunk in _chunks(turn, self._answer(turn, messages)):
            yield chunk


def answered(call: Callable[[Any], Any], prompt: Any, answer: Callable[[Any], Any], rounds: int = 9) -> Any:
    """Call, and answer every interrupt until there is none; return the last result."""
    result = call(prompt)
    for _ in range(rounds):
        if not result.interrupts:
            return result
        result = call(
            [{"interruptResponse": {"interruptId": found.id, "response": answer(found)}} for found in result.interrupts]
        )
    raise AssertionError("it never stops asking")


def play(module: str, name: str, folder: str, deadly: str | None = None) -> dict[str, Any]:
    """Run a program to its end in this process, or die at a point of it."""
    os.chdir(folder)
    import_module(f"tests.features.{module}")
    points = CrashPoints()
    with points.recording() if deadly is None else points.crashing(deadly):
        found = features[name].play()
    return {"found": found, "points": points.reached}


def kill_everywhere(found: Feature, folder: Path) -> int:
    """Kill the program at each of its points; return their number."""
    with nullcontext() if found.around is None else found.around(folder):
        return _kill_everywhere(found, folder)


def _kill_everywhere(found: Feature, folder: Path) -> int:
    whole = folder / "whole"
    whole.mkdir()
    expected = run(play, found.module, found.name, str(whole)).checked()
    keys = {entry["key"] for entry in Ledger(whole / "ledger.jsonl").read()}
    reached = expected["points"]
    assert any(":chunk" in point or point.startswith("tool ") for point in reached), "it has nothing to be killed in"
    points = [point for point in reached if EVERY_POINT or (re.match(found.points, point) and not _DULL.match(point))]
    for number, point in enumerate(points):
        place = folder / str(number)
        place.mkdir()
        killed = run(play, found.module, found.name, str(place), point)
        assert killed.exitcode == -signal.SIGKILL, f"{point}: {killed}"
        resumed = run(play, found.module, found.name, str(place)).checked()
        assert resumed["found"] == expected["found"], f"killed at {point}"
        if not found.lossy:
            audit(place, "trip", keys)
        if found.check is not None:
            found.check(whole, place, point)
    again = run(play, found.module, found.name, str(whole)).checked()
    assert again["found"] == expected["found"], "run again after its end"
    assert not [point for point in again["points"] if point.startswith(("model", "tool"))], "run again after its end"
    return len(points)
