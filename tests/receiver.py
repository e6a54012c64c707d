"""A receiver of webhooks: a real HTTP server on this machine that keeps what it gets, and fails as often as a test wants."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(found.answer(dict(self.headers), body))
            self.end_headers()

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
