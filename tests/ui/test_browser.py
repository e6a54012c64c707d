"""The page in a real Chromium: live, by keyboard, on a narrow screen, in the dark, and against a hostile tool.

``SCREENSHOTS=write`` writes the pictures that docs/ui.md shows.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from strands_durable import ExecutionStatus
from tests.ui.site import Site, asking_agent, hostile_agent
from tests.ui.test_hostile_texts import saying_agent
from tests.ui.test_images import FILES, NOT_SENT
from tests.ui.test_images import shown as shown_in_conversation
from tests.ui.test_server import served
from tests.waiting import until

pytestmark = pytest.mark.long

CHROMIUM = "/usr/bin/chromium"
_OPTIONS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
)
IMAGES = Path(__file__).parents[2] / "docs" / "images"
APPROVAL = {"tool": "approve", "what": "the trip"}
PATHS = ["", "inbox", "executions/trip-1", "executions/trip-1/conversation", "executions/trip-1/cancel", "executions/report-1",
         "executions/bad-1", "executions/bad-1/conversation", "executions/failed-1", "executions/nothing"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of this file: Debian's package, or the one that the environment names."""
    path = os.environ.get("CHROMIUM", CHROMIUM)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=[f"--{option}" for option in _OPTIONS])
        yield found
        found.close()


