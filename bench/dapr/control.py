"""The control: our agent with its whole conversation, inline on a SQLite file, without Dapr. What it takes too is not Dapr's.

``python -m bench.dapr.control CYCLES`` prints its findings as one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.dapr.script import LOG, notes, prompt_for
from bench.dapr.sides import ROOT


def measure(cycles: int, folder: Path) -> dict[str, Any]:
    """Run so many cycles in a process of their own; return what they took."""
    command = [sys.executable, "-m", "bench.dapr.control", str(cycles)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), LOG: str(folder / "control.log")}
    found: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=ROOT, env=env).splitlines()[-1])
    return found


def _run(cycles: int) -> None:
    from bench.dapr.ours import whole
    from bench.dapr.runs import pace
    from strands_durable import Durability

    with tempfile.TemporaryDirectory(dir=Path(os.environ[LOG]).parent) as folder:
        whole(cycles, plugins=[Durability(f"{folder}/runs.db", execution_id="run-1")])(prompt_for(cycles))
    print(json.dumps({**pace(notes(Path(os.environ[LOG])), cycles), "machine_load": os.getloadavg()[0]}))


if __name__ == "__main__":
    _run(int(sys.argv[1]))
