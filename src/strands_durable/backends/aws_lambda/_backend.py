"""Executions on AWS Lambda Durable Functions: dispatched as durable executions of a function, which AWS invokes."""

from __future__ import annotations

import asyncio
import json
from math import inf
from typing import Any

from ..._enginekit.compaction import prune
from ..._enginekit.listing import read_latest
from ..._enginekit.operations.backend import CallbackBackend
from ..._enginekit.operations.history import LogChain, OperationHistory
from ..._enginekit.operations.inputs import Start
from ..._enginekit.operations.row_store import RowStore, start_of
from ..._records.change_sets import ChangeSet
from ..._records.cipher import Cipher
from ..._records.executions import ExecutionRecord, ExecutionStatus
from ..._records.listing import Listing
from ...errors import BackendUnavailableError, ExecutionNotFoundError, PayloadTooLargeError
from ._client import FunctionClient
from ._history import EventLog
from ._protocol import CHAINED_BYTES, LIMITS, attempt_of, execution_name
from ._url import LambdaConfig

S = ExecutionStatus
_POLL_SECONDS, _LOCAL_POLL_SECONDS = 1.0, 0.05
_LOGS = 64
_UNFINISHED = {S.PENDING, S.RUNNING, S.SUSPENDED}
_RESULTS = {"SUCCEEDED": {S.COMPLETED, S.CANCELLED}, "STOPPED": {S.CANCELLED}}
"""What an execution may be whose durable execution has ended so; else it is FAILED."""


