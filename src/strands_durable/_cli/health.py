"""The health of a worker over HTTP, for Kubernetes and the like: `/live` and `/ready`, each 200 or 503 with a JSON body.

The worker's own event loop reports that it turns, and asks the backend now and then. A thread answers with what was reported:
also while the loop is stuck. Nothing of executions is shown.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import click

from .._dispatch.examination import ANSWER_SECONDS, answers
from .._dispatch.ports import DurableBackend
from .._dispatch.quarantine import troubles
from .._records.printable import masked_text, one_line
from ..errors import DurableError

TURN_SECONDS = 1.0
LOOK_SECONDS = 5.0
STUCK_SECONDS = 30.0
"""After how long without a turn of the event loop a restart helps."""
OUTAGE_SECONDS = 300.0
"""After how long without an answer of the backend a restart may help. Before that it would only abandon running steps."""


class Health:
    """What a worker reports of itself."""

    def __init__(self) -> None:
        self._turned_at = self._answered_at = time.monotonic()
        self._is_connected = self._is_draining = False
        self._why = "the backend has not answered yet"
        self._flaws: list[str] = []

    # Reported by the worker's event loop

    @asynccontextmanager
    async def watching(self, backend: DurableBackend, stop: asyncio.Event) -> AsyncIterator[None]:
        """Report while the block runs."""
        tasks = [asyncio.ensure_future(work) for work in (self._turn(), self._look(backend), self._drain(stop))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _turn(self) -> None:
        while True:
            self._turned_at = time.monotonic()
            await asyncio.sleep(TURN_SECONDS)

    async def _look(self, backend: DurableBackend) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await answers(backend)
                    why = await backend.unattended()
            except TimeoutError:
                self._missed(f"the backend has not answered within {ANSWER_SECONDS:g} s")
            except DurableError as error:
                self._missed(str(error))
            except Exception as error:  # of a library of the engine: it must not end the reports
                self._missed(f"{type(error).__name__}: {error}")
            else:
                self._answered_at, self._is_connected, self._why = time.monotonic(), why is None, why or ""
            self._flaws = troubles()
            await asyncio.sleep(LOOK_SECONDS)

    def _missed(self, why: str) -> None:
        self._is_connected, self._why = False, why

    async def _drain(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._is_draining = True

    # Asked by other processes

    def live(self) -> list[str]:
        """Return why the worker should be restarted; nothing if it should not."""
        now, why = time.monotonic(), []
        if now - self._turned_at > STUCK_SECONDS:
            why.append(f"the event loop has not turned for {now - self._turned_at:.0f} s: a tool or hook blocks it")
        elif now - self._answered_at > OUTAGE_SECONDS:
            why.append(f"the backend has not answered for {now - self._answered_at:.0f} s: {self._why}")
        return why

    def ready(self) -> list[str]:
        """Return why the worker takes no executions; nothing if it does."""
        why = self.live()
        if self._is_draining:
            why.append("the worker is draining")
        if not self._is_connected:
            why.append(self._why)
        return why

    def degraded(self) -> list[str]:
        """Return what is wrong with a worker that takes executions all the same."""
        return self._flaws


class HealthServer:
    """Answers `/live` and `/ready` from a thread."""

    def __init__(self, address: tuple[str, int], health: Health) -> None:
        handler = type("Handler", (_Handler,), {"health": health})
        try:
            self._server = (_ServerOf6 if ":" in address[0] else ThreadingHTTPServer)(address, handler)
        except (OSError, UnicodeError) as error:  # of a name that cannot be a host's
            why = error.strerror if isinstance(error, OSError) else "it is not a host name"
            raise click.ClickException(
                f"--health {address[0]}:{address[1]}: {why}. Choose another address or port."
            ) from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="strands-durable-health", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


class _ServerOf6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    health: Health
    timeout = 5  # a client that sends nothing holds no thread
    server_version, sys_version = "strands-durable", ""

    def do_GET(self) -> None:
        ask = {"/live": self.health.live, "/ready": self.health.ready}.get(self.path.partition("?")[0])
        if ask is None:
            self._answer(404, {"status": "unknown", "reasons": ["ask for /live or /ready"]})
            return
        reasons, flaws = ask(), self.health.degraded()
        status = "unavailable" if reasons else "degraded" if flaws else "ok"
        said = [one_line(masked_text(why)) for why in (*reasons, *flaws)]
        self._answer(503 if reasons else 200, {"status": status, "reasons": said})

    do_HEAD = do_GET

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: a probe comes every few seconds."""


def address_of(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, int] | None:
    """Return host and port of ``HOST:PORT``; the host is 127.0.0.1 if only a port is given."""
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not an address. Use a form such as 127.0.0.1:8080.", ctx, param)
    return host.strip("[]") or "127.0.0.1", int(port)
