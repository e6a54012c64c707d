"""A fork, as a person makes it in the page."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.ui.site import SAME_ORIGIN, Site


def test_a_person_forks_from_a_step(page: Site) -> None:
    handle = page.finished("trip-1", {"tool": "book", "city": "Paris"}, "Done.")
    (tool_step,) = [step for step in page.run(handle.steps()) if step.kind == "tool"]
    (call,) = page.run(handle.detail()).calls
    place = quote(f"{call.scope}#0/{tool_step.key}", safe="")
    assert f"/fork?at={tool_step.ordinal}" in page.get(f"/executions/trip-1?step={place}").text
    confirm = page.get(f"/executions/trip-1/fork?at={tool_step.ordinal}").text
    assert f"From step {tool_step.ordinal}." in confirm
    response = page.post("/executions/trip-1/fork", at=str(tool_step.ordinal), execution_id="trip-1b", prompt="")
    assert (response.status_code, response.headers["location"]) == (303, "/executions/trip-1b?done=fork")
    fork = page.run(page.backend.get("trip-1b"))
    page.run(fork.result(30))
    origin = page.run(fork.detail()).origin
    assert origin is not None
    assert (origin.execution_id, origin.step, origin.by) == ("trip-1", tool_step.ordinal, "anna")
    assert "Forked from" in page.text("/executions/trip-1b")


def test_a_fork_that_makes_no_sense_is_said_in_the_page(page: Site) -> None:
    page.finished("trip-1", "Done.")
    response = page.post("/executions/trip-1/fork", at="99", execution_id="", prompt="")
    assert (response.status_code, "no finished step 99" in response.text) == (409, True)
    response = page.post("/executions/trip-1/fork", at="", execution_id="trip-1", prompt="")
    assert (response.status_code, "already an execution" in response.text) == (409, True)


@pytest.mark.parametrize("at", ["-1", "x", "2.0", "1e3", "9" * 30, "²"])
def test_a_step_that_is_no_number_is_refused_and_nothing_is_forked(page: Site, at: str) -> None:
    page.finished("trip-1", "Done.")
    response = page.post("/executions/trip-1/fork", at=at, execution_id="trip-1b", prompt="")
    assert response.status_code == 400
    assert page.get(f"/executions/trip-1/fork?at={quote(at)}").status_code == 400
    assert [record.execution_id for record in page.run(page.backend.list())] == ["trip-1"]


def test_a_fork_needs_the_token_of_the_form(page: Site) -> None:
    page.finished("trip-1", "Done.")
    posted = page.run(page.client.post("/executions/trip-1/fork", data={"at": "1"}, headers=SAME_ORIGIN))
    assert posted.status_code == 403
    assert [each.execution_id for each in page.run(page.backend.list())] == ["trip-1"]
