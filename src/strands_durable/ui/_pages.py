"""The pages that show something: executions, one execution, its conversation, its events, and the inbox."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .._records.executions import ExecutionStatus
from .._records.keys import idempotency_key
from .._records.live_text import LiveText
from .._records.results import StreamEvent
from .._records.views import CallSummary, ExecutionDetail, StepSummary
from .._records.waits import seconds_in
from ..errors import BytesNotFoundError, DurableError, UnsupportedFeatureError
from ._content import blocks_of, conversation_of, picture_format, result_blocks
from ._forms import form_of
from ._node_map import NodeMap, node_map_of
from ._reading import INBOX_SIZE, Listed, Reading, Wanted, questions_of, until_set
from ._site import Site
from ._timeline import grouped, step_place, timeline_of, tokens_of, waits_of

_ACTIVE = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)
_MESSAGES = 100
_RUN_DIGITS = 10
_DIGEST = re.compile("[0-9a-f]{64}")
_DONE = {
    "answered": "The answer is recorded.",
    "resume": "It will be resumed.",
    "fork": "This is the fork.",
    "cancel": "Cancelling was requested.",
    "remove": "It was removed.",
}
"""What was just done, by a word in the URL: the URL itself cannot put a sentence into the page."""


class Pages:
    """Makes the pages that change nothing, in a thread where they may be large: others are not kept waiting."""

    def __init__(self, reading: Reading, site: Site, ending: asyncio.Event) -> None:
        self._reading, self._site, self._ending = reading, site, ending

    async def executions(self, request: Request) -> Response:
        """Show the list of executions."""
        wanted = _wanted(request)
        try:
            listed = await self._reading.executions(wanted)
        except ValueError as error:  # a cursor that a person has typed
            raise HTTPException(400, str(error)) from error
        return self._site.page(
            request,
            "executions.html",
            wanted=wanted,
            listed=listed,
            statuses=list(ExecutionStatus),
            done=_DONE.get(request.query_params.get("done", "")),
            first=_link(replace(wanted, before="")) if wanted.before else None,
            after=_after(wanted, listed),
        )

    async def inbox(self, request: Request) -> Response:
        """Show the open questions of all executions."""
        asked = await self._reading.questions()
        warning = await self._reading.warning() if asked else None
        return await asyncio.to_thread(
            lambda: self._site.page(
                request,
                "inbox.html",
                asked=[(each, form_of(each.question)) for each in asked[:INBOX_SIZE]],
                has_more=len(asked) > INBOX_SIZE,
                done=_DONE.get(request.query_params.get("done", "")),
                warning=warning,
            )
        )

    async def execution(self, request: Request) -> Response:
        """Show one execution: what it waits for, its nodes, its timeline, and one of its steps."""
        detail = await self._detail(request)
        place = request.query_params.get("step")
        warning = await self._warning(detail)
        return await asyncio.to_thread(
            lambda: self._site.page(
                request,
                "execution.html",
                **_shared(detail),
                asked=[(each, form_of(each.question)) for each in questions_of(detail)],
                maps=_maps(detail),
                timeline=timeline_of(detail, _until(detail)),
                chosen=None if place is None else _chosen(detail, place),
                done=_DONE.get(request.query_params.get("done", "")),
                warning=warning,
            )
        )

    async def conversation(self, request: Request) -> Response:
        """Show what was said in each call, the most recent messages of it."""
        detail = await self._detail(request)
        return await asyncio.to_thread(lambda: self._conversation(request, detail))

    def _conversation(self, request: Request, detail: ExecutionDetail) -> Response:
        whole = request.query_params.get("all")
        calls = []
        for index, call in enumerate(detail.calls):
            said, left_out = conversation_of(call, None if whole == str(index) else _MESSAGES)
            calls.append((index, call, said, left_out))
        return self._site.page(request, "conversation.html", **_shared(detail), calls=calls, done=None)

    async def image(self, request: Request) -> Response:
        """Send a recorded image, of a format that a browser can only draw; whatever else is recorded is not sent."""
        digest = request.path_params["digest"]
        if not _DIGEST.fullmatch(digest):
            raise HTTPException(404)
        try:
            data = await self._reading.recorded_bytes(request.path_params["execution_id"], digest)
        except (BytesNotFoundError, UnsupportedFeatureError):
            raise HTTPException(404) from None
        form = picture_format(data)
        if form is None:
            raise HTTPException(404)
        return Response(data, media_type=f"image/{form}")

    async def events(self, request: Request) -> Response:
        """Send what happens in an execution as it happens: pieces of text, and that a step has ended."""
        execution_id = request.path_params["execution_id"]
        detail = await self._reading.detail(execution_id)
        after = sum(step.status != "started" for step in detail.steps)
        events = self._events(execution_id, after)
        return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def _events(self, execution_id: str, after: int) -> AsyncIterator[str]:
        yield "retry: 3000\n\n"
        live = LiveText()
        try:
            async with aclosing(self._reading.events(execution_id, after)) as events:
                async for event in until_set(self._ending, events):
                    if (sent := _sent(event, live)) is not None:
                        yield sent
        except DurableError:  # the page itself says what is wrong, when it is loaded again
            pass
        yield "event: end\ndata: {}\n\n"

    async def _detail(self, request: Request) -> ExecutionDetail:
        run = request.query_params.get("run")
        if run is not None and not (run.isdecimal() and len(run) < _RUN_DIGITS):
            raise HTTPException(404)
        return await self._reading.detail(request.path_params["execution_id"], None if run is None else int(run))

    async def _warning(self, detail: ExecutionDetail) -> str | None:
        waits = detail.execution.status in _ACTIVE and detail.execution.owner is None
        return await self._reading.warning() if waits and detail.execution.kind != "inline" else None


def _wanted(request: Request) -> Wanted:
    query = request.query_params
    status = query.get("status", "")
    return Wanted(
        status=ExecutionStatus(status) if status in ExecutionStatus.__members__ else None,
        **{name: query.get(name, "").strip() for name in ("agent", "tag", "search", "before")},
        with_errors=query.get("errors") == "on",
    )


def _after(wanted: Wanted, listed: Listed) -> dict[str, str] | None:
    return _link(replace(wanted, before=listed.records[-1].cursor)) if listed.has_more else None


def _link(wanted: Wanted) -> dict[str, str]:
    """Return the query of a list."""
    parts = {**vars(wanted), "status": "" if wanted.status is None else wanted.status.value}
    parts["errors"] = "on" if parts.pop("with_errors") else ""
    return {name: value for name, value in parts.items() if value}


def _maps(detail: ExecutionDetail) -> list[NodeMap]:
    """Return the picture of each Graph or Swarm; the edges of the one that was dispatched are known."""
    nodes, edges = ((), ()) if detail.spec is None else (tuple(detail.spec.nodes), detail.spec.edges)
    found = [node_map_of(call, *((nodes, edges) if call.depth == 0 else ((), ()))) for call in detail.calls]
    return [each for each in found if each is not None]


def _until(detail: ExecutionDetail) -> float:
    """Return until when a timeline is drawn: until now, or until its end, also if a question was never answered."""
    record, is_current = detail.execution, detail.run == detail.execution.run
    if is_current and record.status in (*_ACTIVE, ExecutionStatus.SUSPENDED):
        return time.time()
    lived: list[CallSummary | StepSummary] = [*detail.calls, *detail.steps]
    ends = [each.ended_at for each in lived if each.ended_at is not None]
    return max([*ends, record.updated_at] if is_current else ends, default=record.updated_at)


def _shared(detail: ExecutionDetail) -> dict[str, Any]:
    """Return what both pages of an execution show."""
    spent, made = tokens_of(detail.steps)
    roots = [call for call in detail.calls if call.depth == 0]
    started = min((call.started_at for call in roots), default=detail.execution.created_at)
    is_current = detail.run == detail.execution.run
    is_active = detail.execution.status in _ACTIVE and is_current
    ended = time.time() if is_active else max((call.ended_at or 0.0 for call in roots), default=0.0)
    waited = detail.execution.waited_seconds if is_current else seconds_in(waits_of(detail), started, ended)
    return {
        "detail": detail,
        "execution": detail.execution,
        "is_active": is_active,
        "is_current": is_current,
        "spent": spent,
        "made": made,
        "started_at": started,
        "lasted": None if ended < started else max(0.0, ended - started - waited),
        "waited": detail.execution.waited_until(time.time()) if is_current else waited,
        "failures": [(call, each) for call in detail.calls if call.depth == 0 for each in call.failures],
        "answers": [(call, each) for call in roots for each in call.answers],
    }


def _chosen(detail: ExecutionDetail, place: str) -> dict[str, Any] | None:
    """Return the attempts of the step that was asked for; None if there is no such step."""
    for call in detail.calls:
        for attempts in grouped(call).values():
            if step_place(call, attempts[0]) == place:
                return _step(detail, call, attempts, place)
    return None


def _step(detail: ExecutionDetail, call: CallSummary, attempts: list[StepSummary], place: str) -> dict[str, Any]:
    key = idempotency_key(detail.execution.execution_id, detail.run, place)
    return {
        "place": place,
        "call": call,
        "label": attempts[0].label,
        "kind": attempts[0].kind,
        "idempotency_key": key if attempts[0].kind in ("tool", "model") else None,
        "attempts": [(step, result_blocks(step)) for step in attempts],
        "input": blocks_of(attempts[-1].input) if attempts[-1].kind == "node" else None,
    }


def _sent(event: StreamEvent, live: LiveText) -> str | None:
    """Return an event for the browser; None for what it does not show."""
    if event["recorded"]:
        return f"event: step\ndata: {json.dumps({'number': event['number']})}\n\n"
    said = live.grown(event["step"], event["attempt"], event.get("data") or "")
    if not said:
        return None
    data = json.dumps({"step": event["step"], "attempt": event["attempt"], "number": event["number"], "text": said})
    return f"event: text\ndata: {data}\n\n"