class LambdaBackend(CallbackBackend):
    """Runs executions on a durable function of AWS Lambda. Execution ``trip-42`` is its durable execution ``trip-42--1``.

    Args:
        url: ``lambda://function:qualifier?region=us-east-1``. The function is its name or ARN, the qualifier a version or an
            alias. ``payloads`` is the URL of a folder or bucket for what is large, the same as the function has; without it,
            the environment variable STRANDS_DURABLE_PAYLOADS. ``endpoint`` is that of a local runner.
        client: A boto3 client of Lambda to use instead of a new one.
        cipher: That of the function. If None, the cipher that the environment names, if any.
    """

    invoker, _takes_hooks = "AWS invokes the function", "lambda_handler"
    retention_hint = (
        "AWS deletes executions that have ended by itself: set RetentionPeriodInDays in the function's DurableConfig."
    )
    backup_hint = "AWS keeps the executions, and has no backup of them. Back up the folder or bucket of its payloads."

    def __init__(self, url: str, *, client: Any = None, cipher: Cipher | None = None) -> None:
        self.url = url
        self.config = LambdaConfig.of(url)
        self.poll_seconds = _POLL_SECONDS if self.config.endpoint is None else _LOCAL_POLL_SECONDS
        self.payload_store = RowStore(self.config.payloads, LIMITS, cipher=cipher, where=str(self.config))
        self.client = FunctionClient(self.config, client)
        self._newest: dict[str, tuple[int, str]] = {}
        """The newest attempt of an execution that is known here, and its ARN."""
        self._logs: dict[str, EventLog] = {}
        """What was read of durable executions, by ARN; the last ones used."""
        self._ended: dict[str, ExecutionRecord | None] = {}
        """Durable executions that have ended, by ARN, as `list` shows them; None: not one of ours."""

    async def _begin(self, execution_id: str, agent: str, changes: ChangeSet) -> bool:
        return await self._start(execution_id, 1, agent, changes, "What is dispatched")

    async def _start(self, execution_id: str, attempt: int, agent: str, changes: ChangeSet, what: str) -> bool:
        """Start a durable execution; False if there is one for this attempt."""
        rows = self.payload_store.record(changes, what, start_of(execution_id), limit=CHAINED_BYTES)
        given: Start = {"execution_id": execution_id, "agent": agent, "rows": rows}
        payload = json.dumps(given, separators=(",", ":")).encode()
        if len(payload) > CHAINED_BYTES:
            raise PayloadTooLargeError(what, len(payload), CHAINED_BYTES)
        arn = await self.client.start(execution_name(execution_id, attempt), payload)
        if arn:
            self._newest[execution_id] = attempt, arn
        return arn is not None

    async def resume_attempt(self, known: OperationHistory) -> bool:
        """Start the next attempt from what is recorded; False if another client has done so."""
        agent = known.agent
        prune(known.replica)
        rows = known.replica.export()
        return await self._start(known.execution_id, known.attempt + 1, agent, rows, "The resumed execution")

    # Reading

    async def read(self, execution_id: str) -> OperationHistory:
        """Read the newest attempt of an execution from its history."""
        attempt, arn = self._newest.get(execution_id) or await self._find(execution_id)
        try:
            chain = await self._read_logs(arn, execution_id)
        except ExecutionNotFoundError:
            if self._newest.pop(execution_id, None) is None:
                raise
            return await self.read(execution_id)  # there may be a new one of that id
        later = await self.client.find(execution_name(execution_id, attempt + 1)) if chain.closed is S.FAILED else None
        self._newest[execution_id] = (attempt + 1, later["DurableExecutionArn"]) if later else (attempt, arn)
        if later:
            return await self.read(execution_id)
        if chain.root.execution_id not in (None, execution_id):
            name, other = execution_name(execution_id, attempt), chain.root.execution_id
            raise BackendUnavailableError(str(self.config), f"{name!r} is execution {other!r}")
        return await asyncio.to_thread(OperationHistory, execution_id, chain, attempt)

    async def _find(self, execution_id: str) -> tuple[int, str]:
        """Return an attempt of an execution, and its ARN; AWS may have deleted the first one after its retention period."""
        name = execution_name(execution_id, 1)
        first = await self.client.find(name)
        attempts = _newest([first] if first else await self.client.executions(Statuses=["RUNNING"]))
        base = name.removesuffix("--1")
        if base not in attempts:
            raise ExecutionNotFoundError(execution_id, str(self.config))
        return attempts[base][0], attempts[base][1]["DurableExecutionArn"]

    async def _read_logs(self, arn: str, execution_id: str) -> LogChain:
        """Read what is new of a durable execution, and of the one that continues it, if any."""
        root = await self._read_log(arn, execution_id)
        closed, segment = root.closed, root.segment
        last = root if segment is None else await self._read_log(segment, execution_id)
        return LogChain(root=root, closed=closed, last=last)

    async def _read_log(self, arn: str, execution_id: str) -> EventLog:
        log = self._logs.setdefault(arn, EventLog(arn, self.payload_store))
        if not await self.client.call(log.update, execution_id):
            log = EventLog(arn, self.payload_store)
            await self.client.call(log.update, execution_id)
        self._logs.pop(arn, None)
        self._logs[arn] = log
        if len(self._logs) > _LOGS:
            self._logs.pop(next(iter(self._logs)))
        return log

    async def follow(self, known: OperationHistory) -> bool:
        """Read what was added to the history of an execution; False if nothing was."""
        return await asyncio.to_thread(known.follow, await self._read_logs(known.root.name, known.execution_id))

    async def reply(self, callback_id: str, text: str) -> bool:
        """Give a callback its result; False if it has one, or if its execution has ended."""
        return await self.client.succeed(callback_id, text)

    async def ask_to_stop(self, execution_id: str) -> bool:
        """Stop an execution. Once it starts no further one, stop the durable execution that continues it, too."""
        known = await self.read(execution_id)
        await self.client.stop(known.root.name, execution_id)
        await self.follow(known)
        if known.log is not known.root:
            await self.client.stop(known.log.name, execution_id)
        return True

    # Listing

    async def listed(self, asked: Listing) -> list[ExecutionRecord]:
        """Return executions, most recently changed first; the history of one that has ended is read once."""
        only = {"Statuses": ["RUNNING"]} if asked.statuses <= _UNFINISHED else {}
        newest = [each for _, each in _newest(await self.client.executions(**only)).values()]
        found = [(_ended_at(each), each) for each in newest if _may_be(each, asked)]
        return await read_latest((pair for pair in found if pair[0] >= (asked.since or 0)), self._record, asked)

    async def _record(self, found: dict[str, Any]) -> ExecutionRecord | None:
        arn = found["DurableExecutionArn"]
        if arn in self._ended:
            return self._ended[arn]
        chain, record = await self._read_logs(arn, arn), None
        if chain.root.execution_id is not None:
            record = await asyncio.to_thread(chain.record, chain.root.execution_id, *_times(found))
        if chain.closed is not None:
            self._ended[arn] = record
            self._logs.pop(arn, None)
        return record


def _newest(found: list[dict[str, Any]]) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return the newest attempt of each execution among durable executions, by its encoded id, and the attempt's number."""
    newest: dict[str, tuple[int, dict[str, Any]]] = {}
    for each in found:
        name = attempt_of(each["DurableExecutionName"])
        if name is not None and name[1] > newest.get(name[0], (0, {}))[0]:
            newest[name[0]] = name[1], each
    return newest


def _may_be(found: dict[str, Any], asked: Listing) -> bool:
    """Return whether an execution may be asked for, as far as AWS's status of it says."""
    return found["Status"] == "RUNNING" or not _RESULTS.get(found["Status"], {S.FAILED}).isdisjoint(asked.statuses)


def _times(found: dict[str, Any]) -> tuple[float, float]:
    """Return when a durable execution was started, and when it has ended or that, if it has not."""
    started, ended = found["StartTimestamp"].timestamp(), _ended_at(found)
    return started, started if ended == inf else ended


def _ended_at(found: dict[str, Any]) -> float:
    """Return when a durable execution has ended, after which nothing changes; of one that runs, infinity."""
    ended = found.get("EndTimestamp")
    return inf if found["Status"] == "RUNNING" or ended is None else float(ended.timestamp())
