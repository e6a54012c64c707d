"""`strands-durable ui` as a process of its own, over a socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.commands import cli, start
from tests.ui.site import SAME_ORIGIN, Site, form_token, words
from tests.waiting import until


@contextmanager
def served(*options: str, command: str = "ui") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the server; yield the URL that it prints."""
    process = start(command, *options)
    assert process.stdout is not None
    try:
        line = next((line for line in process.stdout if line.startswith("Open ")), None)
        assert line is not None, process.communicate()
        yield line.removeprefix("Open ").strip(), process
    finally:
        process.send_signal(signal.SIGINT)  # a demo then stops its worker, too
        try:
            process.communicate(timeout=30)
        finally:
            process.kill()


def test_it_prints_a_url_that_lets_a_browser_in_and_ends_with_ctrl_c(page: Site) -> None:
    page.finished("trip-1", {"tool": "approve", "what": "it"}, "Done.")
    with served("--port", "0", "--backend", "runs.db") as (url, process):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", url)
        base = url.partition("?")[0]
        assert httpx.get(base).status_code == 401
        assert httpx.get(base, headers={"host": "evil.example"}).status_code == 400
        with httpx.Client(base_url=base, follow_redirects=True, headers=SAME_ORIGIN) as browser:
            entered = browser.get(url)
            assert "trip-1" in words(entered.text)
            assert "token" not in str(entered.url)
            html = browser.get("/inbox").text
            fields = {"form_token": form_token(html), "choice": "0"}
            fields["interrupt_id"] = re.findall(r'name="interrupt_id" value="([^"]+)"', html)[0]
            assert browser.post("/executions/trip-1/answer", data=fields).status_code == 200
        handle = page.run(page.backend.get("trip-1"))
        page.run(handle.result(timeout=30))
        assert page.run(handle.detail()).calls[0].answers[0].by is not None
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
        assert url not in out


def test_text_arrives_while_the_model_writes_it(page: Site) -> None:
    handle = page.writing("trip-1")
    with served("--port", "0", "--backend", "runs.db") as (url, _), httpx.Client(follow_redirects=True) as browser:
        browser.get(url)
        events = url.partition("?")[0] + "executions/trip-1/events"
        seen: list[tuple[str, dict[str, object]]] = []
        with browser.stream("GET", events, timeout=60) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            page.touch("go")
            name = ""
            for line in response.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    seen.append((name, json.loads(line.removeprefix("data: "))))
                    page.touch("enough")
        page.run(handle.result(timeout=30))
    assert {name for name, _ in seen} == {"text", "step", "end"}
    assert seen[0][1]["text"] == "word <b>after</b> word "
    assert [name for name, _ in seen][-2:] == ["step", "end"]


def test_it_ends_at_once_and_quietly_while_pages_are_live(page: Site) -> None:
    handle = page.writing("trip-1")
    with served("--port", "0", "--backend", "runs.db") as (url, process), ExitStack() as stack:
        browser = stack.enter_context(httpx.Client(follow_redirects=True))
        browser.get(url)
        events = url.partition("?")[0] + "executions/trip-1/events"
        streams = [stack.enter_context(browser.stream("GET", events, timeout=60)).iter_lines() for _ in range(20)]
        assert {next(stream) for stream in streams} == {"retry: 3000"}
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
        assert all(list(stream)[-3:] == ["event: end", "data: {}", ""] for stream in streams)
    page.touch("go")
    page.touch("enough")
    page.run(handle.result(timeout=30))


def test_a_browser_that_leaves_while_it_sends_a_form_leaves_no_traceback(page: Site) -> None:
    page.finished("trip-1", {"tool": "approve", "what": "it"}, "Done.")
    with served("--port", "0", "--backend", "runs.db") as (url, process):
        with httpx.Client(follow_redirects=True) as browser:
            browser.get(url)
            cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
            port = int(url.partition("/?")[0].rpartition(":")[2])
            head = f"POST /executions/trip-1/cancel HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n"
            with socket.create_connection(("127.0.0.1", port)) as left:
                left.sendall(f"{head}Sec-Fetch-Site: same-origin\r\nContent-Length: 99\r\n\r\nform".encode())
            assert "SUSPENDED" in browser.get(f"{url.partition('?')[0]}executions/trip-1").text
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com", "::"])
def test_another_address_is_refused_without_a_password_or_a_proxy(page: Site, host: str) -> None:
    page.finished("trip-1", "Done.")
    result = cli("ui", "--host", host, "--backend", "runs.db")
    assert result.exit_code == 1
    assert "everyone who reaches that address could read and control executions" in result.stderr
    assert "--password-file FILE, or --user-header NAME" in result.stderr


