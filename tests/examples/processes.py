"""The examples as their users run them: a command in a folder, with an environment, killed with a real signal."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"


def python(*arguments: str | Path, **environment: str) -> list[str]:
    """Return a command that runs Python with more in its environment."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    return ["env", *settings, sys.executable, *map(str, arguments)]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def served(command: list[str], port: int, path: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """Run a server in this folder; give a client of it once it answers at ``path``. It is killed in the end."""
    with open("server.log", "ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def answers() -> bool:
        assert server.poll() is None, Path("server.log").read_text()
        try:
            return client.get(path).status_code < 500
        except httpx.TransportError:
            return False

    try:
        until(answers)
        yield client, server
    finally:
        client.close()
        server.kill()  # `env` has become the server: there is no process between
        server.wait()


def entries(ledger: str) -> list[str]:
    """Return what is in a ledger, without the keys."""
    path = Path(ledger)
    return [line.partition(" ")[2] for line in path.read_text().splitlines()] if path.exists() else []
