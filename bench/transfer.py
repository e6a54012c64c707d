"""Moving an execution: what an export, an import and a replay of a long run cost, and how large its file is.

``python -m bench.transfer`` measures, prints, and keeps the figures in results/transfer.json; `make bench` does so too.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench.workload import EXECUTION_ID, SEGMENT_TURNS, Found, Watch, build, run_child

KEPT = Path(__file__).parent / "results" / "transfer.json"
CYCLES, ROUNDS = 1000, 5


def transfer(cycles: int, folder: str, rounds: int) -> Found:
    """Record a run of ``cycles`` cycles with results of 2 KB, then export, import and replay it; return medians."""
    from strands_durable import Durability, connect
    from strands_durable._enginekit.export_files import parsed, text_of
    from strands_durable.testing import assert_replays

    plugin = Durability(Path(folder) / "runs.db", execution_id=EXECUTION_ID, segment_turns=SEGMENT_TURNS)
    build(cycles, [plugin])("Read all pages")
    handle = connect(f"sqlite:///{folder}/runs.db?worker=off").sync.get(EXECUTION_ID)
    times: dict[str, list[tuple[float, float]]] = {"export": [], "redacted": [], "import": []}
    for number in range(rounds):
        watch = Watch()
        text = text_of(handle.export())
        times["export"].append(watch.read_ms())
        watch = Watch()
        shape = text_of(handle.export(contents=False))
        times["redacted"].append(watch.read_ms())
        watch = Watch()
        connect(f"sqlite:///{folder}/{number}.db?worker=off").sync.import_execution(parsed(text, "The export"))
        times["import"].append(watch.read_ms())
    watch = Watch()
    assert_replays(parsed(text, "The export"), build(cycles, []))
    times["replay"] = [watch.read_ms()]
    found: Found = {
        name: {
            "cpu_ms": statistics.median(cpu for cpu, _ in rows),
            "wall_ms": statistics.median(wall for _, wall in rows),
        }
        for name, rows in times.items()
    }
    stored = (Path(folder) / "runs.db").stat().st_size
    return found | {"bytes": len(text.encode()), "redacted_bytes": len(shape.encode()), "stored_bytes": stored}


def measure(*, quick: bool = False) -> Found:
    """Measure in a process of its own."""
    from bench.run import environment, scratch

    cycles, rounds = (100, 2) if quick else (CYCLES, ROUNDS)
    with scratch() as folder:
        found = run_child("transfer", "bench.transfer", cycles=cycles, folder=folder, rounds=rounds)
    return found | {"steps": 2 * cycles + 1, "environment": environment()}


def lines(found: Found) -> list[tuple[str, str]]:
    """Return the figures as names and values."""
    names = {
        "export": "export",
        "redacted": "export without contents",
        "import": "import, one transaction",
        "replay": "replay",
    }
    rows = [
        (name, f"{found[key]['wall_ms']:.0f} ms, {found[key]['cpu_ms'] / found['steps']:.2f} ms CPU per step")
        for key, name in names.items()
    ]
    sizes = [found[name] / 1024**2 for name in ("bytes", "stored_bytes", "redacted_bytes")]
    return [
        *rows,
        ("size of the file", "{:.1f} MB; the store has {:.1f} MB; without contents {:.1f} MB".format(*sizes)),
    ]


def kept(*, quick: bool = False) -> Found:
    """Measure and keep the figures, unless they are of a quick run."""
    found = measure(quick=quick)
    if not quick:
        KEPT.write_text(json.dumps(found, indent=2) + "\n")
    return found


def main(arguments: list[str]) -> None:
    """Measure and print, or run a task in a child."""
    if arguments:
        given: dict[str, Any] = json.loads(arguments[1])
        print(json.dumps(transfer(**given)))
        return
    for name, value in lines(kept()):
        print(f"{name:26} {value}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
