"""The application: its routes, and what every request passes before a page is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from .._dispatch.ports import DurableBackend
from ..errors import (
    BackendUnavailableError,
    DurableError,
    ExecutionBusyError,
    ExecutionCancelledError,
    ExecutionExistsError,
    ExecutionNotFoundError,
    ForkError,
    FormatVersionError,
    InputMismatchError,
    UnsupportedFeatureError,
)
from ._actions import Actions
from ._entrance import Entrance, Login, Settings
from ._guard import Headers
from ._pages import Pages
from ._reading import Reading
from ._site import Site
from ._wording import text

__all__ = ["Settings", "application"]

_STATUS: dict[type[DurableError], int] = {
    BackendUnavailableError: 503,
    ExecutionBusyError: 409,
    ExecutionExistsError: 409,
    ForkError: 409,
    ExecutionCancelledError: 409,
    ExecutionNotFoundError: 404,
    FormatVersionError: 503,
    InputMismatchError: 409,
    UnsupportedFeatureError: 400,
}
_STORED_SECONDS = 3600


def application(backend: DurableBackend, settings: Settings) -> ASGIApp:
    """Return the page for a backend."""
    reading = Reading(backend)
    site = Site(title_url=backend.url, read_only=settings.read_only, can_leave=settings.access.entry == "password")
    pages, actions, login = (
        Pages(reading, site, settings.ending),
        Actions(backend, reading, site),
        Login(settings, site),
    )
    app = Starlette(
        routes=_routes(pages, actions, login),
        exception_handlers={
            DurableError: site.handler(_error),
            HTTPException: site.handler(_http_error),
            ClientDisconnect: site.handler(_left),
        },
    )
    return Headers(Entrance(app, settings, site))


def _routes(pages: Pages, actions: Actions, login: Login) -> list[Route | Mount]:
    one = "/executions/{execution_id}"
    return [
        Route("/", pages.executions),
        Route("/inbox", pages.inbox),
        Route(one, pages.execution),
        Route(f"{one}/conversation", pages.conversation),
        Route(f"{one}/images/{{digest}}", pages.image),
        Route(f"{one}/events", pages.events),
        Route(f"{one}/answer", actions.answer, methods=["POST"]),
        Route(f"{one}/{{action}}", actions.confirm, methods=["GET"]),
        Route(f"{one}/{{action}}", actions.perform, methods=["POST"]),
        Route("/login", login.enter, methods=["GET", "POST"]),
        Route("/logout", login.leave, methods=["POST"]),
        Mount("/static", _Stored(directory=Path(__file__).parent / "static")),
    ]


class _Stored(StaticFiles):
    """Our own files: a browser may keep them for a while."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = f"max-age={_STORED_SECONDS}"
        return response


Kind = Literal["Not found", "Not possible", "Unavailable"]


def _error(site: Site, request: Request, error: Exception) -> Response:
    """Return an error of ours as a sentence."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)
    title: Kind = "Not found" if status == 404 else "Unavailable" if status == 503 else "Not possible"
    return site.message(request, status, title, text(error))


def _left(site: Site, request: Request, error: Exception) -> Response:
    """Return what no one will read: the browser has left before it had sent the whole form."""
    return Response(status_code=400)


def _http_error(site: Site, request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: "There is no such page.", 405: "This cannot be done here."}
    title: Kind = "Not found" if error.status_code == 404 else "Not possible"
    return site.message(request, error.status_code, title, known.get(error.status_code, error.detail))
