"""Public: a web page over executions, on every engine. `strands-durable ui` serves it, `durable_ui` mounts it in an app.

It shows what backends and handles return, and does what they do; it knows no engine and does not import Strands. Its extra is
``ui``. Accounts, TLS and rate limits are left to the application or the proxy in front of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .._dispatch.ports import DurableBackend
from ..errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

__all__ = ["durable_ui"]


def durable_ui(
    backend: DurableBackend,
    *,
    authorize: Callable[[Request], str | Awaitable[str | None] | None] | None = None,
    read_only: bool = False,
) -> ASGIApp:
    """Return the page as an ASGI application: ``app.mount("/runs", durable_ui(backend, authorize=user_of))``.

    Args:
        backend: Whose executions it shows. An answer or a resume starts what the backend starts in this process; looking at the
            page starts nothing.
        authorize: Called with each request; returns the name of the user, which is recorded with answers, or None to refuse.
            Sync or async. Without it, every request is refused.
        read_only: Show everything, change nothing.

    Raises:
        UnsupportedFeatureError: The extra ``ui`` is not installed.
    """
    try:
        from ._access import CallbackAccess
        from ._app import Settings, application
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("strands_durable"):
            raise
        raise missing_extra(error) from error
    return application(backend, Settings(access=CallbackAccess(authorize), read_only=read_only))


def missing_extra(error: ModuleNotFoundError) -> UnsupportedFeatureError:
    """Return the error for a library of the extra that is not installed."""
    missing = (error.name or "").partition(".")[0]
    return UnsupportedFeatureError(
        "The web page", f"{missing} is not installed", "Install it: pip install 'strands-durable[ui]'"
    )
