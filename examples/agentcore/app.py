"""The travel agent on Amazon Bedrock AgentCore Runtime: each prompt of a session is one execution.

The first prompt of session `s` is execution `s-1`, the next one `s-2`. A payload is one of

    {"prompt": "..."}         starts the next execution, or resumes the unfinished one
    {"answers": {id: ...}}    answers the questions of the latest one
    {}                        waits for the latest one
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import travel_agent
from bedrock_agentcore import BedrockAgentCoreApp
from bedrock_agentcore.runtime.context import RequestContext
from bedrock_agentcore.runtime.models import PingStatus
from starlette.exceptions import HTTPException

from strands_durable import ExecutionHandle, ExecutionStatus, errors

WAIT_SECONDS = 60.0  # AgentCore ends a call after 15 minutes; report a longer run as still running
ACTIVE = {ExecutionStatus.PENDING, ExecutionStatus.RUNNING}
OPEN = {*ACTIVE, ExecutionStatus.SUSPENDED}

backend = travel_agent.backend


@asynccontextmanager
async def lifespan(app: BedrockAgentCoreApp) -> AsyncIterator[None]:
    backend.start()  # resumes the runs of a killed container
    yield
    await backend.close()


app = BedrockAgentCoreApp(lifespan=lifespan)


@app.entrypoint
async def invoke(payload: dict[str, Any], context: RequestContext) -> dict[str, Any]:
    if context.session_id is None:
        raise HTTPException(400, "The invocation has no session id.")
    try:
        handle = await find_execution(context.session_id, payload)
        if "answers" in payload:
            await handle.respond(payload["answers"])
        return await response_to(handle)
    except errors.DurableError as error:
        raise HTTPException(409, str(error)) from error


async def find_execution(session: str, payload: dict[str, Any]) -> ExecutionHandle:
    """Return the execution that a call refers to; a prompt starts one unless the latest is still open.

    A client that repeats a call because the response was lost adds `"turn": n` to get the n-th execution and not a new one.
    """
    count, is_open = await runs_of(session)
    is_next = "prompt" in payload and not is_open
    turn = payload.get("turn", count + is_next)
    if turn not in range(1, count + 1 + is_next):
        raise HTTPException(400, f"This session has {count} executions; there is no number {turn}.")
    execution_id = f"{session}-{turn}"
    if "prompt" in payload:
        return await travel_agent.dispatch_async(payload["prompt"], execution_id=execution_id, session=session)
    return await backend.get(execution_id)


async def runs_of(session: str) -> tuple[int, bool]:
    """Return the number of executions of a session, and whether the latest is still open."""
    count, last = 0, None
    while True:
        try:
            last = await backend.get(f"{session}-{count + 1}")
        except errors.ExecutionNotFoundError:
            return count, last is not None and await last.status() in OPEN
        count += 1


async def response_to(handle: ExecutionHandle) -> dict[str, Any]:
    found = {"execution_id": handle.execution_id}
    try:
        result = await handle.result(timeout=WAIT_SECONDS)
    except TimeoutError:
        return {**found, "status": (await handle.status()).value}
    except errors.ExecutionFailedError as error:
        return {**found, "status": "FAILED", "error": str(error)}
    if result.interrupts:
        questions = [question.to_json() for question in result.interrupts]
        return {**found, "status": "SUSPENDED", "questions": questions}
    return {**found, "status": result.status.value, "answer": str(result).strip()}


@app.ping
def ping() -> PingStatus:
    """Keep this container alive while an execution is running, even without a call."""
    is_busy = asyncio.run(backend.list(status=ACTIVE, limit=1))
    return PingStatus.HEALTHY_BUSY if is_busy else PingStatus.HEALTHY


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "8080")))
