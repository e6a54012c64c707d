"""AWS Lambda Durable Functions on this machine, for tests, including your own: AWS's local runner, and your function.

    with LocalLambda({"planner": handler}) as aws:
        backend = connect(aws.url("planner"))

The runner is AWS's own (``aws-durable-execution-sdk-python-testing``). It starts executions by a request of its own, so a small
server in front of it takes the request that AWS takes, and calls the function: in a thread of this process, or, for a function
that is named as ``"module:handler"``, in a process of its own for each invocation, which can be killed.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

try:
    import boto3  # type: ignore[import-untyped]
    from aws_durable_execution_sdk_python_testing.child_dispatcher import FunctionConfigs
    from aws_durable_execution_sdk_python_testing.runner import WebRunner, WebRunnerConfig
    from aws_durable_execution_sdk_python_testing.web.server import WebServiceConfig
except ImportError as error:
    raise ImportError(
        'A local Lambda needs AWS\'s runner: pip install "strands-durable[lambda]" aws-durable-execution-sdk-python-testing'
    ) from error

__all__ = ["LocalLambda"]

Handler = Callable[[Any, Any], Any]
_REGION, _ACCOUNT = "us-west-2", "123456789012"
_MARK = "X-Dex-Handler-Invoke"
_NAME = "X-Amz-Durable-Execution-Name"
_PATIENCE_SECONDS = 60.0
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": _REGION}


class FunctionContext:
    """What Lambda passes to a function besides its event."""

    def __init__(self, function: str, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.function_name, _, qualifier = function.partition(":")
        self.function_version = qualifier or "$LATEST"
        self.aws_request_id = str(uuid.uuid4())
        self.tenant_id = None
        self.invoked_function_arn = f"arn:aws:lambda:{_REGION}:{_ACCOUNT}:function:{function}"

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may still take."""
        return max(0, round((self._until - time.monotonic()) * 1000))


