"""Calls AWS Lambda's API with boto3, in threads; what AWS refuses becomes an error of ours that says what to do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from ...errors import BackendUnavailableError, DurableError, ExecutionNotFoundError, PayloadTooLargeError
from ._protocol import CHAINED_BYTES
from ._url import LambdaConfig

T = TypeVar("T")
PAGE = 1000
_ALREADY = "DurableExecutionAlreadyStartedException"
_CLOSED = ("CallbackTimeoutException", "ResourceNotFoundException")
_DENIED = ("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException")
_TOO_LARGE = ("RequestTooLargeException", "SerializedRequestEntityTooLargeException")


class FunctionClient:
    """The API of one durable function."""

    def __init__(self, config: LambdaConfig, client: Any = None) -> None:
        self._config, self._client = config, client
        self._lock = threading.Lock()

    def _boto(self) -> Any:
        with self._lock:
            if self._client is None:
                is_local = self._config.endpoint is not None
                session = boto3.Session(region_name=self._config.region)
                any_key = is_local and session.get_credentials() is None  # a local runner accepts any
                self._client = session.client(
                    "lambda",
                    endpoint_url=self._config.endpoint,
                    config=Config(parameter_validation=not is_local, retries={"mode": "standard"}),
                    **({"aws_access_key_id": "local", "aws_secret_access_key": "local"} if any_key else {}),
                )
            return self._client

    async def call(self, call: Callable[[Any], T], execution_id: str = "") -> T:
        """Call a function with a boto3 client, in a thread."""

        def called() -> T:
            with self._translated(execution_id):
                return call(self._boto())

        return await asyncio.to_thread(called)

    @contextmanager
    def _translated(self, execution_id: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            raise self._error(error, execution_id) from error
        except BotoCoreError as error:
            hint = "Set up credentials and the region as for the AWS CLI, or name the region in the URL: ?region=us-east-1."
            raise BackendUnavailableError(str(self._config), str(error), hint) from error

    def _error(self, error: ClientError, execution_id: str) -> DurableError:
        code, text = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
        url, operation = str(self._config), error.operation_name
        if code == "ResourceNotFoundException" and execution_id:
            return ExecutionNotFoundError(execution_id, f"{url} (AWS deletes executions after their retention period)")
        if code in _TOO_LARGE:
            return PayloadTooLargeError("The input", CHAINED_BYTES + 1, CHAINED_BYTES)
        what, hint = f"{code}: {text}", ""
        if code == "ResourceNotFoundException":
            what, hint = f"there is no such function: {text}", "Check the name, the version or alias, and the region."
        elif code in _DENIED:
            permission = "InvokeFunction" if operation == "Invoke" else operation
            what, hint = (
                f"AWS refuses: {text}",
                f"{operation} needs the permission lambda:{permission} on the function.",
            )
        elif code == "InvalidParameterValueException" and operation == "Invoke":
            what = f"the function takes no durable executions: {text}"
            hint = "Create the function with a DurableConfig, publish a version, and name it: lambda://function:1."
        return BackendUnavailableError(url, what, hint)

    async def start(self, name: str, payload: bytes) -> str | None:
        """Start a durable execution and return its ARN; None if there is one of this name."""
        given = {"FunctionName": self._config.function, "Qualifier": self._config.qualifier, "Payload": payload}
        try:
            found = await self.call(
                lambda boto: boto.invoke(InvocationType="Event", DurableExecutionName=name, **given)
            )
        except BackendUnavailableError as error:
            if _code(error) == _ALREADY:
                return None
            raise
        return str(found.get("DurableExecutionArn", ""))

    async def find(self, name: str) -> dict[str, Any] | None:
        """Return the durable execution of a name; None if there is none."""
        found = await self.executions(DurableExecutionName=name)
        return next((each for each in found if each["DurableExecutionName"] == name), None)

    async def executions(self, **wanted: Any) -> list[dict[str, Any]]:
        """Return durable executions of the function, all pages."""
        given = {"FunctionName": self._config.function, "MaxItems": PAGE, **wanted}
        return await self.call(
            lambda boto: list(items(boto.list_durable_executions_by_function, "DurableExecutions", **given))
        )

    async def stop(self, arn: str, execution_id: str) -> None:
        """Stop a durable execution for good."""
        await self.call(lambda boto: boto.stop_durable_execution(DurableExecutionArn=arn), execution_id)

    async def succeed(self, callback_id: str, result: str) -> bool:
        """Give a callback its result; False if it has one, or if its execution has ended."""
        given = {"CallbackId": callback_id, "Result": result.encode()}
        try:
            await self.call(lambda boto: boto.send_durable_execution_callback_success(**given))
        except DurableError as error:
            if _code(error) in _CLOSED:
                return False
            raise
        return True


def items(method: Callable[..., Any], name: str, **given: Any) -> Iterator[dict[str, Any]]:
    """Yield the items of all pages."""
    while True:
        page = method(**given)
        yield from page.get(name, [])
        if not page.get("NextMarker"):
            return
        given["Marker"] = page["NextMarker"]


def _code(error: DurableError) -> str:
    """Return AWS's code for an error; for a response without one, that of its HTTP status."""
    cause = error.__cause__
    if not isinstance(cause, ClientError):
        return ""
    is_missing = cause.response["ResponseMetadata"].get("HTTPStatusCode") == 404
    return "ResourceNotFoundException" if is_missing else str(cause.response["Error"].get("Code"))
