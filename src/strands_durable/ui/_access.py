"""Who may see the page: a person with the URL's token, with the password, whom the proxy names, or whom the application names.

Every kind of access has a session cookie that no script can read. It carries nothing; forms carry a value derived from it.
"""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from starlette.requests import Request

from ._attempts import Attempts

_SESSIONS = 1000
"""Signed-in browsers that are remembered; the oldest is forgotten."""
_NAME_LENGTH = 100


class Access(Protocol):
    """Decides who a request comes from."""

    entry: str | None
    """How a person gets in: ``token`` in the URL, ``password`` in a form, or None: not by this page."""
    refusal: str
    """What a person reads who is not let in."""

    async def user_of(self, request: Request, session: str) -> str | None:
        """Return the name of the user, or None to refuse."""


class Sessions:
    """The signed-in browsers of this process, and the name of each person."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, str] = OrderedDict()

    def begin(self, name: str) -> str:
        """Return the secret of a new session."""
        session = new_session()
        self._names[session] = name
        while len(self._names) > _SESSIONS:
            self._names.popitem(last=False)
        return session

    def name_of(self, session: str) -> str | None:
        """Return who has this session."""
        return self._names.get(session)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._names)

    def end(self, session: str) -> None:
        """Forget a session."""
        self._names.pop(session, None)


class TokenAccess:
    """A person who has the URL with the token, on this machine. Answers are recorded under the name of the process's user."""

    entry: str | None = "token"
    refusal = "Open the URL that strands-durable ui has printed: it has a token that lets your browser in."

    def __init__(self, name: str, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.sessions = Sessions()
        self._name = name

    async def user_of(self, request: Request, session: str) -> str | None:
        """Return the user of the session."""
        return self.sessions.name_of(session)

    def entered(self, token: str, session: str = "") -> str | None:
        """Return a session for the right token: the browser's own, which forms in its other tabs belong to, or a new one."""
        if not _is_same(token, self.token):
            return None
        return session if self.sessions.name_of(session) is not None else self.sessions.begin(self._name)


class PasswordAccess:
    """A person who has the password. Answers are recorded under the name that the person gives."""

    entry: str | None = "password"
    refusal = "Sign in first."

    def __init__(self, password: str, attempts: Attempts | None = None) -> None:
        self.sessions = Sessions()
        self.attempts = attempts or Attempts()
        self._password = password

    async def user_of(self, request: Request, session: str) -> str | None:
        """Return the user of the session."""
        return self.sessions.name_of(session)

    def entered(self, address: str, name: str, password: str, browser: str) -> Entered | Refused:
        """Return a new session for the right password; too soon after wrong ones, the password is not looked at.

        Nothing is awaited between the look at earlier attempts and the count of this one: of many at once, few are looked at.
        """
        seconds = self.attempts.seconds(address, name, browser)
        if seconds:
            return Refused(seconds)
        if not _is_same(password, self._password):
            self.attempts.wrong(address, name, browser)
            return Refused(0)
        known = self.attempts.right(address, name, browser)
        return Entered(self.sessions.begin(name.strip()[:_NAME_LENGTH]), known)


@dataclass(frozen=True)
class Entered:
    """A person has signed in."""

    session: str
    browser: str
    """What the browser is known by, also once the session has ended."""


@dataclass(frozen=True)
class Refused:
    """A person has not signed in."""

    seconds: int
    """For how long the password is not looked at; 0 if it was, and is wrong."""


class HeaderAccess:
    """A person whom the proxy in front has authenticated, and named in a header."""

    entry: str | None = None

    def __init__(self, header: str) -> None:
        self._header = header
        self.refusal = f"The proxy in front of this page has to set the header {header} to the user's name."

    async def user_of(self, request: Request, session: str) -> str | None:
        """Return the user that the header names."""
        names = request.headers.getlist(self._header)
        # two: the proxy has added its own, and left the one that the person has sent
        return (names[0].strip()[:_NAME_LENGTH] or None) if len(names) == 1 else None


class CallbackAccess:
    """A person whom the application lets in."""

    entry: str | None = None
    refusal = "You may not see this page."

    def __init__(self, authorize: Callable[[Request], str | Awaitable[str | None] | None] | None) -> None:
        self._authorize = authorize
        if authorize is None:
            self.refusal = "This page was mounted without authorize=, a function that returns the user of a request."

    async def user_of(self, request: Request, session: str) -> str | None:
        """Return the user that the application names."""
        found = None if self._authorize is None else self._authorize(request)
        name = await found if inspect.isawaitable(found) else found
        if name is not None and not isinstance(name, str):
            raise TypeError(f"authorize= returned a {type(name).__name__}. Return the user's name, or None to refuse.")
        return name or None


def new_session() -> str:
    """Return a secret for a cookie."""
    return secrets.token_urlsafe(32)


def form_token(session: str, user: str) -> str:
    """Return what a form of this session has to carry. Only a page of ours can make it: no other site reads the cookie."""
    return hmac.new(session.encode(), user.encode(), sha256).hexdigest()


def is_form_token(given: str, session: str, user: str) -> bool:
    """Return whether a form was made for this session."""
    return bool(session) and _is_same(given, form_token(session, user))


def _is_same(given: str, expected: str) -> bool:
    """Compare in a time that depends on neither of them, nor on the length of what is expected."""
    digests = [sha256(text.encode("utf-8", "replace")).digest() for text in (given, expected)]
    return hmac.compare_digest(*digests)
