"""The page as a server of its own, for `strands-durable ui`: where it listens, who gets in, and how it ends."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from .._dispatch.ports import DurableBackend
from .._journal.owner import user_name
from .._records.small_files import text_in
from ..errors import BackendUnavailableError, UnsupportedFeatureError
from ._access import Access, HeaderAccess, PasswordAccess, TokenAccess
from ._app import Settings, application

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ENDING_SECONDS = 2
_LEAST_PASSWORD = 8


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the page is served, and to whom."""

    host: str = "127.0.0.1"
    port: int = 0
    read_only: bool = False
    password_file: Path | None = None
    user_header: str | None = None


def serve(backend: DurableBackend, place: Place, announce: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C or SIGTERM; ``announce`` gets its URL as soon as it can be opened."""
    access = _access(place)
    with _listening(place) as listener:
        port = listener.getsockname()[1]
        is_local = isinstance(access, TokenAccess)
        settings = Settings(
            access=access,
            read_only=place.read_only,
            hosts={*_LOOPBACK, place.host} if is_local else None,
            cookie=f"strands_durable_ui_{port}",  # cookies are shared by all ports of a machine
        )
        config = uvicorn.Config(
            application(backend, settings),
            log_level="warning",
            access_log=False,  # it would have the token
            server_header=False,
            lifespan="off",
            ws="none",
            proxy_headers=place.user_header is not None,
            timeout_graceful_shutdown=_ENDING_SECONDS,
        )
        announce(_url(place.host, port, access))
        try:
            asyncio.run(_served(_Server(config, settings.ending), listener, backend))
        except KeyboardInterrupt:
            pass


class _Server(uvicorn.Server):
    """Ends open streams when it stops, so that it need not wait for them."""

    def __init__(self, config: uvicorn.Config, ending: asyncio.Event) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending.set()
        await super().shutdown(sockets)


async def _served(server: uvicorn.Server, listener: socket.socket, backend: DurableBackend) -> None:
    try:
        await server.serve(sockets=[listener])
    finally:
        await backend.close()


def _url(host: str, port: int, access: Access) -> str:
    named = f"[{host}]" if ":" in host else host
    token = f"?token={access.token}" if isinstance(access, TokenAccess) else ""
    return f"http://{named}:{port}/{token}"


def _listening(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        listener = socket.create_server((place.host, place.port), family=family, backlog=100)
        # asyncio does it only for sockets that name their protocol; without it each page takes 40 ms more
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        where = f"{place.host}:{place.port}"
        raise BackendUnavailableError(where, error.strerror or str(error), "Choose another one with --port.") from error


def _access(place: Place) -> Access:
    if place.password_file is not None and place.user_header is not None:
        raise UnsupportedFeatureError(
            "--password-file with --user-header", "one of them decides who gets in", "Pass one."
        )
    if place.user_header is not None:
        return HeaderAccess(place.user_header)
    if place.password_file is not None:
        return PasswordAccess(_password(place.password_file))
    if not _is_loopback(place.host):
        raise UnsupportedFeatureError(
            f"--host {place.host} alone",
            "everyone who reaches that address could read and control executions",
            "Add --password-file FILE, or --user-header NAME behind a proxy that authenticates people.",
        )
    return TokenAccess(user_name())


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _password(path: Path) -> str:
    """Return the password in a file that only its owner can read."""
    try:
        password, mode = text_in(path).strip("\r\n"), path.stat().st_mode
    except ValueError as error:
        raise BackendUnavailableError(
            str(path), f"the password cannot be read: {error}", "Pass a text file."
        ) from error
    if os.name == "posix" and mode & stat.S_IRWXO:
        raise BackendUnavailableError(str(path), "other users can read it", f"Run: chmod o= {path}")
    if len(password) < _LEAST_PASSWORD:
        reason = f"its password has fewer than {_LEAST_PASSWORD} characters"
        raise BackendUnavailableError(str(path), reason, "Write a longer one into its first line.")
    return password
