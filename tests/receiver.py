"""A receiver of webhooks: a real HTTP server on this machine that keeps what it gets, and fails as often as a test wants."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "a secret that only tests know"


@dataclass
class Receiver:
    """What was received, in order."""

    url: str
    failures: int = 0
    """How many more requests are answered with 500."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The requests that were taken, as data."""
        pairs = zip(self.requests, self.answered, strict=False)
        return [json.loads(body) for (_, body), status in pairs if status == 204]

    def answer(self, headers: dict[str, str], body: bytes) -> int:
        """Keep a request, and return the status to answer with."""
        status = 500 if self.failures > 0 else 204
        self.failures -= 1
        self.requests.append((headers, body))
        self.answered.append(status)
        return status


def is_signed(headers: dict[str, str], body: bytes, secret: str = SECRET) -> bool:
    """Return whether a request has the signature of its sender, as the page about notifications computes it."""
    signed = headers["Strands-Durable-Timestamp"].encode() + b"." + body
    expected = "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, headers["Strands-Durable-Signature"])


@contextmanager
def receiving(failures: int = 0) -> Iterator[Receiver]:
    """Receive webhooks for a while."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(found.answer(dict(self.headers), body))
            self.end_headers()

        do_GET = do_HEAD = do_OPTIONS = do_PUT = do_PATCH = do_DELETE = do_POST

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_port}/hook", failures)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


class Silent:
    """A server that accepts connections and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        self.connections: list[socket.socket] = []

    @property
    def has_lost(self) -> bool:
        """Whether the first that connected has left."""
        try:
            while self.connections and self.connections[0].recv(65536):
                pass
        except BlockingIOError:
            return False
        return bool(self.connections)


@contextmanager
def silent() -> Iterator[Silent]:
    """Accept webhooks for a while, and answer none."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        found = Silent(listener)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    found.connections.append(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for each in found.connections:
                each.close()
