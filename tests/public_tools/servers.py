"""The servers of the survey, on this machine: a web server, a remote agent, and what stands in for AWS."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import uvicorn
from moto.server import ThreadedMotoServer
from strands import Agent
from strands.multiagent.a2a import A2AServer

from strands_durable.testing import ScriptedModel
from tests.public_tools.strike import strike
from tests.waiting import until

FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>Trips</title><link>http://trips</link>
<description>Trips</description><item><title>Rome</title><link>http://trips/rome</link></item></channel></rss>"""
PAGES = {
    "page": ("text/html", "<html><head><title>Trips</title></head><body><h1>Rome</h1><p>Sunny.</p></body></html>"),
    "feed": ("application/rss+xml", FEED),
}


def note(folder: Path, **facts: Any) -> None:
    """Note a request, which is its effect."""
    with (folder / "requests.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")
    strike(str(folder))


class _Handler(BaseHTTPRequestHandler):
    """Notes requests in the folder that the path begins with, gives a cookie, and says which one it is given."""

    root: Path

    def do_GET(self) -> None:
        place, _, what = self.path[1:].partition("/")
        if not what:  # a browser looks for an icon
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        note(self.root / place, method=self.command, what=what, body=body)
        kind, text = PAGES.get(what, ("text/plain", f"cookie: {self.headers.get('Cookie')}"))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        if what == "set":
            self.send_header("Set-Cookie", "city=Rome")
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def web(root: Path) -> Iterator[str]:
    """Serve the runs in the folders of ``root``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"root": root}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def remote() -> Iterator[str]:
    """Have an agent behind A2A, which notes requests in the folder that their text ends with."""

    def script(turn: int, messages: list[Any]) -> str:
        first, *_, folder = messages[-1]["content"][0]["text"].split()
        note(Path(folder), asked=first)
        return f"{first} is sunny."

    agent = Agent(model=ScriptedModel(script), name="guide", description="Knows cities.", callback_handler=None)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = A2AServer(agent=agent, host="127.0.0.1", port=port, enable_a2a_compliant_streaming=True).to_starlette_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    until(lambda: server.started, 30)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def aws() -> Iterator[str]:
    """Have what stands in for AWS."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