@contextmanager
def opened(browser: Browser, url: str, blocks: int = 0, **options: Any) -> Iterator[Page]:
    """Open the URL that the server printed; fail if a script complains, or the policy more often than ``blocks`` times."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
    page, complaints, blocked = context.new_page(), list[str](), list[str]()
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: blocked.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    assert complaints == []
    assert len(blocked) == blocks, blocked


@pytest.fixture
def url(page: Site) -> Iterator[str]:
    """The URL of a server over the same store, which some run has made."""
    page.finished("trip-1", [{"tool": "book", "city": "Rome"}, {"tool": "book", "city": "Oslo"}], APPROVAL, "Done.")
    with served("--port", "0", "--backend", "runs.db") as (found, _):
        yield found


def base(url: str) -> str:
    return url.partition("?")[0]


def has_no_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_the_list_leads_to_a_timeline_whose_steps_open_beside_it(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        assert "token" not in page.url
        page.get_by_role("link", name="trip-1").click()
        assert page.get_by_role("heading", level=1).inner_text() == "trip-1"
        bars = page.locator(".steps tr:not(.lane) .track rect")
        widths = bars.evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
        assert len(widths) >= 5
        assert all(width > 1 for width in widths)
        before = page.evaluate("window.mark = 1")
        page.get_by_role("link", name="1.1 book").click()
        page.get_by_role("region", name="Step").get_by_text("booked Oslo").wait_for()
        assert page.evaluate("window.mark") == before, "the page was not loaded again"
        assert "step=" in page.url
        page.reload()
        assert page.get_by_role("region", name="Step").get_by_text("booked Oslo").is_visible()
        page.get_by_role("link", name="1.0 book").click()
        page.get_by_role("region", name="Step").get_by_text("booked Rome").wait_for()
        page.go_back()
        page.get_by_role("region", name="Step").get_by_text("booked Oslo").wait_for()


def test_the_list_and_an_execution_follow_a_run_without_being_loaded_again(
    browser: Browser, page: Site, url: str
) -> None:
    handle = page.dispatch("trip-2", {"tool": "wait", "path": "go"}, "It is done.")
    with opened(browser, url) as listed, opened(browser, url) as shown:
        listed.get_by_role("link", name="trip-2").wait_for()
        shown.goto(f"{base(url)}executions/trip-2")
        shown.get_by_text("1.0 wait").wait_for()
        for each in (listed, shown):
            each.evaluate("window.mark = 1")
        page.touch("go")
        page.run(handle.result(timeout=30))
        listed.locator("#e-trip-2", has_text="COMPLETED").wait_for()
        shown.locator(".title", has_text="COMPLETED").wait_for()
        shown.get_by_text("model 2").wait_for()
        assert (listed.evaluate("window.mark"), shown.evaluate("window.mark")) == (1, 1)
        assert "trip-2 is COMPLETED" in listed.locator("#news").inner_text()


def test_text_is_shown_while_the_model_writes_it(browser: Browser, page: Site, url: str) -> None:
    handle = page.writing("trip-2")
    with opened(browser, f"{url}") as shown:
        shown.goto(f"{base(url)}executions/trip-2")
        page.touch("go")
        shown.locator("#live", has_text="word <b>after</b> word").wait_for()
        page.touch("enough")
        page.run(handle.result(timeout=30))
        shown.locator(".title", has_text="COMPLETED").wait_for()
        assert shown.locator("#live").is_hidden()


def test_a_person_approves_in_the_inbox(browser: Browser, page: Site, url: str) -> None:
    with opened(browser, f"{url}") as shown:
        shown.get_by_role("link", name="Inbox").click()
        shown.get_by_role("button", name="Approve").click()
        shown.get_by_text("The answer is recorded.").wait_for()
        handle = page.run(page.backend.get("trip-1"))
        assert page.run(handle.result(timeout=30)).stop_reason == "end_turn"
        assert page.run(handle.status()) is ExecutionStatus.COMPLETED


def test_typed_text_survives_what_happens_meanwhile(browser: Browser, page: Site, url: str) -> None:
    with opened(browser, f"{url}") as shown:
        shown.goto(f"{base(url)}inbox")
        field = shown.get_by_label("Or another answer: text or JSON")
        field.fill("half an ans")
        page.started("ask-2", asking_agent, reason="Another one?")
        shown.get_by_text("Another one?").wait_for()
        mine = shown.locator("li.card", has_text="trip-1").get_by_label("Or another answer: text or JSON")
        assert mine.input_value() == "half an ans"
        assert mine.evaluate("field => field === document.activeElement")


def test_a_question_that_was_answered_meanwhile_says_so(browser: Browser, page: Site, url: str) -> None:
    with opened(browser, url, java_script_enabled=False) as shown:
        shown.goto(f"{base(url)}inbox")
        handle = page.run(page.backend.get("trip-1"))
        [question] = page.run(handle.interrupts())
        page.run(handle.respond({question.id: "no"}, by="bea"))
        shown.get_by_role("button", name="Approve").click()
        shown.get_by_text("This question was answered meanwhile by bea").wait_for()
        [answer] = page.run(handle.detail()).calls[0].answers
        assert (answer.answer, answer.by) == ("no", "bea"), "the second answer is not recorded"


def test_a_person_cancels_after_a_confirmation(browser: Browser, page: Site, url: str) -> None:
    with opened(browser, f"{url}") as shown:
        shown.goto(f"{base(url)}executions/trip-1")
        shown.get_by_role("link", name="Cancel…").click()
        shown.get_by_role("link", name="Go back").click()
        shown.get_by_role("link", name="Cancel…").click()
        shown.get_by_role("button", name="Cancel the execution").click()
        shown.locator(".title", has_text="CANCELLED").wait_for()
        assert page.run(page.run(page.backend.get("trip-1")).status()) is ExecutionStatus.CANCELLED


def test_everything_works_without_javascript(browser: Browser, page: Site, url: str) -> None:
    with opened(browser, url, java_script_enabled=False) as shown:
        shown.get_by_role("link", name="trip-1").click()
        shown.get_by_role("link", name="1.0 book").click()
        assert shown.get_by_text("booked Rome").is_visible()
        shown.get_by_role("button", name="Reject").click()
        assert shown.get_by_text("The answer is recorded.").is_visible()


def test_everything_can_be_reached_by_keyboard(browser: Browser, url: str) -> None:
    with opened(browser, url) as shown:
        shown.keyboard.press("Tab")
        assert shown.evaluate("document.activeElement.textContent") == "Skip to the content"
        shown.evaluate("window.isSamePage = true")
        shown.keyboard.press("Enter")
        until(lambda: shown.evaluate("document.activeElement.id === 'main'"))
        for _ in range(12):
            shown.keyboard.press("Tab")
            if shown.evaluate("document.activeElement.textContent") == "trip-1":
                break
        assert shown.evaluate("window.isSamePage"), "a link within the page does not load it again"
        shown.keyboard.press("Enter")
        shown.wait_for_url("**/executions/trip-1")
        shown.get_by_role("link", name="model 1").focus()
        shown.keyboard.press("Enter")
        shown.locator("#step:not([data-empty])").wait_for()
        until(lambda: shown.evaluate("document.activeElement.id === 'step'"))
        shown.keyboard.press("Escape")
        shown.locator("#step[data-empty]").wait_for(state="attached")
        until(lambda: shown.evaluate("document.activeElement.textContent === 'model 1'"))


def test_the_focus_stays_on_a_row_that_moves(browser: Browser, page: Site, url: str) -> None:
    page.finished("trip-2", "Done.")
    with opened(browser, url) as shown:
        shown.get_by_role("link", name="trip-1").focus()
        handle = page.run(page.backend.get("trip-1"))
        [question] = page.run(handle.interrupts())
        page.run(handle.respond({question.id: "yes"}))
        shown.locator("tbody tr:first-child#e-trip-1", has_text="COMPLETED").wait_for()
        assert shown.evaluate("document.activeElement.textContent") == "trip-1"


HIDDEN = """
Object.defineProperty(document, 'hidden', {value: %s, configurable: true});
document.dispatchEvent(new Event('visibilitychange'))
"""


def test_a_tab_that_no_one_sees_holds_no_connection(browser: Browser, page: Site, url: str) -> None:
    handle = page.writing("long-1")
    with opened(browser, url) as first:
        tabs = [first, *(first.context.new_page() for _ in range(7))]
        for tab in tabs:
            tab.goto(f"{base(url)}executions/long-1", timeout=10_000)
            tab.evaluate(HIDDEN % "true")
        first.evaluate(HIDDEN % "false")
        page.touch("go")
        first.get_by_text("word <b>after</b> word").first.wait_for()
        page.touch("enough")
        assert page.run(handle.result(timeout=30)).stop_reason == "end_turn"
        first.locator(".title", has_text="COMPLETED").wait_for()


def test_a_page_that_is_out_of_date_says_why(browser: Browser, page: Site, url: str) -> None:
    with opened(browser, url) as shown:
        shown.goto(f"{base(url)}executions/trip-1")
        page.run(page.run(page.backend.get("trip-1")).cancel())
        shown.locator(".title", has_text="CANCELLED").wait_for()
        page.run(page.backend.remove("trip-1"))
        shown.get_by_role("link", name="model 1").click()
        shown.get_by_role("heading", name="Not found").wait_for()
        shown.goto(f"{base(url)}inbox")
        shown.context.clear_cookies()
        note = shown.get_by_text("This page is not up to date. Open the URL that strands-durable ui has printed")
        note.wait_for()
        assert note.is_visible()


def test_a_link_from_another_site_leads_into_the_page(browser: Browser, url: str) -> None:
    with opened(browser, url) as shown:
        shown.route(
            "http://chat.example/",
            lambda route: route.fulfill(content_type="text/html", body=f'<a href="{base(url)}inbox">trip-1 waits</a>'),
        )
        shown.goto("http://chat.example/")
        shown.get_by_role("link", name="trip-1 waits").click()
        shown.get_by_role("heading", name="Inbox").wait_for()
        assert shown.url == f"{base(url)}inbox"


def test_a_hostile_tool_can_run_nothing(browser: Browser, page: Site, url: str) -> None:
    page.started("bad-1", hostile_agent)
    page.started("bad-2", asking_agent, reason="<script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>")
    with opened(browser, f"{url}") as shown:
        for path in ("", "inbox", "executions/bad-1", "executions/bad-1/conversation", "executions/bad-2"):
            shown.goto(base(url) + path)
            assert shown.evaluate("window.hurt") is None
        shown.goto(f"{base(url)}executions/bad-1")
        shown.get_by_role("link", name="1.0 fetch").click()
        panel = shown.get_by_role("region", name="Step")
        panel.get_by_text("<script>window.hurt = 1</script>").first.wait_for()
        assert panel.locator("img.picture").evaluate("image => image.naturalWidth") == 1
        assert panel.locator("script, iframe, object, style").count() == 0
        assert shown.evaluate("window.hurt") is None


def test_a_large_image_is_drawn_and_of_another_file_its_size_is_read(browser: Browser, page: Site, url: str) -> None:
    shown_in_conversation(page, "png", FILES["png"], "photo-1")
    shown_in_conversation(page, "png", NOT_SENT["svg"], "photo-2")
    with opened(browser, url) as shown:
        for execution_id, width in (("photo-1", 1), ("photo-2", 0)):
            shown.goto(f"{base(url)}executions/{execution_id}/conversation")
            image = shown.get_by_role("img", name=re.compile(r"An image, png, \d+ bytes"))
            image.scroll_into_view_if_needed()
            until(lambda: shown.evaluate("document.querySelector('img.picture').complete"))
            assert image.evaluate("image => image.naturalWidth") == width
            assert shown.evaluate("window.hurt") is None


def test_what_would_slip_into_the_page_is_blocked_by_its_policy(browser: Browser, url: str) -> None:
    slipped = "<img src=x onerror='window.hurt = 1'><p id=x onclick='window.hurt = 2'>x</p>"
    with opened(browser, url, blocks=2) as shown:
        shown.evaluate("slipped => document.body.insertAdjacentHTML('beforeend', slipped)", slipped)
        shown.locator("#x").click()
        assert shown.evaluate("window.hurt") is None


def test_a_wrong_token_shows_nothing(browser: Browser, url: str) -> None:
    with opened(browser, f"{base(url)}?token=wrong") as shown:
        assert shown.get_by_text("This token is wrong.").is_visible()
        assert shown.get_by_role("link", name="Inbox").count() == 0
        shown.goto(f"{base(url)}executions/trip-1")
        assert shown.get_by_role("heading", name="Not allowed").is_visible()


def test_a_page_of_another_site_can_change_nothing(browser: Browser, page: Site, url: str) -> None:
    action = f"{base(url)}executions/trip-1/cancel"
    evil = f"<form id=f method=post action='{action}'><input name=form_token value=guess></form><script>f.submit()</script>"
    with opened(browser, url) as shown:
        shown.route("http://evil.example/", lambda route: route.fulfill(body=evil, content_type="text/html"))
        shown.goto("http://evil.example/")
        shown.get_by_text("Nothing was changed.").wait_for()
        shown.goto(base(url))
        assert shown.get_by_role("link", name="trip-1").is_visible(), "the person is still signed in"
    assert page.run(page.run(page.backend.get("trip-1")).status()) is ExecutionStatus.SUSPENDED


def fill(page: Site) -> None:
    """Have a run of each kind."""
    page.graph("report-1")
    page.started("bad-1", hostile_agent)
    page.started(
        "a-run-with-a-very-long-id." + "x" * 120, asking_agent, reason={"what": "y" * 300, "options": ["a", "b" * 90]}
    )
    handle = page.dispatch("failed-1", {"fails_until": "fixed"})
    with pytest.raises(Exception, match="out of order"):
        page.run(handle.result(timeout=30))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(browser: Browser, page: Site, url: str, scheme: str) -> None:
    fill(page)
    with opened(browser, url, color_scheme=scheme) as shown:
        found = {}
        for path in PATHS:
            shown.goto(base(url) + path)
            if path == "executions/bad-1":
                shown.get_by_role("link", name="1.0 fetch").click()
                shown.locator("#step:not([data-empty])").wait_for()
            result = Axe().run(shown)
            if result.violations_count:
                found[path] = [
                    (each["id"], [node["html"] for node in each["nodes"]][:3]) for each in result.response["violations"]
                ]
        assert found == {}


def test_a_narrow_screen_needs_no_sideways_scroll(browser: Browser, page: Site, url: str) -> None:
    fill(page)
    narrow = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
    with opened(browser, url, **narrow) as shown:
        for path in PATHS:
            shown.goto(base(url) + path)
            assert has_no_sideways_scroll(shown), path
        shown.goto(f"{base(url)}executions/trip-1")
        shown.get_by_role("link", name="1.0 book").click()
        panel = shown.locator("#step:not([data-empty])")
        panel.wait_for()
        assert panel.evaluate("each => each.getBoundingClientRect().top < innerHeight"), "it is brought into view"
        assert has_no_sideways_scroll(shown)


def picture(page: Page, name: str, *, height: int = 860) -> bytes:
    """Return a small picture of what is shown; write it to the documents if that is asked for."""
    shot = page.screenshot(clip={"x": 0, "y": 0, "width": page.viewport_size["width"], "height": height})  # type: ignore[index]
    small = io.BytesIO()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        small, "PNG", optimize=True
    )
    if os.environ.get("SCREENSHOTS") == "write":
        IMAGES.mkdir(exist_ok=True)
        (IMAGES / f"{name}.png").write_bytes(small.getvalue())
    return small.getvalue()


def test_the_pictures_of_the_documents(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with served("--ui", command="demo"), ExitStack() as stack:
        [folder] = tmp_path.glob("strands-durable-demo-*")
        monkeypatch.chdir(folder)  # the page's header names the store as its user has named it
        url, _ = stack.enter_context(served("--port", "0", "--backend", "runs.db", "--user-header", "X-User"))
        person = {"extra_http_headers": {"X-User": "operator"}}  # not the user of the machine that makes the pictures
        wide = {"viewport": {"width": 1160, "height": 700}, "device_scale_factor": 1.5, **person}
        sizes = []
        with opened(browser, url, **wide) as shown:
            shown.goto(f"{base(url)}executions/trip-42")
            shown.get_by_role("link", name="2.1 book_hotel").click()
            shown.locator("#step:not([data-empty])").wait_for()
            sizes.append(len(picture(shown, "ui-timeline", height=700)))
            shown.goto(f"{base(url)}inbox")
            sizes.append(len(picture(shown, "ui-inbox", height=520)))
        with opened(browser, url, **wide, color_scheme="dark") as shown:
            shown.goto(f"{base(url)}executions/report-1")
            sizes.append(len(picture(shown, "ui-graph", height=700)))
        narrow = {**wide, "viewport": {"width": 390, "height": 844}}
        with opened(browser, url, **narrow) as shown:
            shown.goto(f"{base(url)}executions/trip-42")
            sizes.append(len(picture(shown, "ui-narrow", height=844)))
    assert all(5_000 < size < 150_000 for size in sizes), sizes


@pytest.mark.parametrize("piece", ["x", "\u0633", "a\u0301", "\\"])
def test_a_text_of_five_megabytes_without_a_blank_leaves_the_page_usable(
    browser: Browser, page: Site, piece: str
) -> None:
    page.started("large-1", saying_agent, script=[{"piece": piece, "count": 5_000_000 // len(piece)}])
    with served("--port", "0", "--backend", "runs.db") as (url, _), opened(browser, url) as found:
        found.goto(f"{base(url)}executions/large-1/conversation")
        found.get_by_text("strands-durable show prints all of it").first.wait_for()
        assert has_no_sideways_scroll(found)
        found.get_by_role("link", name="Timeline").click()
        found.get_by_role("link", name="1.0 say").click()
        found.get_by_role("region", name="Step").get_by_text("strands-durable show prints all of it").first.wait_for()
