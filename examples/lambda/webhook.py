"""A webhook that keeps questions until a person answers them. It stands in for your chat, your mail or your own page."""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3


def webhook(aws: Any, port: int) -> ThreadingHTTPServer:
    """Return a server that takes questions at /questions, and answers at /answers; ``aws`` is a boto3 client of Lambda."""
    questions: dict[str, dict[str, Any]] = {}  # by callback id

    def answer(execution_id: str, answer: Any) -> int:
        found = [each for each, question in questions.items() if question["execution_id"] == execution_id]
        for callback_id in found:
            aws.send_durable_execution_callback_success(CallbackId=callback_id, Result=json.dumps(answer))
            del questions[callback_id]
        return len(found)

    class Request(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(list(questions.values()))

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/answers":
                self.reply({"answered": answer(given["execution_id"], given["answer"])})
            else:
                questions[given["callback_id"]] = given
                self.reply({})

        def reply(self, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Request)


if __name__ == "__main__":
    webhook(boto3.client("lambda"), int(os.environ.get("PORT", "8080"))).serve_forever()
