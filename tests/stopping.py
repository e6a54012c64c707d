"""Workers that are told to stop while what they wait for does not answer, and how long they take by their own clocks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from strands_durable import connect
from strands_durable._dispatch.agent_files import agents_of
from tests.crash import crew

ROOT = Path(__file__).resolve().parents[1]
DRAIN_SECONDS, END_SECONDS = 2.0, 5.0
"""A worker ends within the first plus the second, whatever it waits for."""
LIMIT_SECONDS = DRAIN_SECONDS + END_SECONDS
_PATIENCE_SECONDS = 30.0


def until_told(
    url: str, folder: str, files: tuple[str, ...] = (), trial: list[str] | None = None
) -> tuple[bool, float, float]:
    """Be a worker until SIGTERM; return what its run returned, after how many seconds it did, and when its loop was closed."""
    os.environ["LEDGER"] = str(Path(folder) / "ledger.jsonl")
    os.chdir(folder)
    agents_of(list(files) or [crew.__file__])
    told: list[float] = []

    async def work() -> tuple[bool, float]:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            told.append(time.monotonic())
            stop.set()

        loop.add_signal_handler(signal.SIGTERM, tell)
        Path(f"begun-{os.getpid()}").touch()
        is_clean = await connect(url).work(stop=stop, drain_seconds=DRAIN_SECONDS, trial_command=trial)
        return is_clean, time.monotonic() - told[0]

    is_clean, seconds = asyncio.run(work())
    return is_clean, seconds, time.monotonic() - told[0]


def typed(url: str, folder: Path, *options: str, file: str = crew.__file__, **env: str) -> subprocess.Popen[str]:
    """Start a worker as one types it; its log is a pipe."""
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "LEDGER": str(folder / "ledger.jsonl")}
    drain, named = ["--drain-seconds", f"{DRAIN_SECONDS:g}"], ["--backend", url] if url else []
    return subprocess.Popen(
        [sys.executable, "-m", "strands_durable", "worker", file, *drain, *named, *options],
        cwd=folder,
        env={**os.environ, **paths, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def terminated(worker: subprocess.Popen[str]) -> tuple[int, float, str]:
    """Tell a worker to stop; return its exit code, after how many seconds the process was gone, and its log."""
    began = time.monotonic()
    worker.terminate()
    try:
        _, log = worker.communicate(timeout=_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        _, log = worker.communicate()
        raise AssertionError(f"it did not end within {_PATIENCE_SECONDS:g} s; its log:\n{log}") from None
    return worker.returncode, time.monotonic() - began, log


def ended(worker: Any) -> tuple[bool, float, float]:
    """Tell a worker to stop that runs `until_told`; return what that returned."""
    os.kill(worker.pid, signal.SIGTERM)
    try:
        found: tuple[bool, float, float] = worker.join(_PATIENCE_SECONDS).checked()
    finally:
        worker.process.kill()
    return found
