"""What requests are checked by, the host they name and where a form was sent from, and the headers of every response."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it, browsers send the origin of a form as "null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Headers:
    """Adds the headers that keep foreign text from doing anything in the page; pages are not stored, files of ours are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, sent)


def path_in(request: Request) -> str:
    """Return the path below the place where the page is mounted."""
    path, root = str(request.scope["path"]), base_of(request)
    return path.removeprefix(root) or "/"


def base_of(request: Request) -> str:
    """Return where the page is mounted; empty at the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def is_own_host(request: Request, hosts: Collection[str]) -> bool:
    """Return whether a request names a host of ours: a foreign name that leads here is an attack by DNS."""
    return _host_name(request.headers.get("host", "")) in hosts


def is_own_form(request: Request) -> bool:
    """Return whether a form was sent from a page of this origin, as the browser reports it."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is not None and _place_of(origin) == request.headers.get("host")


def _place_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
