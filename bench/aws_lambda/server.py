"""``python -m bench.aws_lambda.server MODULE``: a function with a process for each invocation, of either side's virtualenv.

The processes are forked from one that has imported everything and has made the SDK's client, as a warm sandbox has. Imports
nothing of strands-durable, which is not installed beside the peer.
"""

from __future__ import annotations

import importlib
import json
import socketserver
import sys
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from bench.aws_lambda import script

ARN = "arn:aws:lambda:us-west-2:123456789012:function:"
SECONDS = 900


class Context:
    """What Lambda passes to a function besides its event."""

    def __init__(self, function: str) -> None:
        self._until = time.monotonic() + SECONDS
        self.function_name, self.function_version = function, "$LATEST"
        self.aws_request_id, self.tenant_id = str(uuid.uuid4()), None
        self.invoked_function_arn = f"{ARN}{function}"

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may still take."""
        return max(0, round((self._until - time.monotonic()) * 1000))


def watched(handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a handler that notes when its first body is called that is not on record."""
    from aws_durable_execution_sdk_python.context import DurableContext

    is_there = False
    step = DurableContext.step

    def stepped(self: Any, func: Callable[[Any], Any], *args: Any, **given: Any) -> Any:
        def body(context: Any) -> Any:
            nonlocal is_there
            if not is_there:
                is_there = True
                script.at_head()
            return func(context)

        return step(self, body, *args, **given)

    DurableContext.step = stepped  # type: ignore[method-assign, assignment]
    return handler


def serve(module: str) -> None:
    """Serve the handler of a module until the process is ended; print the port."""
    from aws_durable_execution_sdk_python.lambda_service import LambdaClient

    handler = watched(importlib.import_module(module).handler)
    LambdaClient.initialize_client()

    class Request(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            event = json.loads(body)
            script.invoked(len(body))
            answer = json.dumps(handler(event, Context(self.path[1:]))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    class Server(socketserver.ForkingMixIn, HTTPServer):
        pass

    with Server(("127.0.0.1", 0), Request) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever(poll_interval=0.02)


if __name__ == "__main__":
    serve(sys.argv[1])
