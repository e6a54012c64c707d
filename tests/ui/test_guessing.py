"""Who guesses the password is refused longer and longer; a person who has it gets in, and is told of a typo at once."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from strands_durable.ui._access import PasswordAccess
from strands_durable.ui._app import Settings, application
from strands_durable.ui._attempts import Attempts
from tests.ui.site import HOST, SAME_ORIGIN, Site, site, words
from tests.ui.test_server import password_file, served

RIGHT, HERE, ELSEWHERE = "correct horse", "203.0.113.7", "198.51.100.9"


class Clock:
    """A time that tests pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Door:
    """The form for the password, for clients of several addresses."""

    def __init__(self, page: Site, access: PasswordAccess, clock: Clock) -> None:
        self.page, self.access, self.clock = page, access, clock
        self._app: Any = page.client._transport.app  # type: ignore[attr-defined]

    def client(self, address: str = HERE) -> httpx.AsyncClient:
        """Return a browser of its own."""
        transport = httpx.ASGITransport(self._app, client=(address, 50000))
        return httpx.AsyncClient(transport=transport, base_url=HOST, headers=SAME_ORIGIN)

    def enter(
        self, name: str, password: str, browser: httpx.AsyncClient | None = None, at: str = HERE
    ) -> httpx.Response:
        fields = {"name": name, "password": password}
        return self.page.run((browser or self.client(at)).post("/login", data=fields))

    def guesses(self, names: list[str], password: str = "a wrong one", at: str = HERE) -> Counter[int]:
        """Send guesses at once; return how many were answered with which status."""

        async def sent() -> list[httpx.Response]:
            browser = self.client(at)
            return await asyncio.gather(
                *(browser.post("/login", data={"name": name, "password": password}) for name in names)
            )

        return Counter(response.status_code for response in self.page.run(sent()))


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    clock = Clock()
    access = PasswordAccess(RIGHT, Attempts(clock))
    with site(str(tmp_path), app=lambda backend: application(backend, Settings(access=access))) as page:
        yield Door(page, access, clock)


def test_a_guesser_is_refused_and_a_person_at_the_same_address_gets_in(door: Door) -> None:
    answered = door.guesses(["guesser"] * 300)
    assert answered[401] <= 10, "so many guesses were looked at"
    assert answered[401] + answered[429] == 300
    assert door.enter("dora", "a typo").status_code == 401
    assert door.enter("dora", RIGHT).status_code == 303


def test_a_refused_guess_says_when_to_come_back_and_not_whether_it_was_right(door: Door) -> None:
    door.guesses(["guesser"] * 20)
    refused = [door.enter("guesser", password) for password in ("wrong again", RIGHT)]
    assert [response.status_code for response in refused] == [429, 429]
    assert len({response.text for response in refused}) == 1
    assert "Too many wrong passwords" in words(refused[0].text)
    assert 0 < int(refused[0].headers["retry-after"]) <= 300
    assert door.access.sessions.count == 0


def test_waits_grow_with_wrong_passwords_and_not_with_refused_ones(door: Door) -> None:
    door.guesses(["guesser"] * 100)
    waits = []
    for _ in range(12):
        response = door.enter("guesser", "wrong")
        assert response.status_code == 429
        waits.append(int(response.headers["retry-after"]))
        door.guesses(["guesser"] * 5)
        door.clock.now += waits[-1]
        assert door.enter("guesser", "wrong").status_code == 401
    assert waits == sorted(waits)
    assert waits[-1] > 8 * waits[0]
    assert waits[-1] <= 300
    door.clock.now += 300
    assert door.enter("guesser", RIGHT).status_code == 303, "a person who waited gets in"


def test_the_right_password_ends_the_waits_of_a_person_who_mistyped(door: Door) -> None:
    for _ in range(3):
        assert door.enter("dora", "a typo").status_code == 401
    assert door.enter("dora", RIGHT).status_code == 303
    for _ in range(3):
        assert door.enter("dora", "a typo").status_code == 401


def test_a_browser_that_has_been_in_gets_in_while_its_name_and_address_are_guessed_with(door: Door) -> None:
    browser = door.client()
    assert door.enter("dora", RIGHT, browser).status_code == 303
    door.guesses(["dora"] * 300)
    door.guesses([f"name-{number}" for number in range(300)])
    assert door.enter("dora", RIGHT).status_code == 429
    assert door.enter("dora", "a typo", browser).status_code == 401
    assert door.enter("dora", RIGHT, browser).status_code == 303
    for _ in range(20):
        last = door.enter("dora", "wrong", browser)
    assert last.status_code == 429, "its cookie is no way to guess"


def test_many_names_are_no_way_to_guess(door: Door) -> None:
    answered = door.guesses([f"name-{number}" for number in range(500)])
    assert answered[401] <= 60
    assert door.enter("dora", RIGHT, at=ELSEWHERE).status_code == 303, "another address does not wait"
    door.clock.now += 10
    assert door.guesses([f"later-{number}" for number in range(500)])[401] <= 10


def test_neighbours_in_an_ipv6_network_are_one_address(door: Door) -> None:
    for number in range(1, 100):
        last = door.enter(f"name-{number}", "wrong", at=f"2001:db8::{number:x}")
    assert last.status_code == 429
    assert door.enter("dora", RIGHT, at="2001:db8:0:1::1").status_code == 303


def test_what_is_remembered_is_bounded() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for number in range(30_000):
        attempts.wrong(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", f"name-{number}", "")
        attempts.wrong("10.0.0.1", f"name-{number}" * 50, "")
    assert attempts.size <= 20_000


@pytest.mark.parametrize("body", [b"&" * 200_000, b"name=dora&password=" + b"x" * 200_000, b"\xff\x00=%zz"])
def test_a_form_of_the_login_is_short(door: Door, body: bytes) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    response = door.page.run(door.client().post("/login", content=body, headers=kind))
    assert response.status_code in (400, 413)


def test_clients_that_hang_up_do_not_make_others_wait(page: Site) -> None:
    page.finished("trip-1", "Done.")
    with served("--port", "0", "--password-file", password_file(RIGHT), "--backend", "runs.db") as (url, _):
        port = httpx.URL(url).port
        body = "name=guesser&password=wrong"
        head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n"
        head += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
        for sent in (head + body, head + body[:5]):
            for _ in range(150):
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.sendall(sent.encode())
        with httpx.Client(base_url=url, headers=SAME_ORIGIN, timeout=60) as browser:
            assert browser.post("/login", data={"name": "dora", "password": "a typo"}).status_code == 401
            assert browser.post("/login", data={"name": "dora", "password": RIGHT}).status_code == 303
