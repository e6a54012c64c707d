"""A server that speaks OpenAI's chat completions: `python openai_server.py FOLDER` prints its port.

The path begins with a run's folder below FOLDER, and its ledger ``requests.jsonl`` is there: a line for each request, and one
for each answer that was sent to its end. The turn is read from the conversation; the name of the model says what goes wrong:

    plain       nothing
    throttled   429 for the first two requests of the first turn
    refusing    429, always
    breaking    the connection breaks in the middle of the first answer to the second turn
    cutting     that answer ends early, as if that were its end
    slow        that answer stops in the middle until its client is gone
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
asked: Counter[tuple[str, int]] = Counter()
lock = threading.Lock()


def deltas(turn: int) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Give the pieces of an answer, with the reason to stop at its last one."""
    if turn == 0:
        start = {"name": "book", "arguments": ""}
        yield {"tool_calls": [{"index": 0, "id": "call-0", "type": "function", "function": start}]}, None
        for piece in ('{"city": ', '"Paris"}'):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}, None
        yield {}, "tool_calls"
    else:
        yield {"content": "Booked "}, None
        yield {"content": "Paris."}, None
        yield {}, "stop"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        place = self.path.split("/")[1]
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        with lock:
            asked[place, turn] += 1
            time = asked[place, turn]
        kind = request["model"]
        refused = kind == "refusing" or (kind == "throttled" and turn == 0 and time <= 2)
        self.note(place, event="request", turn=turn, refused=refused)
        if refused:
            self.refuse()
        elif self.answer(turn, kind if (turn, time) == (1, 1) else "plain"):
            self.note(place, event="answer", turn=turn)

    def refuse(self) -> None:
        """Say that it is too much."""
        body = json.dumps({"error": {"message": "slow down", "type": "rate_limit", "code": "rate_limit"}}).encode()
        self.send_response(429)
        self.send_header("Retry-After", "0.01")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, turn: int, kind: str) -> bool:
        """Stream an answer; return whether it was sent to its end."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, (delta, reason) in enumerate(deltas(turn)):
            if number == 1 and kind == "breaking":
                self.close_connection = True
                return False
            if number == 1 and kind == "cutting":
                break
            if number == 1 and kind == "slow":
                return self.wait()
            self.send([{"index": 0, "delta": delta, "finish_reason": reason}])
        else:
            self.send([], usage=USAGE)
            self.piece(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        return kind != "cutting"

    def wait(self) -> bool:
        """Say in the ledger that half of the answer is out, and wait for the end of the connection."""
        self.note(self.path.split("/")[1], event="half")
        self.close_connection = True
        return bool(self.rfile.read(1))

    def send(self, choices: list[Any], **more: Any) -> None:
        """Send one event of the stream."""
        event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
        self.piece(b"data: " + json.dumps(event).encode() + b"\n\n")

    def piece(self, data: bytes) -> None:
        """Send one chunk of the body."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def note(self, place: str, **entry: Any) -> None:
        """Write a line to the ledger of a run."""
        file = os.open(f"{sys.argv[1]}/{place}/requests.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (json.dumps(entry) + "\n").encode())
        os.close(file)

    def log_message(self, format: str, *args: Any) -> None:
        """Be silent."""


class Server(ThreadingHTTPServer):
    """Survives clients that are killed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent."""


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
