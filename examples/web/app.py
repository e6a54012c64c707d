"""Runs over HTTP: start, inspect, answer and follow them.

Kill the server at any time. Its runs resume when it is restarted.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from agents import order_desk
from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from strands_durable import ExecutionHandle, ExecutionStatus, errors

backend = order_desk.backend  # STRANDS_DURABLE_BACKEND, else .strands/durable.db

HTTP_STATUS: dict[type[Exception], int] = {
    errors.ExecutionNotFoundError: 404,
    errors.InputMismatchError: 409,
    errors.ExecutionBusyError: 409,
    errors.ExecutionCancelledError: 409,
    errors.ExecutionFailedError: 409,
    errors.InDoubtError: 422,
    errors.NotSerializableError: 422,
    errors.BackendUnavailableError: 503,
    ValueError: 422,  # an id with invalid characters
}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    backend.start()  # resumes the runs of a killed server
    yield
    await backend.close()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(errors.DurableError)
async def refuse(request: Request, error: Exception) -> JSONResponse:
    status = next((status for kind, status in HTTP_STATUS.items() if isinstance(error, kind)), 500)
    return JSONResponse({"error": type(error).__name__, "detail": str(error)}, status)


class NewRun(BaseModel):
    prompt: str
    id: str | None = None


@app.post("/runs", status_code=202)
async def start(run: NewRun) -> dict[str, Any]:
    """Start a run. The same id and prompt again attach to it, so a request may be repeated."""
    return await shown(await order_desk.dispatch_async(run.prompt, execution_id=run.id))


@app.get("/runs/{execution_id}")
async def show(execution_id: str) -> dict[str, Any]:
    """Return the status of a run, its open questions and its result."""
    return await shown(await backend.get(execution_id))


@app.post("/runs/{execution_id}/answers", status_code=202)
async def answer(execution_id: str, answers: dict[str, Any]) -> dict[str, Any]:
    """Answer questions by their ids. The answers are recorded when this returns."""
    handle = await backend.get(execution_id)
    await handle.respond(answers)
    return await shown(handle)


@app.post("/runs/{execution_id}/cancel", status_code=202)
async def cancel(execution_id: str) -> dict[str, Any]:
    """Stop a run for good."""
    handle = await backend.get(execution_id)
    await handle.cancel()
    return await shown(handle)


@app.get("/runs/{execution_id}/events")
async def events(execution_id: str, last_event_id: Annotated[int, Header()] = 0) -> StreamingResponse:
    """Follow a run as server-sent events. A browser that reconnects sends its position and misses nothing."""
    handle = await backend.get(execution_id)
    return StreamingResponse(lines(handle, last_event_id), media_type="text/event-stream")


async def lines(handle: ExecutionHandle, after: int) -> AsyncIterator[str]:
    async for event in handle.stream(after):
        number = f"id: {event['number']}\n" if event["recorded"] else ""
        yield f"{number}event: {'step' if number else 'chunk'}\ndata: {json.dumps(event)}\n\n"
    yield f"event: end\ndata: {json.dumps(await shown(handle))}\n\n"  # without it a browser would reconnect


async def shown(handle: ExecutionHandle) -> dict[str, Any]:
    status = await handle.status()
    found: dict[str, Any] = {"id": handle.execution_id, "status": status.value}
    if status is ExecutionStatus.SUSPENDED:
        found["questions"] = [question.to_json() for question in await handle.interrupts()]
    if status in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED):
        try:
            found["result"] = str(await handle.result()).strip()
        except errors.ExecutionFailedError as error:
            found["error"] = str(error)
    return found