class LocalLambda:
    """Durable functions on this machine.

    AWS's SDK makes its client once for a process. If functions run in threads of this process, use one `LocalLambda` for all
    its tests, and `add` functions to it.

    Args:
        functions: The handlers by the name of their function. A callable runs in a thread of this process: make it with
            ``lambda_handler(..., exits=False)``, or a tool that outlives its invocation ends the process. A text
            ``"module:attribute"`` is imported by a further process, which makes a child for each invocation.
        timeout_seconds: How long an invocation may take. A child that takes longer is killed.
        retry_seconds: How long the runner waits before it repeats an invocation that died.
        attempts: How many invocations may die in a row.
        log: A file for what functions print that have processes of their own; None for the output of this process.
    """

    def __init__(
        self,
        functions: Mapping[str, Handler | str],
        *,
        timeout_seconds: float = 900.0,
        retry_seconds: float = 0.2,
        attempts: int = 50,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        self.functions = dict(functions)
        self.timeout_seconds = timeout_seconds
        self._retry, self._attempts, self._log = retry_seconds, attempts, log
        self.names: dict[str, str] = {}
        """The input of each execution that was started, by function and name: AWS refuses a second one of the same name."""
        self.lock = threading.Lock()
        self.ports: dict[str, int] = {}
        self.calls: list[str] = []
        """The paths of all requests that reached the runner."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.runner_port = 0

    def add(self, function: str, handler: Handler) -> str:
        """Add a function that runs in threads of this process; return its URL."""
        self.functions[function] = handler
        return self.url(function)

    def url(self, function: str, **options: str) -> str:
        """Return the URL of a function for `connect`."""
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"lambda://{function}:$LATEST?region={_REGION}&endpoint={self.endpoint}{more}"

    @property
    def endpoint(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self._front.server_address[1]}"

    def client(self) -> Any:
        """Return a boto3 client of the API."""
        from botocore.config import Config  # type: ignore[import-untyped]

        return boto3.client(
            "lambda", region_name=_REGION, endpoint_url=self.endpoint, aws_access_key_id="test",
            aws_secret_access_key="test", config=Config(parameter_validation=False, retries={"max_attempts": 0}),
        )  # fmt: skip

    def __enter__(self) -> LocalLambda:
        for name, value in _CREDENTIALS.items():
            os.environ.setdefault(name, value)
        self._front = _Front(self)
        configs = {name: {"DurableConfig": {"ExecutionTimeout": 86_400}} for name in self.functions}
        self._runner = WebRunner(
            WebRunnerConfig(
                web_service=WebServiceConfig(host="127.0.0.1", port=0, log_level=40),
                lambda_endpoint=self.endpoint,
                local_runner_region=_REGION,
                invocation_timeout_seconds=round(self.timeout_seconds) + 1,
                function_configs=_configs(configs),
            )
        )
        self._runner.start()
        executor: Any = self._runner._executor
        executor.RETRY_BACKOFF_SECONDS, executor.MAX_CONSECUTIVE_FAILED_ATTEMPTS = self._retry, self._attempts
        server: Any = self._runner._server
        self.runner_port = server.server_address[1]
        server.RequestHandlerClass.disable_nagle_algorithm = True  # or each response waits 40 ms for its second packet
        for serve in (server.serve_forever, self._front.serve_forever):
            threading.Thread(target=serve, kwargs={"poll_interval": 0.02}, daemon=True).start()
        if any(not isinstance(handler, str) for handler in self.functions.values()) or not self.functions:
            os.environ["AWS_ENDPOINT_URL_LAMBDA"] = (
                self.endpoint
            )  # the SDK makes its client from it, once for a process
        for name, handler in self.functions.items():
            if isinstance(handler, str):
                self.ports[name] = self._start(name, handler)
        return self

    def function_pid(self, function: str) -> int:
        """Return the process whose children are the invocations of a function."""
        return self._processes[function].pid

    def _start(self, name: str, target: str) -> int:
        command = [sys.executable, "-m", __name__, target, str(self.timeout_seconds)]
        path = os.pathsep.join(each for each in sys.path if each)
        env = {**os.environ, "AWS_ENDPOINT_URL_LAMBDA": self.endpoint, "PYTHONPATH": path}
        with open(self._log, "ab") if self._log else nullcontext() as log:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True, env=env)
        self._processes[name] = process
        assert process.stdout is not None
        port = int(process.stdout.readline())
        threading.Thread(target=process.stdout.read, daemon=True).start()  # or a function that prints much would block
        return port

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        server: Any = self._runner._server
        server.shutdown()
        self._front.shutdown()
        self._front.server_close()
        self._runner.stop()
        if os.environ.get("AWS_ENDPOINT_URL_LAMBDA") == self.endpoint:
            del os.environ["AWS_ENDPOINT_URL_LAMBDA"]


def _configs(found: dict[str, Any]) -> FunctionConfigs:
    return FunctionConfigs.from_dict(found)


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def body(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a response."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Front(ThreadingHTTPServer):
    """Takes all requests: starts executions and calls functions itself, and passes the rest on to the runner."""

    daemon_threads = True

    def __init__(self, aws: LocalLambda) -> None:
        self.aws = aws
        super().__init__(("127.0.0.1", 0), _FrontRequest)


class _FrontRequest(_Quiet):
    """A request to the API of AWS Lambda."""

    server: _Front

    def do_POST(self) -> None:
        path, body = unquote(self.path), self.body()
        if not path.startswith("/2015-03-31/functions/"):
            self._pass_on(body)
            return
        function = path.split("/")[3]
        name, _, qualifier = function.rpartition(":function:")[2].partition(":")
        _, _, query = self.path.partition("?Qualifier=")
        if name not in self.server.aws.functions:
            self._refuse(404, "ResourceNotFoundException", f"Function not found: {name}")
        elif self.headers.get(_MARK):
            self._invoke(name, body)
        else:
            self._start(name, unquote(query) or qualifier, body)

    def do_GET(self) -> None:
        self._pass_on(b"")

    def _refuse(self, status: int, code: str, text: str) -> None:
        body = json.dumps({"Type": "User", "Message": text}).encode()
        self.answer(status, body, {"X-Amzn-Errortype": code, "Content-Type": "application/json"})

    def _start(self, function: str, qualifier: str, body: bytes) -> None:
        name = self.headers.get(_NAME) or str(uuid.uuid4())
        with self.server.aws.lock:
            known = self.server.aws.names.get(f"{function} {name}")
            self.server.aws.names.setdefault(f"{function} {name}", body.decode())
        if known is not None:
            if known != body.decode():
                self._refuse(409, "DurableExecutionAlreadyStartedException", f"{name} was already started")
            else:
                self.answer(202, b"")
            return
        given = {
            "AccountId": _ACCOUNT, "FunctionName": function, "FunctionQualifier": qualifier or "$LATEST",
            "ExecutionName": name, "ExecutionTimeoutSeconds": 86_400, "ExecutionRetentionPeriodDays": 7,
            "InvocationId": str(uuid.uuid4()), "Input": body.decode(),
        }  # fmt: skip
        status, _, found = _request(
            self.server.aws.runner_port, "POST", "/start-durable-execution", json.dumps(given).encode()
        )
        if status >= 300:
            self.answer(status, found)
            return
        self.answer(202, b"", {"X-Amz-Durable-Execution-Arn": json.loads(found)["ExecutionArn"]})

    def _invoke(self, name: str, body: bytes) -> None:
        handler = self.server.aws.functions[name]
        if isinstance(handler, str):
            try:
                status, kept, found = _request(self.server.aws.ports[name], "POST", f"/{name}", body)
                self.answer(status, found, kept)
            except (OSError, http.client.HTTPException):
                self._refuse(502, "ServiceException", "the process has died")
            return
        self.answer(*_called(handler, body, FunctionContext(name, self.server.aws.timeout_seconds)))

    def _pass_on(self, body: bytes) -> None:
        self.server.aws.calls.append(self.path)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        status, kept, found = _request(self.server.aws.runner_port, self.command, self.path, body, headers)
        self.answer(status, found, kept)


def _request(
    port: int, method: str, path: str, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1000)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        kept = {
            name: value for name, value in response.getheaders() if name.lower().startswith(("x-amz", "content-type"))
        }
        return response.status, kept, response.read()
    finally:
        connection.close()


def _called(handler: Handler, body: bytes, context: FunctionContext) -> tuple[int, bytes, dict[str, str]]:
    try:
        return 200, json.dumps(handler(json.loads(body), context)).encode(), {}
    except Exception as error:
        found = {"errorMessage": str(error), "errorType": type(error).__name__}
        return 200, json.dumps(found).encode(), {"X-Amz-Function-Error": "Unhandled"}


def serve(target: str, seconds: float) -> None:
    """Serve a function: each request in a child of this process, which has imported everything."""
    module, _, name = target.partition(":")
    handler = getattr(importlib.import_module(module), name)

    class Request(_Quiet):
        def do_POST(self) -> None:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            self.answer(*_called(handler, self.body(), FunctionContext(self.path[1:], seconds)))
            self.close_connection = True

    class Server(socketserver.ForkingMixIn, HTTPServer):
        max_children = 64

    with Server(("127.0.0.1", 0), Request) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        server.serve_forever(poll_interval=0.02)


def _end_with_parent() -> None:
    """End this process and its children when the process that started it has ended, however that was."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))
