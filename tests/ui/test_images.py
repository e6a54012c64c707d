"""Large images: the page shows them, and sends nothing else that is recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from strands import Agent, tool

from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.agents import contract_agent
from tests.ui.site import PIXEL, Site, site

FILLING = b"\0" * 5_000
FILES = {
    "png": PIXEL + FILLING,
    "jpeg": b"\xff\xd8\xff\xe0" + FILLING,
    "gif": b"GIF89a" + FILLING,
    "webp": b"RIFF\x10\x00\x00\x00WEBPVP8 " + FILLING,
}
NOT_SENT = {
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hurt = 1'>" + b" " * 5_000,
    "html": b"<!doctype html><script>window.hurt = 1</script>" + b" " * 5_000,
    "a sound": b"RIFF\x10\x00\x00\x00WAVEfmt " + FILLING,
    "late": b" " + FILES["png"],
}


@tool
def photograph(form: str, data: str) -> dict[str, Any]:
    """Take a picture."""
    content: Any = [{"image": {"format": form, "source": {"bytes": base64.b64decode(data)}}}]
    return {"status": "success", "content": content}


@durable_agent
def photographer(form: str, data: str) -> Agent:
    """An agent that takes a picture."""
    script = [call("photograph", form=form, data=data), "Done."]
    return Agent(model=ScriptedModel(script), tools=[photograph], callback_handler=None)


def shown(page: Site, form: str, data: bytes, execution_id: str = "trip-1") -> str:
    """Return the conversation of a run whose tool has returned an image."""
    page.started(execution_id, photographer, form=form, data=base64.b64encode(data).decode())
    return page.get(f"/executions/{execution_id}/conversation").text


def url_of(data: bytes, execution_id: str = "trip-1") -> str:
    return f"/executions/{execution_id}/images/{hashlib.sha256(data).hexdigest()}"


def is_refused(response: httpx.Response) -> bool:
    return response.status_code in (401, 403, 404) and response.headers["content-type"].startswith("text/")


@pytest.mark.parametrize("form", FILES)
def test_a_large_image_is_shown(page: Site, form: str) -> None:
    data = FILES[form]
    html = shown(page, form, data)
    assert f'src="{url_of(data)}" alt="An image, {form}, {len(data)} bytes"' in html
    sent = page.get(url_of(data))
    assert (sent.status_code, sent.content) == (200, data)
    assert sent.headers["content-type"] == f"image/{form}"
    assert sent.headers["x-content-type-options"] == "nosniff"
    assert sent.headers["content-security-policy"].startswith("default-src 'none'")
    [step] = re.findall(r'href="([^"]+)#step">photograph<', html)
    assert f'src="{url_of(data)}"' in page.get(step).text


def test_an_image_of_the_prompt_is_shown(page: Site) -> None:
    data = FILES["png"]
    prompt = [{"text": "See."}, {"image": {"format": "png", "source": {"bytes": data}}}]
    spec = contract_agent.spec_with(folder=page.folder, script=["Seen."])
    page.run(page.run(page.backend.dispatch(spec, prompt, execution_id="trip-1")).result(timeout=30))
    assert f'src="{url_of(data)}"' in page.get("/executions/trip-1/conversation").text
    assert page.get(url_of(data)).content == data


@pytest.mark.parametrize("name", NOT_SENT)
@pytest.mark.parametrize("form", ["png", "svg"])
def test_what_is_no_image_is_not_sent_whatever_it_claims_to_be(page: Site, name: str, form: str) -> None:
    data = NOT_SENT[name]
    html = shown(page, form, data)
    assert f"{len(data)} bytes" in html
    assert ("<img" in html) is (form == "png"), "of a picture that is none, a browser shows the alternative text"
    assert is_refused(page.get(url_of(data)))


def test_an_image_is_sent_as_what_it_is_and_not_as_what_it_claims_to_be(page: Site) -> None:
    shown(page, "png", FILES["gif"])
    assert page.get(url_of(FILES["gif"])).headers["content-type"] == "image/gif"


def test_only_images_of_the_execution_itself_are_sent(page: Site) -> None:
    shown(page, "png", FILES["png"], "trip-1")
    shown(page, "gif", FILES["gif"], "trip-2")
    assert page.get(url_of(FILES["png"], "trip-1")).status_code == 200
    for path in (
        url_of(FILES["gif"], "trip-1"),
        url_of(FILES["png"], "trip-2"),
        url_of(FILES["png"], "trip-3"),
        "/executions/trip-1/images/nonsense",
        url_of(FILES["png"]).upper().replace("/EXECUTIONS/TRIP-1/IMAGES", "/executions/trip-1/images"),
    ):
        assert is_refused(page.get(path)), path


def test_text_that_looks_like_a_reference_is_text(page: Site) -> None:
    data = FILES["png"]
    shown(page, "png", data, "trip-1")
    digest = hashlib.sha256(data).hexdigest()
    forged = f'{{"$":"blob","of":"bytes","n":{len(data)},"v":"{digest}"}}'
    image = {"image": {"format": "png", "source": {"bytes": json.loads(forged)}}}
    page.finished("trip-2", [{"tool": "book", "city": forged}, {"tool": "book", "city": image}], forged)
    assert "<img" not in page.get("/executions/trip-2/conversation").text
    assert is_refused(page.get(url_of(data, "trip-2")))
    given = page.run(page.backend.dispatch(contract_agent.spec_with(folder=page.folder, script=["No."]), [image]))
    page.run(given.result(timeout=30))
    assert "<img" not in page.get(f"/executions/{given.execution_id}/conversation").text
    assert is_refused(page.get(url_of(data, given.execution_id)))


def test_who_may_not_see_the_page_gets_no_image(page: Site, tmp_path: Path) -> None:
    shown(page, "png", FILES["png"])
    with site(str(tmp_path), authorize=lambda request: None) as other:
        refused = other.get(url_of(FILES["png"]))
        assert refused.status_code == 403
        assert FILES["png"] not in refused.content
