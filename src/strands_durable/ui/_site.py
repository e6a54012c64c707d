"""How a page is made: templates with every value escaped, and forms that are read only if they are ours."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .._records.printable import url_for_people
from . import _wording
from ._access import form_token, is_form_token
from ._guard import base_of

_HERE = Path(__file__).parent
_MOST_BYTES = 1_000_000
_FILTERS = (
    "age",
    "beginning",
    "breakable",
    "brief",
    "count",
    "iso",
    "line",
    "moment",
    "plural",
    "slug",
    "text",
    "took",
    "written",
)


class Site:
    """Makes pages from templates."""

    def __init__(self, *, title_url: str, read_only: bool, can_leave: bool) -> None:
        self.read_only = read_only
        self._place, self._can_leave = re.sub(r"[?&]worker=\w+$", "", url_for_people(title_url)), can_leave
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update({name: getattr(_wording, name) for name in _FILTERS})
        self._templates.globals["more"] = _wording.MORE
        self._templates.filters["quoted"] = lambda value: quote(str(value), safe="")
        self._version = sha256(
            b"".join(path.read_bytes() for path in sorted((_HERE / "static").iterdir()))
        ).hexdigest()[:12]

    def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        user, session = getattr(request.state, "user", None), getattr(request.state, "session", "")
        html = self._templates.get_template(template).render(
            base=base_of(request),
            version=self._version,
            place=self._place,
            user=user,
            can_leave=self._can_leave and user is not None,
            read_only=self.read_only,
            form_token="" if user is None else form_token(session, user),
            now=time.time(),
            **{"error": None, "name": "", **values},
        )
        return HTMLResponse(html, status)

    def message(self, request: Request, status: int, title: str, said: str) -> Response:
        """Return a page that says one thing."""
        return self.page(request, "message.html", status=status, title=title, said=said)

    async def form(self, request: Request, *, most_bytes: int = _MOST_BYTES, is_open: bool = False) -> dict[str, str]:
        """Return the fields of a form; refuse one that was not made for this session."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > most_bytes:
                raise HTTPException(413, "This is too long.")
        posted = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not is_open and not is_form_token(posted.pop("form_token", ""), request.state.session, request.state.user):
            raise HTTPException(
                403, "This form has expired. Nothing was changed; go back, reload the page, and try again."
            )
        return posted

    def handler(
        self, answer: Callable[[Site, Request, Exception], Response]
    ) -> Callable[[Request, Exception], Awaitable[Response]]:
        """Return a handler for errors."""

        async def handled(request: Request, error: Exception) -> Response:
            return answer(self, request, error)

        return handled
