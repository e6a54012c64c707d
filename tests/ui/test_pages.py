"""What the pages show, of every kind of run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from strands_durable import ExecutionStatus, connect
from strands_durable._records.views import ExecutionDetail, Undelivered
from strands_durable.testing.agents import contract_agent, marks
from strands_durable.ui._reading import Reading
from tests import threads
from tests.ui.site import HOSTILE, Site, asking_agent, hostile_agent, site, words
from tests.waiting import until

APPROVAL = {"tool": "approve", "what": "the trip"}


def test_an_empty_store_says_that_there_is_nothing(page: Site) -> None:
    assert "No executions yet." in page.text("/")
    assert "No one has to answer anything." in page.text("/inbox")


def test_the_list_has_a_row_for_each_execution(page: Site) -> None:
    page.finished("trip-1", {"tool": "book", "city": "Rome"}, "Booked.")
    page.finished("trip-2", APPROVAL, "Done.")
    html = page.get("/").text
    rows = [words(row) for row in re.findall(r"<tr id=.*?</tr>", html, re.DOTALL)]
    assert re.fullmatch(
        r"trip-2 contract_agent SUSPENDED 2 15 [\d.]+ m?s (\(waited [\d.]+ m?s\) )?(now|\d+ s ago)", rows[0]
    )
    assert re.fullmatch(r"trip-1 contract_agent COMPLETED 3 30 [\d.]+ m?s (now|\d+ s ago)", rows[1])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["other-1", "trip-2", "trip-1"]),
        ("?status=SUSPENDED", ["other-1", "trip-2"]),
        ("?agent=asking_agent", ["other-1"]),
        ("?search=trip", ["trip-2", "trip-1"]),
        ("?search=trip&status=COMPLETED", ["trip-1"]),
        ("?search=nothing", []),
        ("?search=rip", []),
        ("?status=nonsense", ["other-1", "trip-2", "trip-1"]),
    ],
)
def test_the_list_can_be_filtered(page: Site, query: str, found: list[str]) -> None:
    page.finished("trip-1", "Done.")
    page.finished("trip-2", APPROVAL, "Done.")
    page.started("other-1", asking_agent, reason="Really?")
    assert re.findall(r'<tr id="e-([^"]+)"', page.get(f"/{query}").text) == found


def test_the_list_has_pages(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strands_durable.ui._reading.PAGE_SIZE", 2)
    for number in range(3):
        page.finished(f"trip-{number}", "Done.")
    first = page.get("/").text
    [older] = re.findall(r'rel="next" href="([^"]+)"', first)
    second = page.get(unescape(older)).text
    assert re.findall(r'<tr id="e-([^"]+)"', first) == ["trip-2", "trip-1"]
    assert 'rel="first"' not in first
    assert re.findall(r'<tr id="e-([^"]+)"', second) == ["trip-0"]
    assert 'rel="first" href="/?"' in second
    assert 'rel="next"' not in second
    assert page.get("/?before=nonsense").status_code == 400
    assert "No older executions." in page.text("/?before=1.0@trip-0")


def test_the_way_to_older_executions_follows_the_list(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strands_durable.ui._reading.PAGE_SIZE", 1)
    for number in range(2):
        page.finished(f"trip-{number}", "Done.")
    _, _, live = page.get("/").text.partition('<div data-live="list"')
    assert 'rel="next"' in live.partition("</div>")[0], "an old link would skip what has moved beyond it"


def test_executions_are_found_by_tag(page: Site) -> None:
    for number, tenant in enumerate(("acme", "<b>other</b>")):
        spec = contract_agent.spec_with(folder=page.folder, script=["Done."])
        sent = page.backend.dispatch(spec, "Go", execution_id=f"trip-{number}", tags={"tenant": tenant})
        page.run(page.run(sent).result(timeout=30))
    html = page.get("/").text
    links = re.findall(r'<a class="tag" href="([^"]+)">([^<]+)</a>', html)
    assert [unescape(text) for _, text in links] == ["tenant=<b>other</b>", "tenant=acme"]
    for (link, _), found in zip(links, ["trip-1", "trip-0"], strict=True):
        assert re.findall(r'<tr id="e-([^"]+)"', page.get(unescape(link)).text) == [found]
    assert "tenant acme" in page.text("/executions/trip-0")
    wrong = page.get("/?tag=acme")
    assert (wrong.status_code, "acme" in words(wrong.text)) == (400, True)


def test_an_execution_shows_its_steps_and_one_of_them_whole(page: Site) -> None:
    page.finished("trip-1", [{"tool": "book", "city": "Rome"}, {"tool": "book", "city": "Oslo"}], "Both are booked.")
    html = page.get("/executions/trip-1").text
    assert "COMPLETED" in words(html)
    assert re.findall(r'#step">([^<]+)</a>', html) == ["model 1", "1.0 book", "1.1 book", "model 2"]
    links = re.findall(r'href="(/executions/trip-1\?step=[^"]+)#step"', html)
    step = page.text(links[2])
    assert '"city": "Oslo"' in step
    assert "booked Oslo" in step
    keys = [mark["key"] for mark in marks(page.folder) if mark["kind"] == "book" and mark["city"] == "Oslo"]
    assert keys[0] in step, "the key that the tool itself had"
    assert "Both are booked." in page.text(links[3])


def test_a_tool_step_shows_what_it_changed_in_the_state(page: Site) -> None:
    page.finished("trip-1", {"tool": "book", "city": "Rome"}, "Booked.")
    links = re.findall(r'href="(/executions/trip-1\?step=[^"]+)#step"', page.get("/executions/trip-1").text)
    model, book, _ = (page.text(link) for link in links)
    assert 'Changes of state { "state": { "set": { "booked": [ "Rome" ] } } }' in book
    assert "Changes of state" not in model


def test_a_step_that_is_not_there_leaves_the_page_as_it_is(page: Site) -> None:
    page.finished("trip-1", "Done.")
    assert "Idempotency key" not in page.text("/executions/trip-1?step=nothing")


def test_the_conversation_has_messages_in_their_order(page: Site) -> None:
    page.finished("trip-1", [{"tool": "book", "city": "Rome"}, {"tool": "book", "city": "Oslo"}], "Both are booked.")
    html = page.get("/executions/trip-1/conversation").text
    said = [words(found) for found in re.findall(r'<li class="message.*?</li>', html, re.DOTALL)]
    assert said[0] == "Input Go"
    assert said[1].startswith('Model calls book { "city": "Rome" }')
    assert said[2:] == ["book booked Rome", "book booked Oslo", "Model Both are booked."]


def test_a_long_conversation_shows_its_end_first(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strands_durable.ui._pages._MESSAGES", 2)
    page.finished("trip-1", {"tool": "book", "city": "Rome"}, "Booked.")
    html = page.get("/executions/trip-1/conversation").text
    assert "Show 2 earlier messages" in html
    assert "Input" not in words(html)
    assert "Input Go" in page.text("/executions/trip-1/conversation?all=0")


def test_a_graph_is_a_picture_of_its_nodes(page: Site) -> None:
    page.graph("report-1")
    html = page.get("/executions/report-1").text
    [picture] = re.findall(r'<svg width="\d+" height="\d+".*?</svg>', html, re.DOTALL)
    assert [words(found) for found in re.findall(r'<text class="node-name".*?</text>', picture)] == [
        "slow",
        "quick",
        "last",
    ]
    assert picture.count('class="edge"') == 2
    assert "in the order in which they ran" not in html
    lanes = [words(found) for found in re.findall(r'<th scope="rowgroup">.*?</th>', html)]
    assert [lane.split()[1] for lane in lanes[1:]] == ["slow", "quick", "last"]


def test_a_node_that_waits_is_shown_as_waiting(page: Site) -> None:
    from strands_durable.testing.agents import contract_graph

    page.finished("report-1", APPROVAL, "Done.", agent=contract_graph)
    html = page.get("/executions/report-1").text
    assert "quick: waiting for a person" in html
    assert "last: not run" in html
    assert "approve the trip" in page.text("/inbox")


def test_a_question_of_a_cancelled_run_waits_no_longer(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = page.finished("trip-1", APPROVAL, "Done.")
    page.run(handle.cancel())
    until(lambda: page.run(handle.status()) is ExecutionStatus.CANCELLED)
    later = time.time() + 86_400
    monkeypatch.setattr("strands_durable.ui._pages.time.time", lambda: later)
    shown = page.text("/executions/trip-1").partition("Calls and their steps")[2]
    assert not re.search(r"\b1 d\b", shown)


def test_a_failure_is_shown_with_its_error(page: Site) -> None:
    handle = page.dispatch("trip-1", {"fails_until": "fixed"})
    with pytest.raises(Exception, match="out of order"):
        page.run(handle.result(timeout=30))
    text = page.text("/executions/trip-1")
    assert "Attempt 1 failed" in text
    assert "ValueError: the model is out of order" in text
    assert "Resume…" in text


def test_text_of_models_and_tools_is_never_html(page: Site) -> None:
    page.started("bad-1", hostile_agent)
    html = page.get("/executions/bad-1").text
    links = re.findall(r'href="(/executions/bad-1\?step=[^"]+)#step"', html)
    for path in ["/", "/executions/bad-1", "/executions/bad-1/conversation", *links]:
        found = page.get(path).text
        assert "<script>window" not in found
        assert "<img src=x" not in found
        assert re.findall(r"<script[^>]*>", found) == [
            f'<script src="{src}" defer>' for src in re.findall(r'src="(/static/ui.js[^"]*)"', found)
        ]
        assert not re.search(
            r"\son\w+=|<style|\sstyle=", re.sub(r"<pre.*?</pre>|<p class=\"said\">.*?</p>", "", found, flags=re.DOTALL)
        )
    tool = page.get(links[1]).text
    assert HOSTILE in words(tool) or "window.hurt" in tool
    assert 'src="data:image/png;base64,' in tool
    assert "data:image/svg" not in tool


def test_no_secret_is_in_a_page(page: Site) -> None:
    page.started("bad-1", hostile_agent)
    page.started("ask-1", asking_agent, reason={"what": "Use the key", "api_key": "hunter2hunter2"})
    html = page.get("/executions/bad-1").text
    links = re.findall(r'href="(/executions/bad-1\?step=[^"]+)#step"', html)
    paths = ["/", "/inbox", "/executions/bad-1", "/executions/bad-1/conversation", "/executions/ask-1", *links]
    assert [path for path in paths if "hunter2" in page.get(path).text] == []
    assert "***" in page.get("/inbox").text


def test_what_is_not_there_is_a_sentence(page: Site) -> None:
    response = page.get("/executions/nothing")
    assert response.status_code == 404
    assert "nothing" in words(response.text)
    assert page.get("/executions/x%2F..%2Fy").status_code == 404
    assert page.get("/nowhere").status_code == 404
    page.finished("trip-1", "Done.")
    for run in ("x", "-1", "9" * 20, "9" * 5000):
        assert page.get(f"/executions/trip-1?run={run}").status_code == 404


def test_a_store_that_is_gone_is_a_sentence(page: Site) -> None:
    page.finished("trip-1", "Done.")
    page.run(page.backend.close())
    for path in Path.cwd().glob("runs.db*"):
        path.unlink()
    Path("runs.db").write_text("this is not a store, it is a text that was written over it" * 20)
    response = page.get("/")
    assert response.status_code == 503
    assert "runs.db" in words(response.text)
    assert "The file was not changed." in words(response.text)


def test_looking_runs_nothing(page: Site, tmp_path: Path) -> None:
    with site(str(tmp_path), url="sqlite:///other.db?worker=off") as other:
        handle = other.dispatch("trip-1", "Done.")
        with site(str(tmp_path), url="sqlite:///other.db") as looking:
            for path in ("/", "/inbox", "/executions/trip-1"):
                looking.text(path)
        assert other.run(handle.status()).value == "PENDING"


@pytest.mark.parametrize("prefix", ["", "/runs"])
def test_it_can_be_mounted_in_an_application(tmp_path: Path, prefix: str) -> None:
    from fastapi import FastAPI

    from strands_durable.ui import durable_ui

    def app(backend: object) -> FastAPI:
        found = FastAPI()
        found.mount(prefix or "/", durable_ui(backend, authorize=lambda request: request.headers.get("x-user")))  # type: ignore[arg-type]
        return found

    with site(str(tmp_path), app=app) as page:
        page.client.headers["x-user"] = "bea"
        page.finished("trip-1", APPROVAL, "Done.")
        html = page.get(f"{prefix}/executions/trip-1").text
        links = set(re.findall(r'(?:href|src|action)="(/[^"#?]*)', html))
        assert all(link.startswith(f"{prefix}/") for link in links)
        for link in links - {f"{prefix}/executions/trip-1/answer"}:
            assert page.get(link).status_code == 200, link
        assert json.dumps(f"{prefix}/static/ui.css")[1:-1] in html


@contextmanager
def worker_of(url: str) -> Iterator[None]:
    """Have a worker in a thread."""
    with threads.worker(lambda stop: connect(url).work(stop=stop, drain_seconds=5)):
        yield


@pytest.mark.parametrize("engine", ["memory", "temporal"])
def test_the_page_works_on_engines_that_keep_a_log(tmp_path: Path, engine: str, request: pytest.FixtureRequest) -> None:
    url = "memory://page"
    if engine == "temporal":
        url = f"{request.getfixturevalue('temporal').url}?task_queue=page&prefix=page-"
    with worker_of(url), site(str(tmp_path), url=url) as page:
        page.finished("trip-1", {"tool": "book", "city": "Rome"}, APPROVAL, "Done.")
        until(lambda: "trip-1" in page.text("/"))
        until(lambda: "approve the trip" in page.text("/inbox"))
        assert "waiting for a person" in page.text("/executions/trip-1")
        interrupt_id = re.findall(r'name="interrupt_id" value="([^"]+)"', page.get("/inbox").text)[0]
        assert page.post("/executions/trip-1/answer", interrupt_id=interrupt_id, choice="0").status_code == 303
        page.run(page.run(page.backend.get("trip-1")).result(timeout=60))
        assert "yes anna" in page.text("/executions/trip-1")
        assert "the trip: yes" in page.text("/executions/trip-1/conversation")
        page.graph("report-1")
        assert "slow: done" in page.get("/executions/report-1").text


def test_a_notification_that_is_not_delivered_is_shown(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    page.finished("trip-1", "Done.")
    lost = [
        Undelivered(event="completed", at=0.0, tries=1, error="<b>refused</b>", gave_up_at=None),
        Undelivered(event="failed", at=0.0, tries=9, error=None, gave_up_at=1.0),
    ]
    whole = Reading.detail

    async def detail(self: Reading, execution_id: str, run: int | None = None) -> ExecutionDetail:
        return replace(await whole(self, execution_id, run), undelivered=tuple(lost))

    monkeypatch.setattr(Reading, "detail", detail)
    text = page.text("/executions/trip-1")
    assert "The notification that it is COMPLETED is not delivered yet, after 1 try: <b>refused</b>" in text
    assert "The notification that it is FAILED was given up after 9 tries." in text


def test_a_page_says_that_its_execution_was_imported(page: Site) -> None:
    handle = page.finished("trip-1", "Done.")
    page.run(page.backend.import_execution(page.run(handle.export()), execution_id="trip-2"))
    assert "Imported" not in page.text("/executions/trip-1")
    shown = page.text("/executions/trip-2")
    assert "Imported" in shown
    assert "from trip-1" in shown


def test_a_step_that_raised_shows_its_traceback_folded(page: Site) -> None:
    page.finished("trip", {"tool": "book", "city": "Atlantis"}, "No hotel.")
    links = re.findall(r'href="(/executions/trip\?step=[^"]+)#step"', page.get("/executions/trip").text)
    html = page.get(unescape(links[1])).text
    assert '<details class="fold"><summary>Traceback</summary>' in html
    assert "Traceback (most recent call last):" in words(html)
    assert "LookupError: no hotel in Atlantis, api_key=***" in words(html)


def test_the_list_can_be_filtered_by_errors_of_tools(page: Site) -> None:
    page.finished("fine", {"tool": "book", "city": "Rome"}, "Done.")
    page.finished("sorry", {"tool": "book", "city": "Atlantis"}, "Sorry.")
    page.finished("asks", {"tool": "book", "city": "Atlantis"}, APPROVAL, "Sorry.")
    html = page.get("/?errors=on").text
    assert re.findall(r'<tr id="e-([^"]+)"', html) == ["sorry"]
    assert re.search(r'<input[^>]*name="errors"[^>]*checked', html)
    assert re.findall(r'<tr id="e-([^"]+)"', page.get("/?errors=on&status=SUSPENDED").text) == ["asks"]


def test_a_wait_for_a_person_is_shown_beside_the_time_that_a_run_took(page: Site) -> None:
    handle = page.finished("trip", APPROVAL, "Done.")
    asked_at = time.time()
    until(lambda: time.time() - asked_at > 1.2)
    (question,) = page.run(handle.interrupts())
    page.run(handle.respond({question.id: "yes"}))
    page.run(handle.result(timeout=30))
    assert re.search(r"Lasted [\d.]+ m?s \(waited [1-9]\d?\.\d s\)", page.text("/executions/trip"))
    row = words(re.findall(r'<tr id="e-trip".*?</tr>', page.get("/").text, re.DOTALL)[0])
    assert re.search(r"[\d.]+ m?s \(waited [1-9]\d?\.\d s\)", row)