def test_a_password_file_lets_others_in(page: Site) -> None:
    page.finished("trip-1", "Done.")
    secret = Path("password")
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    with served("--host", "0.0.0.0", "--port", "0", "--password-file", "password", "--backend", "runs.db") as (url, _):
        base = url.replace("0.0.0.0", "127.0.0.1")
        assert "token" not in base
        with httpx.Client(base_url=base, headers=SAME_ORIGIN, follow_redirects=True) as browser:
            assert "Sign in" in words(browser.get("/").text)
            entered = browser.post("/login", data={"name": "dora", "password": "correct horse"})
            assert "trip-1" in words(entered.text)


def test_a_proxy_names_the_user_and_read_only_holds(page: Site) -> None:
    page.finished("trip-1", {"tool": "approve", "what": "it"}, "Done.")
    with served("--port", "0", "--user-header", "X-User", "--read-only", "--backend", "runs.db") as (url, _):
        assert httpx.get(url).status_code == 403
        headers = {"x-user": "carl", **SAME_ORIGIN}
        assert "read-only" in words(httpx.get(url, headers=headers).text)
        assert httpx.post(f"{url}executions/trip-1/cancel", headers=headers).status_code == 403


def password_file(text: str | bytes, mode: int = 0o600) -> str:
    path = Path("password")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("correct horse", 0o644, "other users can read it"),
        ("short", 0o600, "fewer than 8 characters"),
        (b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe", 0o600, "the password cannot be read"),
    ],
)
def test_a_bad_password_file_is_refused(page: Site, text: str | bytes, mode: int, said: str) -> None:
    page.finished("trip-1", "Done.")
    result = cli("ui", "--password-file", password_file(text, mode), "--backend", "runs.db")
    assert (result.exit_code, said in result.stderr) == (1, True)
    assert "correct horse" not in result.stderr


def test_two_ways_in_are_refused(page: Site) -> None:
    page.finished("trip-1", "Done.")
    result = cli(
        "ui", "--password-file", password_file("long enough"), "--user-header", "X-User", "--backend", "runs.db"
    )
    assert (result.exit_code, "one of them decides who gets in" in result.stderr) == (1, True)


def test_a_missing_store_is_an_error_and_a_port_in_use_too(page: Site) -> None:
    result = cli("ui", "--backend", "nothing.db")
    assert (result.exit_code, "the store does not exist yet" in result.stderr) == (1, True)
    page.finished("trip-1", "Done.")
    with served("--port", "0", "--backend", "runs.db") as (url, _):
        port = url.partition("/?")[0].rpartition(":")[2]
        result = cli("ui", "--port", port, "--backend", "runs.db")
        assert (result.exit_code, "Choose another one with --port." in result.stderr) == (1, True)


@pytest.mark.parametrize("missing", ["starlette", "jinja2", "uvicorn"])
def test_without_the_extra_it_says_how_to_install_it(page: Site, missing: str) -> None:
    page.finished("trip-1", "Done.")
    program = f"import sys; sys.modules[{missing!r}] = None; from strands_durable._cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "ui", "--backend", "runs.db"], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert f"{missing} is not installed. Install it: pip install 'strands-durable[ui]'\n" in ended.stderr


def test_the_page_imports_no_strands(page: Site) -> None:
    page.finished("trip-1", "Done.")
    code = "import sys, strands_durable.ui._server; print('strands' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_demo_leaves_a_run_that_a_person_completes_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with served("--ui", command="demo") as (url, process):
        with httpx.Client(base_url=url.partition("?")[0], headers=SAME_ORIGIN, follow_redirects=True) as browser:
            listed = words(browser.get(url).text)
            assert re.search(r"refund-7 refund_desk SUSPENDED", listed)
            assert re.search(r"report-1 market_report COMPLETED", listed)
            assert re.search(r"trip-42 travel_agent COMPLETED", listed)
            assert "attempt 2" in words(browser.get("/executions/trip-42").text)
            assert browser.get("/executions/report-1").text.count('class="edge') == 3
            html = browser.get("/inbox").text
            assert "Refund 89 EUR for order A-1017?" in words(html)
            fields = {"form_token": form_token(html), "choice": "0"}
            fields["interrupt_id"] = re.findall(r'name="interrupt_id" value="([^"]+)"', html)[0]
            browser.post("/executions/refund-7/answer", data=fields)
            until(lambda: "COMPLETED" in browser.get("/executions/refund-7").text, 30)
            assert "89 EUR were paid back" in words(browser.get("/executions/refund-7/conversation").text)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
        assert os.listdir(tmp_path)
