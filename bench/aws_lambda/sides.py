"""The sides behind one face: whose Python runs the function, and how a run is started."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.aws_lambda.script import prompt_for
from strands_durable.testing.aws_lambda import LocalLambda

ROOT = Path(__file__).resolve().parents[2]
PEER_PYTHON = ROOT / ".venv-peers-lambda" / "bin" / "python"
"""The peer requires an older SDK than ours: both cannot be in one virtualenv."""
NAME = "run--1"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of them."""

    label: str
    module: str
    python: str
    agent: str = ""

    @property
    def is_there(self) -> bool:
        """Return whether its virtualenv exists."""
        return Path(self.python).exists()

    def versions(self, *packages: str) -> dict[str, str]:
        """Return the versions of packages in its virtualenv."""
        code = f"import json; from importlib.metadata import version; print(json.dumps({{p: version(p) for p in {packages}}}))"
        found: dict[str, str] = json.loads(subprocess.check_output([self.python, "-c", code]))
        return found

    def start(self, aws: LocalLambda, function: str, cycles: int) -> None:
        """Start a run as its documentation says: ours through `connect`, the peer's with a plain event."""
        if self.agent:
            asyncio.run(self._dispatched(aws.url(function), cycles))
            return
        event = json.dumps({"prompt": prompt_for(cycles)}).encode()
        aws.client().invoke(FunctionName=function, InvocationType="Event", DurableExecutionName=NAME, Payload=event)

    async def _dispatched(self, url: str, cycles: int) -> None:
        from bench.aws_lambda import ours
        from strands_durable import connect

        spec = getattr(ours, self.agent).spec_with(cycles=cycles)
        backend = connect(url)
        try:
            await backend.dispatch(spec, prompt_for(cycles), execution_id=NAME.partition("--")[0])
        finally:
            await backend.close()


SIDES: dict[str, Side] = {
    "peer": Side(label="pydantic-ai", module="bench.aws_lambda.peer", python=str(PEER_PYTHON)),
    "ours": Side(label="ours", module="bench.aws_lambda.ours", python=sys.executable, agent="reader"),
    "window": Side(
        label="ours, 40 messages", module="bench.aws_lambda.ours", python=sys.executable, agent="window_reader"
    ),
}
