"""The sides behind one face: whose Python runs a worker, and how a run is started."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.dapr.script import prompt_for
from strands_durable.testing.dapr import Sidecar

ROOT = Path(__file__).resolve().parents[2]
PEER_PYTHON = ROOT / ".venv-peers-dapr" / "bin" / "python"
"""The peer requires packages that overwrite files of the `dapr` that ours requires."""
RUN = "run-1"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of them."""

    label: str
    python: str
    packages: tuple[str, ...]
    options: str = ""
    """What is added to our URL; the peer has none."""
    agent: str = ""
    """Which of our agents; the peer has none of them."""

    @property
    def is_ours(self) -> bool:
        """Return whether it is one of ours."""
        return bool(self.agent)

    @property
    def is_there(self) -> bool:
        """Return whether its virtualenv exists."""
        return Path(self.python).exists()

    def versions(self) -> dict[str, str]:
        """Return the versions of its packages."""
        code = (
            "import json, importlib.metadata as m; "
            f"print(json.dumps({{p: m.version(p) for p in {self.packages}}}))"
        )  # fmt: skip
        found: dict[str, str] = json.loads(subprocess.check_output([self.python, "-c", code]))
        return found

    def worker(self, sidecar: Sidecar) -> list[str]:
        """Return what starts a worker, as a user would."""
        if not self.is_ours:
            return [self.python, "-m", "bench.dapr.peer", str(sidecar.grpc_port)]
        command = [self.python, "-m", "strands_durable", "worker", "bench.dapr.ours", "--quiet"]
        return [*command, "--backend", sidecar.url + self.options]

    def starter(self, sidecar: Sidecar, cycles: int) -> list[str]:
        """Return what starts the run; it may serve as a worker, too."""
        if self.is_ours:
            return [self.python, "-m", "bench.dapr.sides", sidecar.url + self.options, self.agent, str(cycles)]
        return [*self.worker(sidecar), str(cycles)]


_OURS = ("dapr", "strands-agents")
SIDES: dict[str, Side] = {
    "peer": Side(label="diagrid", python=str(PEER_PYTHON), packages=("diagrid", "dapr", "strands-agents")),
    "ours": Side(label="ours", python=sys.executable, packages=_OURS, agent="reader"),
    "window": Side(label="ours, 40 messages", python=sys.executable, packages=_OURS, agent="window_reader"),
    "silent": Side(
        label="ours, 40 messages, steps=off",
        python=sys.executable,
        packages=_OURS,
        options="&steps=off",
        agent="window_reader",
    ),
}


async def dispatch(url: str, agent: str, cycles: int) -> None:
    """Dispatch our run."""
    from bench.dapr import ours
    from strands_durable import connect

    backend = connect(url)
    try:
        spec = getattr(ours, agent).spec_with(cycles=cycles)
        await backend.dispatch(spec, prompt_for(cycles), execution_id=RUN)
    finally:
        await backend.close()


if __name__ == "__main__":
    asyncio.run(dispatch(sys.argv[1], sys.argv[2], int(sys.argv[3])))
