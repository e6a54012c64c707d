"""Who gets in, and what a page of another site can do: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount

from strands_durable import ExecutionStatus
from strands_durable.ui import durable_ui
from strands_durable.ui._access import HeaderAccess, PasswordAccess, TokenAccess
from strands_durable.ui._app import Settings, application
from tests.ui.site import HOST, SAME_ORIGIN, Site, form_token, site, words

APPROVAL = {"tool": "approve", "what": "the trip"}
TOKEN = "a-token-of-a-test"


@contextmanager
def guarded(folder: Path, access: Any, **settings: Any) -> Iterator[Site]:
    with site(str(folder), app=lambda backend: application(backend, Settings(access=access, **settings))) as found:
        found.finished("trip-1", APPROVAL, "Done.")
        yield found


def is_untouched(page: Site) -> bool:
    return page.run(page.run(page.backend.get("trip-1")).status()) is ExecutionStatus.SUSPENDED


PATHS = ["/", "/inbox", "/executions/trip-1", "/executions/trip-1/conversation", "/executions/trip-1/events"]


def test_without_the_token_nothing_is_shown(tmp_path: Path) -> None:
    with guarded(tmp_path, TokenAccess("anna", TOKEN)) as page:
        for path in [*PATHS, "/executions/nothing", "/?token=wrong", "/?token=", "/inbox?token=wrong"]:
            response = page.get(path)
            assert response.status_code == 401
            assert "Open the URL that strands-durable ui has printed" in words(response.text)
            assert "trip-1" not in response.text.replace("/executions/trip-1", "")


def test_the_token_becomes_a_cookie_and_leaves_the_url(tmp_path: Path) -> None:
    with guarded(tmp_path, TokenAccess("anna", TOKEN)) as page:
        response = page.get(f"/?token={TOKEN}")
        assert (response.status_code, response.headers["location"]) == (303, "/")
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert TOKEN not in cookie
        assert "trip-1" in page.text("/")
        assert TOKEN not in page.get("/").text


def test_opening_the_url_again_leaves_the_forms_of_other_tabs_valid(tmp_path: Path) -> None:
    with guarded(tmp_path, TokenAccess("anna", TOKEN)) as page:
        page.get(f"/?token={TOKEN}")
        token = form_token(page.get("/inbox").text)
        page.get(f"/?token={TOKEN}")
        assert form_token(page.get("/inbox").text) == token
        page.client.cookies.set("strands_durable_ui", "x" * 43)
        assert "x" * 43 not in page.get(f"/?token={TOKEN}").headers["set-cookie"], "no session that was not given out"


def test_a_cookie_of_ones_own_does_not_get_in(tmp_path: Path) -> None:
    with guarded(tmp_path, TokenAccess("anna", TOKEN)) as page:
        page.client.cookies.set("strands_durable_ui", "x" * 43)
        assert page.get("/").status_code == 401


def test_a_foreign_host_name_is_refused(tmp_path: Path) -> None:
    with guarded(tmp_path, TokenAccess("anna", TOKEN), hosts={"testserver"}) as page:
        page.get(f"/?token={TOKEN}")
        for host in ("evil.example", "testserver.evil.example", "", "[", "testserver@evil.example:80"):
            assert page.get("/", headers={"host": host}).status_code == 400
            assert page.get("/static/ui.css", headers={"host": host}).status_code == 400
        for host in ("testserver", "testserver:8080", "TESTSERVER"):
            assert page.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [
        (SAME_ORIGIN, True),
        ({"origin": HOST}, True),
        ({}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": HOST, "sec-fetch-site": "cross-site"}, False),
        ({"origin": HOST, "sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
    ],
)
def test_a_form_of_another_site_changes_nothing(page: Site, headers: dict[str, str], is_taken: bool) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    token = form_token(page.get("/inbox").text)
    response = page.run(page.client.post("/executions/trip-1/cancel", data={"form_token": token}, headers=headers))
    assert response.status_code == (303 if is_taken else 403)
    assert is_untouched(page) is not is_taken


def test_a_form_without_the_token_of_its_session_changes_nothing(page: Site) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    token = form_token(page.get("/inbox").text)
    page.client.cookies.clear()
    other = form_token(page.get("/inbox").text)
    assert token != other
    for given in ("", token, other[:-1], "é"):
        data = {"form_token": given}
        response = page.run(page.client.post("/executions/trip-1/cancel", data=data, headers=SAME_ORIGIN))
        assert (response.status_code, "This form has expired." in words(response.text)) == (403, True)
    page.client.cookies.clear()
    response = page.run(page.client.post("/executions/trip-1/cancel", data={"form_token": other}, headers=SAME_ORIGIN))
    assert response.status_code == 403
    assert is_untouched(page)


def test_nothing_is_changed_by_looking(page: Site) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    for action in ("cancel", "remove", "resume", "answer"):
        page.get(f"/executions/trip-1/{action}")
    assert is_untouched(page)


def test_read_only_shows_everything_and_changes_nothing(tmp_path: Path) -> None:
    with site(str(tmp_path), read_only=True) as page:
        page.finished("trip-1", APPROVAL, "Done.")
        for path in ("/inbox", "/executions/trip-1", "/executions/trip-1/cancel"):
            html = page.get(path).text
            assert "read-only" in words(html)
            assert '<form method="post"' not in html
            assert 'class="answer"' not in html
        for action in ("cancel", "remove", "resume", "answer"):
            response = page.run(page.client.post(f"/executions/trip-1/{action}", headers=SAME_ORIGIN))
            assert (response.status_code, "read-only" in response.text) == (403, True)
        assert is_untouched(page)


def test_every_response_has_the_headers_that_keep_text_harmless(page: Site) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    for path in [*PATHS, "/static/ui.css", "/static/ui.js", "/nowhere", "/executions/nothing"]:
        headers = page.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == policy["connect-src"] == "'self'"
        assert policy["img-src"] == "'self' data:"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == ("max-age=3600" if "static" in path else "no-store")


def test_a_mounted_page_without_authorize_refuses_everyone(tmp_path: Path) -> None:
    with site(str(tmp_path), app=lambda backend: durable_ui(backend)) as page:
        response = page.get("/")
        assert (response.status_code, "mounted without authorize=" in words(response.text)) == (403, True)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_application_decides_who_gets_in(tmp_path: Path, is_async: bool) -> None:
    async def later(request: Any) -> str | None:
        return request.headers.get("x-user")

    authorize = later if is_async else lambda request: request.headers.get("x-user")
    with site(str(tmp_path), authorize=authorize) as page:
        assert page.get("/").status_code == 403
        assert page.get("/", headers={"x-user": ""}).status_code == 403
        assert page.get("/", headers={"x-user": "bea"}).status_code == 200


@pytest.mark.parametrize("wrong", [True, 7, ["anna"]])
def test_an_authorize_that_returns_no_name_lets_no_one_in(tmp_path: Path, wrong: Any) -> None:
    with (
        site(str(tmp_path), authorize=lambda request: wrong) as page,
        pytest.raises(TypeError, match="Return the user"),
    ):
        page.get("/")


def test_an_authorize_that_raises_lets_no_one_in(tmp_path: Path) -> None:
    def refusing(request: Any) -> str:
        raise HTTPException(401, "Sign in at the application.")

    def mounted(backend: Any) -> Starlette:
        return Starlette(routes=[Mount("/runs", durable_ui(backend, authorize=refusing))])

    with site(str(tmp_path), app=mounted) as page:
        for path in PATHS:
            assert page.get(f"/runs{path}").status_code == 401


def test_a_proxy_that_leaves_the_header_of_the_person_lets_no_one_in(tmp_path: Path) -> None:
    with guarded(tmp_path, HeaderAccess("x-user")) as page:
        assert page.get("/", headers=[("x-user", "the boss"), ("x-user", "carl")]).status_code == 403


def test_a_proxy_names_the_user(tmp_path: Path) -> None:
    with guarded(tmp_path, HeaderAccess("x-forwarded-user")) as page:
        response = page.get("/")
        assert (response.status_code, "has to set the header x-forwarded-user" in words(response.text)) == (403, True)
        assert "as given by carl" in words(page.get("/inbox", headers={"x-forwarded-user": "carl"}).text)


def test_a_person_signs_in_with_the_password_and_out(tmp_path: Path) -> None:
    with guarded(tmp_path, PasswordAccess("correct horse")) as page:
        assert page.get("/").headers["location"] == "/login"
        assert 'type="password"' in page.get("/login").text
        login = {"name": "dora", "password": "correct horse"}
        assert page.run(page.client.post("/login", data=login)).status_code == 403, "not sent from our page"
        wrong = page.run(page.client.post("/login", data={**login, "password": "battery"}, headers=SAME_ORIGIN))
        assert (wrong.status_code, "This password is wrong." in words(wrong.text)) == (401, True)
        assert page.run(page.client.post("/login", data={**login, "name": " "}, headers=SAME_ORIGIN)).status_code == 400
        assert page.run(page.client.post("/login", data=login, headers=SAME_ORIGIN)).status_code == 303
        html = page.get("/inbox").text
        assert "as given by dora" in words(html)
        assert "correct horse" not in html
        assert page.post("/logout").status_code == 303
        assert page.get("/").status_code == 303


def test_a_form_that_is_too_long_is_refused(page: Site) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    response = page.post("/executions/trip-1/answer", interrupt_id="x", text="y" * 1_100_000)
    assert response.status_code == 413
    assert is_untouched(page)


def test_no_file_beside_the_static_ones_is_served(page: Site) -> None:
    for path in (
        "/static/../_access.py",
        "/static/..%2f_access.py",
        "/static/%2e%2e/_access.py",
        "/templates/layout.html",
    ):
        assert page.get(path).status_code == 404
