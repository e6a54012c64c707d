"""The operations of a durable execution, made with AWS's SDK on the handler's thread."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from aws_durable_execution_sdk_python import (
    CallbackError,
    DurableContext,
    InvocationError,
    RetryableSerDesError,
    StepError,
)
from aws_durable_execution_sdk_python.config import CallbackConfig, Duration, StepConfig, StepSemantics
from aws_durable_execution_sdk_python.exceptions import BackgroundThreadError, SuspendExecution
from aws_durable_execution_sdk_python.lambda_service import LambdaClient
from aws_durable_execution_sdk_python.retries import (
    RetryDecision,
    RetryPresets,
    RetryStrategyConfig,
    create_retry_strategy,
)
from aws_durable_execution_sdk_python.serdes import PassThroughSerDes

from ..._dispatch.notifications.hooks import delay_seconds
from ..._enginekit.encryption import ChangedError
from ..._enginekit.operations.port import InterruptedOperationError, Reply
from ..._enginekit.operations.reports import is_over
from ..._enginekit.time_limit import TimeLimit
from ..._records.crash_points import reach
from ...errors import BackendUnavailableError, CipherError
from ._client import FunctionClient
from ._protocol import SUB_TYPE
from ._url import LambdaConfig

_NOTIFY_TRIES, _START_TRIES = 3, 6


@dataclass(frozen=True, kw_only=True)
class OperationLimits:
    """How much a durable execution records before another one continues it."""

    max_operations: int = 2_500
    """AWS ends one at 3,000."""
    hard_operations: int = 2_800
    """How many at most, if another cannot continue it before: a question is open, or a tool waits for steps inside it."""
    max_bytes: int = 80_000_000
    """AWS ends one at 100 MB."""
    hard_bytes: int = 90_000_000


class LambdaCallback:
    """A callback of a durable execution."""

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        self.callback_id: str = callback.callback_id

    def reply(self) -> Reply | None:
        """Return its result; None if it has none."""
        try:
            return self.wait()
        except SuspendExecution:
            return None

    def wait(self) -> Reply:
        """Return its result; if it has none, raise what makes AWS suspend the function."""
        try:
            return Reply(text=self._callback.result())
        except CallbackError as error:
            return Reply(error=str(error))


class LambdaOperations:
    """The operations of one durable execution, in one invocation."""

    def __init__(self, context: DurableContext, limits: OperationLimits | None = None, client: Any = None) -> None:
        self._context, self._limits, self._client = context, limits or OperationLimits(), client
        lambda_context: Any = context.lambda_context
        self.limit = TimeLimit(lambda_context.get_remaining_time_in_millis)
        self.owner = f"{lambda_context.aws_request_id} {uuid.uuid4().hex[:8]}"
        self.count = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a further durable execution should continue this one."""
        return self.count >= self._limits.max_operations or self._bytes >= self._limits.max_bytes

    @property
    def is_overfull(self) -> bool:
        """Whether AWS will soon end this one."""
        return self.count >= self._limits.hard_operations or self._bytes >= self._limits.hard_bytes

    def step(self, name: str, body: Callable[[], str], *, once: bool) -> str:
        """Make a step. If its store cannot be reached, the invocation fails, and the next one may be able to."""

        def called(_: Any) -> str:
            try:
                return body()
            except BackendUnavailableError as error:
                raise RetryableSerDesError(str(error)) from error

        self.count += 1
        semantics = StepSemantics.AT_MOST_ONCE_PER_RETRY if once else StepSemantics.AT_LEAST_ONCE_PER_RETRY
        config = StepConfig(RetryPresets.none(), semantics, PassThroughSerDes(), sub_type=SUB_TYPE)
        try:
            text: str = self._context.step(called, name, config)
        except StepError as error:
            if not (error.error_type or "").endswith("StepInterruptedError"):
                raise
            raise InterruptedOperationError(name) from error
        self._bytes += len(text)
        return text

    def attempt(self, name: str, body: Callable[[], None], tries: int = _NOTIFY_TRIES) -> str | None:
        """Make a step that AWS repeats if it fails: within seconds, or for a day if a key is missing."""
        self.count += 1
        try:
            self._context.step(lambda _: body(), name, StepConfig(_retries(tries)))
        except StepError as error:
            return str(error)
        return None

    def start(self, name: str, given: Callable[[], dict[str, Any]]) -> str | None:
        """Start a durable execution of the version that runs, in a step: AWS starts no second one of a name."""

        def started() -> None:
            client = self._client or LambdaClient.initialize_client().client  # the SDK's own, which is there already
            function = FunctionClient(LambdaConfig.running(self._context.lambda_context), client)
            asyncio.run(function.start(name, json.dumps(given(), separators=(",", ":")).encode()))
            reach("start:after")

        return self.attempt(f"start {name}", started, _START_TRIES)

    def wait(self, seconds: int) -> None:
        """Suspend the function."""
        self.count += 1
        self._context.wait(Duration.from_seconds(seconds), name="wait")

    def ask(self, name: str, seconds: int) -> LambdaCallback:
        """Create a callback."""
        self.count += 1
        return LambdaCallback(self._context.create_callback(name, CallbackConfig(Duration.from_seconds(seconds))))

    def check(self) -> None:
        """Make an empty checkpoint, which AWS refuses once the execution was stopped; the step is then not a failed one."""
        try:
            self._context.state.create_checkpoint_sync()
        except BaseException as error:
            raise RetryableSerDesError(f"AWS accepts no more checkpoints: {error}") from error

    def is_stop(self, error: BaseException) -> bool:
        """Return whether AWS has refused a checkpoint for good."""
        cause = error.__cause__ if isinstance(error, RetryableSerDesError) else error
        if isinstance(cause, BackgroundThreadError):
            cause = cause.source_exception
        return isinstance(cause, InvocationError) and not cause.is_retryable()


def _retries(tries: int) -> Callable[[Exception, int], RetryDecision]:
    """Return what decides after each failure whether a step is tried again."""
    usual = create_retry_strategy(RetryStrategyConfig(tries, Duration.from_seconds(1), Duration.from_seconds(5)))

    def decide(error: Exception, tried: int) -> RetryDecision:
        may_have_key_later = isinstance(error, CipherError) and not isinstance(error, ChangedError)
        if not may_have_key_later or is_over(tried):
            return usual(error, tried)
        return RetryDecision.retry(Duration.from_seconds(ceil(delay_seconds(tried))))

    return decide
