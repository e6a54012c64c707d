"""The forms that change something: answers, resume, cancel, remove. Each is sent from a page that names what will happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from .._dispatch.ports import DurableBackend
from .._records.views import Answered, ExecutionDetail, OpenQuestion
from ..errors import InputMismatchError
from ._forms import AnswerError, answer_in, form_of
from ._guard import base_of
from ._reading import Reading, questions_of
from ._site import Site
from ._wording import age, line, written

_DIGITS = 10


@dataclass(frozen=True, kw_only=True)
class Action:
    """Something that can be done with an execution."""

    question: str
    consequence: str
    button: str
    tone: str


ACTIONS = {
    "resume": Action(
        question="Resume this execution?",
        consequence="It is retried from the step that failed; finished steps do not run again. The failure stays on record.",
        button="Resume",
        tone="good",
    ),
    "fork": Action(
        question="Fork this execution?",
        consequence="A new execution begins with everything up to that step, and runs with today's version of the agent. "
        "Finished steps do not run again, and this execution is not changed.",
        button="Fork",
        tone="good",
    ),
    "cancel": Action(
        question="Cancel this execution?",
        consequence="It stops for good and cannot be resumed. What it has recorded is kept.",
        button="Cancel the execution",
        tone="bad",
    ),
    "remove": Action(
        question="Remove this execution?",
        consequence="Everything that it has recorded is deleted. This cannot be undone.",
        button="Remove",
        tone="bad",
    ),
}


class Actions:
    """Does what a person has confirmed."""

    def __init__(self, backend: DurableBackend, reading: Reading, site: Site) -> None:
        self._backend, self._reading, self._site = backend, reading, site

    async def confirm(self, request: Request) -> Response:
        """Ask before anything is done."""
        action = _action(request)
        detail = await self._reading.detail(request.path_params["execution_id"])
        return self._site.page(
            request,
            "confirm.html",
            execution=detail.execution,
            name=request.path_params["action"],
            action=action,
            at=_number(request.query_params.get("at", "")),
        )

    async def perform(self, request: Request) -> Response:
        """Do what was confirmed."""
        _action(request)
        posted = await self._site.form(request)
        execution_id, name = request.path_params["execution_id"], request.path_params["action"]
        if name == "remove":
            await self._backend.remove(execution_id)
            return RedirectResponse(f"{base_of(request)}/?done=remove", 303)
        handle = await self._backend.get(execution_id)
        if name == "fork":
            at, prompt = _number(posted.get("at", "")), posted.get("prompt", "").strip() or None
            new_id = posted.get("execution_id", "").strip() or None
            fork = await handle.fork(at=at, execution_id=new_id, prompt=prompt, by=request.state.user)
            return RedirectResponse(f"{_page_of(request, fork.execution_id)}?done=fork", 303)
        if name == "cancel":
            await handle.cancel()
        else:
            await handle.resume(accept_drift="accept_drift" in posted)
        return RedirectResponse(f"{_page_of(request, execution_id)}?done={name}", 303)

    async def answer(self, request: Request) -> Response:
        """Record the answer to a question, and who gave it."""
        posted = await self._site.form(request)
        execution_id, interrupt_id = request.path_params["execution_id"], posted.get("interrupt_id", "")
        detail = await self._reading.detail(execution_id)
        asked = _asked(detail, interrupt_id)
        if asked is None:
            return self._too_late(request, detail, interrupt_id)
        try:
            given = answer_in(form_of(asked.question), posted)
            await (await self._backend.get(execution_id)).respond({interrupt_id: given}, by=request.state.user)
        except AnswerError as error:
            return self._again(request, asked, posted, str(error))
        except InputMismatchError:
            detail = await self._reading.detail(execution_id)
            if _asked(detail, interrupt_id) is not None:
                raise
            return self._too_late(request, detail, interrupt_id)
        place = f"{base_of(request)}/inbox" if posted.get("from") == "inbox" else _page_of(request, execution_id)
        return RedirectResponse(f"{place}?done=answered", 303)

    def _again(self, request: Request, asked: OpenQuestion, posted: dict[str, str], error: str) -> Response:
        """Ask again, with what was typed."""
        return self._site.page(
            request,
            "answer.html",
            status=400,
            asked=asked,
            form=form_of(asked.question),
            typed=posted.get("text", ""),
            source=posted.get("from", ""),
            error=error,
        )

    def _too_late(self, request: Request, detail: ExecutionDetail, interrupt_id: str) -> Response:
        """Say who has answered meanwhile."""
        answers = [each for call in detail.calls for each in call.answers if each.interrupt_id == interrupt_id]
        said = (
            _answered(answers[-1])
            if answers
            else f"Execution {detail.execution.execution_id} no longer asks this question."
        )
        return self._site.page(
            request, "message.html", status=409, title="Already answered", said=said, execution=detail.execution
        )


def _answered(answer: Answered) -> str:
    by = f" by {line(answer.by)}" if answer.by else ""
    value: Any = answer.answer
    return (
        f"This question was answered meanwhile{by}, {age(answer.at)}: {written(value)}\nYour answer was not recorded."
    )


def _asked(detail: ExecutionDetail, interrupt_id: str) -> OpenQuestion | None:
    return next((each for each in questions_of(detail) if each.question.interrupt_id == interrupt_id), None)


def _number(text: str) -> int | None:
    """Return the number of a step that a link or a form names; None for the last finished one."""
    if text and not (text.isascii() and text.isdecimal() and len(text) < _DIGITS):
        raise HTTPException(400, f"{line(text)} is not the number of a step.")
    return int(text) if text else None


def _action(request: Request) -> Action:
    found = ACTIONS.get(request.path_params["action"])
    if found is None:
        raise HTTPException(404)
    return found


def _page_of(request: Request, execution_id: str) -> str:
    return f"{base_of(request)}/executions/{quote(execution_id, safe='')}"
