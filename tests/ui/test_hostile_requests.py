"""Paths, headers, queries and bodies that no browser sends, to every route: an answer, and never an error of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_durable.ui._access import Access, CallbackAccess, HeaderAccess, PasswordAccess, TokenAccess
from strands_durable.ui._actions import Actions
from strands_durable.ui._app import Settings, _routes, application
from strands_durable.ui._entrance import Login
from strands_durable.ui._pages import Pages
from strands_durable.ui._reading import Reading
from strands_durable.ui._site import Site as Templates
from tests.ui.site import Site, form_token, site

LONG = b"x" * 20_000
PIECES = [
    "",
    ".",
    "..",
    "a/b",
    "%2e%2e%2f",
    "\0",
    "\n",
    "é",
    "\udcff",
    "' OR 1=1 --",
    "<b>",
    "{{7*7}}",
    "9" * 400,
    "x" * 20_000,
    "trip-1",
]
HEADERS: dict[bytes, list[bytes]] = {
    b"origin": [
        b"http://[",
        b"http://[::1",
        b"http://[x]",
        b"http://a]b",
        b"null",
        b"",
        b"://",
        b"http://\xff",
        LONG,
        b"http://x:99999999",
    ],
    b"sec-fetch-site": [b"", b"same-origin, cross-site", b"\xff", LONG],
    b"host": [
        b"[",
        b"[::1",
        b"]",
        b"",
        b"a b",
        b"\xff",
        b"127.0.0.1:x",
        b"127.0.0.1:99999999",
        b"x" * 500,
        b"u:p@h",
        b"::1",
        b"[v1.x]",
    ],
    b"cookie": [
        b"=",
        b";;;",
        b"strands_durable_ui=",
        b"strands_durable_ui=\xff\x00",
        b'a="\\',
        LONG,
        b"strands_durable_ui=x; strands_durable_ui=y",
    ],
    b"if-none-match": [b'"', b"*", b'W/"', LONG, b"\xff"],
    b"if-modified-since": [b"nonsense", b"Thu, 32 Foo 99999 99:99:99 GMT", b"\xff", b"9" * 400],
    b"if-range": [b'"', b"nonsense", b"\xff"],
    b"range": [
        b"bytes=",
        b"bytes=-",
        b"bytes=5-1",
        b"bytes=" + b"9" * 400 + b"-",
        b"bytes=0-0,1-1",
        b"bytes=" + b"0-," * 5000,
        b"x",
        b"bytes=-" + b"9" * 30,
        b"bytes=a-b",
    ],
    b"accept": [b"", b"*/*;q=x", LONG, b"\xff"],
    b"accept-encoding": [b"gzip;q=\xff", LONG],
    b"content-length": [b"-1", b"x", b"9" * 400, b""],
    b"content-type": [
        b"",
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b"text/plain; charset=nope",
        b"\xff",
        b"application/json",
    ],
    b"last-event-id": [b"-1", b"x", b"9" * 400, b"nan", b"\xff", b""],
    b"x-forwarded-for": [b"[", LONG, b"\xff"],
    b"x-forwarded-proto": [b"javascript", b"\xff"],
    b"x-user": [b"", b"\xff", b"\x00", LONG],
    b"authorization": [b"Basic =", b"Bearer \xff"],
    b"transfer-encoding": [b"chunked", b"x"],
    b"": [b"nameless"],
}
QUERIES = [
    b"=",
    b"&" * 2000,
    b"token=",
    b"token=%ff%00",
    b"after=x",
    b"after=-1",
    b"after=" + b"9" * 400,
    b"after=nan",
    b"%",
    b"%zz=%zz",
    b"status=NOPE",
    b"status=",
    b"tag==",
    b"tag=%00",
    b"agent=%ff",
    b"search=%00%ff",
    b"search=" + LONG,
    b"since=x",
    b"since=" + b"9" * 40,
    b"before=x",
    b"before=1e999@x",
    b"before=" + b"9" * 400 + b"@x",
    b"limit=" + b"9" * 40,
    b"page=-1",
    b"step=%00",
    b"run=-1",
    b"run=" + b"9" * 400,
    b"full=1",
    b"at=x",
    b"at=-1",
    b"at=" + b"9" * 400,
    b"scope=%ff",
    b"node=..",
    b"newest=x",
    b"offset=-1",
    b"older=%ff",
    b"call=" + b"9" * 30,
    b"part=x",
    b"position=-" + b"9" * 30,
    b"\xff\xfe",
]
FIELDS = [
    "interrupt_id",
    "text",
    "choice",
    "answer",
    "at",
    "prompt",
    "id",
    "name",
    "password",
    "execution_id",
    "state",
    "message",
    "accept_drift",
]
VALUES = ["", "\0", "\udcff", "-1", "9" * 400, "nan", "x" * 50_000, "[" * 3000, '{"a":' * 2000, "null", "../..", "0"]


class Caller:
    """Sends requests as a server hands them on, well-formed or not."""

    def __init__(self, page: Site, app: Any, token: str) -> None:
        self._page, self._app, self._token = page, app, token
        self.failed: list[str] = []

    def ask(
        self,
        method: str,
        path: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        query: bytes = b"",
        body: bytes = b"",
        hangs_up: bool = False,
    ) -> None:
        """Send a request; remember it if the server failed."""
        status = self._page.run(self._status(method, path, list(headers), query, body, hangs_up=hangs_up))
        if not isinstance(status, int) or not 200 <= status < 500:
            self.failed.append(
                f"{method} {path[:80]!r} {query[:80]!r} {str(list(headers))[:120]} {body[:60]!r}: {status}"
            )

    async def _status(
        self, method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes, body: bytes, *, hangs_up: bool
    ) -> int | str | None:
        given = [(name, value) for name, value in self._usual(method) if name not in dict(headers)] + headers
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode("utf-8", "surrogateescape"), "query_string": query, "root_path": "",
            "headers": given, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        incoming = [{"type": "http.request", "body": body, "more_body": hangs_up}]
        found: list[int] = []

        async def receive() -> Any:
            return incoming.pop(0) if incoming else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                found.append(message["status"])
            if message.get("body") and path.endswith("/events"):
                raise OSError("the client has left")  # a stream has no end

        try:
            await asyncio.wait_for(self._app(scope, receive, send), 20)
        except OSError:
            pass
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
        return found[0] if found else None

    def _usual(self, method: str) -> list[tuple[bytes, bytes]]:
        host = [(b"host", b"127.0.0.1:80"), (b"cookie", b"strands_durable_ui=" + b"s" * 43), (b"x-user", b"anna")]
        return [*host, *([(b"origin", b"http://127.0.0.1:80")] if method == "POST" else [])]


def paths(page: Site) -> list[tuple[str, str]]:
    """Return every route of the page, with its method and places for ids."""
    templates, reading = Templates(title_url="", read_only=False, can_leave=False), Reading(page.backend)
    settings = Settings(access=CallbackAccess(None))
    parts = (
        Pages(reading, templates, settings.ending),
        Actions(page.backend, reading, templates),
        Login(settings, templates),
    )
    found = []
    for route in _routes(*parts):
        for method in sorted(getattr(route, "methods", None) or {"GET"}):
            found.append((method, route.path if hasattr(route, "methods") else f"{route.path}/{{digest}}"))
    return [(method, path) for method, path in found if method != "HEAD"]


def filled(path: str, piece: str) -> str:
    """Return a path with a piece in the place of the first id, or of all."""
    known = {"{execution_id}": "trip-1", "{action}": "fork", "{digest}": "d" * 64}
    first = next((name for name in ("{action}", "{digest}", "{execution_id}") if name in path), "")
    for name, value in {**known, first: piece if first else ""}.items():
        path = path.replace(name, value) if name else path
    return path


ACCESSES = {
    "application": lambda: CallbackAccess(lambda request: "anna"),
    "token": lambda: TokenAccess("anna", "token"),
    "password": lambda: PasswordAccess("correct horse"),
    "proxy": lambda: HeaderAccess("x-user"),
}


@pytest.fixture(params=["application", *(pytest.param(name, marks=pytest.mark.long) for name in list(ACCESSES)[1:])])
def caller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Caller]:
    access: Access = ACCESSES[request.param]()
    hosts = {"127.0.0.1"} if request.param == "token" else None
    apps: list[Any] = []

    def made(backend: Any) -> Any:
        apps.append(application(backend, Settings(access=access, hosts=hosts)))
        return apps[0]

    with site(str(tmp_path), app=made) as page:
        page.finished("trip-1", {"tool": "approve", "what": "the trip"}, "Done.")
        yield Caller(page, apps[0], form_token(page.get("/inbox").text))


def test_no_request_makes_the_server_fail(caller: Caller) -> None:
    for method, path in paths(caller._page):
        usual = filled(path, "trip-1") if "{action}" not in path else filled(path, "fork")
        for piece in PIECES:
            caller.ask(method, filled(path, piece))
        for name, values in HEADERS.items():
            for value in values:
                caller.ask(method, usual, [(name, value)])
        for query in QUERIES:
            caller.ask(method, usual, query=query)
    for odd in ("", "//", "/\0", "*", "http://[/", "/executions//", "/static/", "/static/..", "/\udcff", "x" * 70_000):
        for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "TRACE", "", "\xff"):
            caller.ask(method, odd)
    assert not caller.failed, "\n".join(caller.failed)


def test_no_form_makes_the_server_fail(caller: Caller) -> None:
    from urllib.parse import quote

    kind = [(b"content-type", b"application/x-www-form-urlencoded")]
    token = f"form_token={made_for(caller)}&".encode()
    for method, path in paths(caller._page):
        if method != "POST":
            continue
        for action in ("fork", "resume", "cancel", "remove", "nope") if "{action}" in path else ("",):
            usual = filled(path, action or "trip-1")
            for body in (
                b"",
                b"&" * 5000,
                b"\xff\xfe",
                b"%",
                b"=" * 100,
                b"form_token=%00",
                b"x" * 1_000_001,
                b"form_token=\xff",
            ):
                caller.ask(method, usual, kind, body=body)
            caller.ask(method, usual, kind, body=b"form", hangs_up=True)
            for field in FIELDS:
                for value in VALUES:
                    text = quote(value, errors="surrogateescape")
                    caller.ask(method, usual, kind, body=token + f"{field}={text}".encode())
    assert not caller.failed, "\n".join(caller.failed)


def made_for(caller: Caller) -> str:
    from strands_durable.ui._access import form_token as made

    return made("s" * 43, "anna")
