"""Real processes for tests: forked from a clean server that has the imports behind it, killed with real signals."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import until

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


@dataclass
class Ended:
    """How a child ended: its exit code (negative: the signal), and what its function returned or raised."""

    exitcode: int
    value: Any = None
    error: tuple[str, str, str] | None = None

    def checked(self) -> Any:
        """Return the value of a child that must have succeeded."""
        if self.error is not None:
            raise AssertionError(f"the child raised {self.error[0]}: {self.error[1]}\n{self.error[2]}")
        assert self.exitcode == 0, f"the child ended with {self.exitcode}"
        return self.value


class Child:
    """A running child process."""

    def __init__(self, target: Callable[..., Any], *args: Any) -> None:
        _start_server()
        self._receiver, sender = _context.Pipe(duplex=False)
        self.process = _context.Process(target=_main, args=(sender, target, args))
        self.process.start()
        sender.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def join(self, timeout: float = 120) -> Ended:
        """Wait for the end."""
        value, error = None, None
        try:
            if self._receiver.poll(timeout):
                value, error = self._receiver.recv()
        except EOFError:
            pass
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError("the child did not end in time")
        self._receiver.close()
        return Ended(self.process.exitcode, value, error)


def run(target: Callable[..., Any], *args: Any, timeout: float = 120) -> Ended:
    """Run ``target`` in a new process."""
    return Child(target, *args).join(timeout)


@contextmanager
def served(file: str, *args: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a server of ours that prints its port when it listens; give the port and the process."""
    server = subprocess.Popen([sys.executable, file, *args], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline()), server
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@cache
def _start_server() -> None:
    """Start the server above this folder: it knows nothing of our path, and what it cannot import it leaves out in silence."""
    here = os.getcwd()
    os.chdir(Path(__file__).parents[1])
    try:
        forkserver.ensure_running()
    finally:
        os.chdir(here)


def _main(sender: Any, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        sender.send((target(*args), None))
    except Exception as error:
        sender.send((None, (type(error).__name__, str(error), traceback.format_exc())))


def freeze(pid: int, store: str = "runs.db") -> None:
    """Stop a process like a machine that sleeps, but not inside a transaction: it would keep the lock of the store."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        with closing(sqlite3.connect(store, isolation_level=None, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
