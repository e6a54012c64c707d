"""Lets a request in, or says why not: host, origin of a form, read-only, user; and the form for the password."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._access import Access, Entered, PasswordAccess, TokenAccess, new_session
from ._guard import base_of, is_own_form, is_own_host, path_in
from ._site import Site
from ._wording import plural

_OPEN = ("/static/", "/login")
"""Paths that need no user: they show nothing of an execution."""
_LOGIN_BYTES = 10_000
_KNOWN_SECONDS = 90 * 86_400


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Who may see the page, and what it may do."""

    access: Access
    read_only: bool = False
    hosts: Collection[str] | None = None
    """Host names that a request may use; None: any, where a cookie or a header decides and not the address."""
    cookie: str = "strands_durable_ui"
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server stops: open streams end then, which would otherwise keep it."""


class Entrance:
    """What stands before every page. A request that passes has a user and a session."""

    def __init__(self, app: ASGIApp, settings: Settings, site: Site) -> None:
        self._app, self._settings, self._access, self._site = app, settings, settings.access, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request if it may be served."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        response = self._not_ours(request)
        if response is None and not path_in(request).startswith(_OPEN):
            response = await self._unknown(request)
        if response is not None:
            await response(scope, receive, send)
        elif getattr(request.state, "is_new_session", False):
            await self._app(scope, receive, self._with_cookie(request, send))
        else:
            await self._app(scope, receive, send)

    def _not_ours(self, request: Request) -> Response | None:
        """Return the refusal of a request for another host, or of a form that may not be sent."""
        hosts = self._settings.hosts
        if not path_in(request).isascii() and path_in(request) != path_in(request).encode("utf-8", "ignore").decode():
            return self._refused(request, 400, "This address is not text.")
        if hosts is not None and not is_own_host(request, hosts):
            return self._refused(request, 400, "This page has another host name. Open the URL as it was printed.")
        if request.method in ("GET", "HEAD"):
            return None
        if not is_own_form(request):
            return self._refused(request, 403, "This form was not sent from a page of this site. Nothing was changed.")
        if self._settings.read_only and path_in(request) not in ("/login", "/logout"):
            return self._refused(request, 403, "This page is read-only. Nothing was changed.")
        return None

    async def _unknown(self, request: Request) -> Response | None:
        """Return what a person gets who is not known yet; None for one who is."""
        access, given = self._access, request.cookies.get(self._settings.cookie, "")
        if isinstance(access, TokenAccess) and "token" in request.query_params and request.method == "GET":
            session = access.entered(request.query_params["token"], given)
            if session is None:
                return self._refused(request, 401, f"This token is wrong. {access.refusal}")
            return signed_in(request, self._settings, session)
        user = await access.user_of(request, given)
        if user is not None:
            request.state.user, request.state.session = user, given or new_session()
            request.state.is_new_session = not given
            return None
        if access.entry == "password" and request.method == "GET":
            return RedirectResponse(f"{base_of(request)}/login", 303)
        return self._refused(request, 401 if access.entry else 403, access.refusal)

    def _refused(self, request: Request, status: int, why: str) -> Response:
        return self._site.message(request, status, "Not allowed", why)

    def _with_cookie(self, request: Request, send: Send) -> Send:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                cookie = _with_session(request, self._settings, Response(), request.state.session)
                MutableHeaders(scope=message).append("set-cookie", cookie.headers["set-cookie"])
            await send(message)

        return sent


class Login:
    """The form for the password."""

    def __init__(self, settings: Settings, site: Site) -> None:
        self._settings, self._access, self._site = settings, settings.access, site

    async def enter(self, request: Request) -> Response:
        """Show the form, and take what was sent."""
        access, page = self._access, "login.html"
        if not isinstance(access, PasswordAccess):
            raise HTTPException(404)
        if request.method != "POST":
            return self._site.page(request, page)
        posted = await self._site.form(request, most_bytes=_LOGIN_BYTES, is_open=True)
        name = posted.get("name", "").strip()
        if not name:
            return self._site.page(
                request, page, status=400, error="Your name is missing. It is recorded with answers."
            )
        address, browser = request.client.host if request.client else "", request.cookies.get(self._known, "")
        found = access.entered(address, name, posted.get("password", ""), browser)
        if isinstance(found, Entered):
            response = signed_in(request, self._settings, found.session)
            return _with_cookie(request, response, self._known, found.browser, _KNOWN_SECONDS)
        if not found.seconds:
            return self._site.page(request, page, status=401, error="This password is wrong.", name=name)
        error = f"Too many wrong passwords. The next one is looked at in {plural(found.seconds, 'second')}."
        response = self._site.page(request, page, status=429, error=error, name=name)
        response.headers["retry-after"] = str(found.seconds)
        return response

    @property
    def _known(self) -> str:
        """The cookie of a browser that has been in."""
        return f"{self._settings.cookie}_known"

    async def leave(self, request: Request) -> Response:
        """Forget the session."""
        await self._site.form(request)
        if isinstance(self._access, PasswordAccess):
            self._access.sessions.end(request.state.session)
        return RedirectResponse(f"{base_of(request)}/login", 303)


def signed_in(request: Request, settings: Settings, session: str) -> Response:
    """Return the way to the first page, with the session's cookie and without what was in the URL."""
    return _with_session(request, settings, RedirectResponse(f"{base_of(request)}/", 303), session)


def _with_session(request: Request, settings: Settings, response: Response, session: str) -> Response:
    return _with_cookie(request, response, settings.cookie, session)


def _with_cookie(request: Request, response: Response, name: str, value: str, seconds: int | None = None) -> Response:
    response.set_cookie(
        name,
        value,
        path=f"{base_of(request)}/",
        max_age=seconds,
        httponly=True,
        samesite="lax",  # strict: a link in a chat or mail leads a person who is signed in to a refusal
        secure=request.url.scheme == "https",
    )
    return response
