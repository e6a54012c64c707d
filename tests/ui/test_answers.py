"""Answers, resume, cancel and remove, as a person does them in the page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from strands_durable import ExecutionStatus
from strands_durable.errors import ExecutionFailedError
from tests.ui.site import HOSTILE, Site, asking_agent, words
from tests.waiting import until

APPROVAL = {"tool": "approve", "what": "the trip"}
SCHEMA = {
    "properties": {
        "city": {"type": "string", "enum": ["Rome", "Oslo"]},
        "nights": {"type": "integer", "title": "How many nights"},
        "breakfast": {"type": "boolean"},
        "note": {"type": "string"},
    },
    "required": ["city", "nights"],
}


def asked(page: Site) -> str:
    """Return the id of the only open question."""
    [interrupt_id] = set(re.findall(r'name="interrupt_id" value="([^"]+)"', page.get("/inbox").text))
    return interrupt_id


def answered(page: Site, execution_id: str) -> Any:
    """Return the recorded answer of a run that has used it, and who gave it."""
    handle = page.run(page.backend.get(execution_id))
    page.run(handle.result(timeout=30))
    [answer] = page.run(handle.detail()).calls[0].answers
    return answer.answer, answer.by


@pytest.mark.parametrize(("choice", "answer"), [("0", "yes"), ("1", "no")])
def test_a_person_approves_or_rejects_and_the_run_completes(page: Site, choice: str, answer: str) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    assert "1 open question. Answers are recorded as given by anna." in page.text("/inbox")
    response = page.post("/executions/trip-1/answer", interrupt_id=asked(page), choice=choice, **{"from": "inbox"})
    assert (response.status_code, response.headers["location"]) == (303, "/inbox?done=answered")
    assert answered(page, "trip-1") == (answer, "anna")
    assert "COMPLETED" in page.text("/executions/trip-1")
    assert "The answer is recorded. No one has to answer anything." in page.text("/inbox?done=answered")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("maybe", "maybe"), ('{"a": [1]}', {"a": [1]}), ("12", 12), ('"12"', "12"), (HOSTILE, HOSTILE)],
)
def test_any_text_or_json_is_an_answer(page: Site, typed: str, answer: Any) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    assert page.post("/executions/trip-1/answer", interrupt_id=asked(page), text=typed).status_code == 303
    assert answered(page, "trip-1") == (answer, "anna")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("[" * 50_000, "[" * 50_000), ("1e999", "1e999"), ('{"a": 1e999}', '{"a": 1e999}'), ("a\r\nb", "a\nb")],
)
def test_what_is_no_json_that_can_be_recorded_is_text(page: Site, typed: str, answer: str) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    assert page.post("/executions/trip-1/answer", interrupt_id=asked(page), text=typed).status_code == 303
    assert answered(page, "trip-1") == (answer, "anna")


@pytest.mark.parametrize("typed", ["", "  ", "null"])
def test_nothing_is_not_an_answer(page: Site, typed: str) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    response = page.post("/executions/trip-1/answer", interrupt_id=asked(page), text=typed)
    assert response.status_code == 400
    assert "The answer is empty." in words(response.text)
    assert page.run(page.run(page.backend.get("trip-1")).status()) is ExecutionStatus.SUSPENDED


def test_a_reason_may_offer_options(page: Site) -> None:
    options = ["Rome", {"label": "The north", "value": {"city": "Oslo"}}, HOSTILE]
    page.started("ask-1", asking_agent, reason={"what": "Where to?", "options": options})
    html = page.get("/inbox").text
    buttons = re.findall(r'<button name="choice" value="(\d)"[^>]*>(.*?)</button>', html)
    assert [words(label) for _, label in buttons][:2] == ["Rome", "The north"]
    page.post("/executions/ask-1/answer", interrupt_id=asked(page), choice="1")
    assert answered(page, "ask-1") == ({"city": "Oslo"}, "anna")


def test_a_reason_may_have_a_schema(page: Site) -> None:
    page.started("ask-1", asking_agent, reason={"what": "Which trip?", "schema": SCHEMA})
    html = page.get("/inbox").text
    assert 'type="checkbox"' in html
    missing = page.post("/executions/ask-1/answer", interrupt_id=asked(page), **{"field.city": "Rome"})
    assert (missing.status_code, "How many nights is missing." in missing.text) == (400, True)
    wrong = {"field.city": "Paris", "field.nights": "2"}
    assert page.post("/executions/ask-1/answer", interrupt_id=asked(page), **wrong).status_code == 400
    given = {"field.city": "Rome", "field.nights": "2", "field.breakfast": "true", "field.note": ""}
    assert page.post("/executions/ask-1/answer", interrupt_id=asked(page), **given).status_code == 303
    assert answered(page, "ask-1") == ({"city": "Rome", "nights": 2, "breakfast": True}, "anna")


@pytest.mark.parametrize("required", [True, 5, "city", {"city": True}])
def test_a_schema_that_is_wrong_does_not_break_the_inbox(page: Site, required: Any) -> None:
    page.started("ask-1", asking_agent, reason={"schema": {**SCHEMA, "required": required}})
    assert "1 open question" in page.text("/inbox")


def test_an_option_is_answered_as_it_is_written_in_the_schema(page: Site) -> None:
    schema = {"properties": {"city": {"type": "string", "enum": [" New  York ", "Rome"]}}}
    page.started("ask-1", asking_agent, reason={"schema": schema})
    [value, _] = re.findall(r'<option value="([^"]+)">', page.get("/inbox").text)
    page.post("/executions/ask-1/answer", interrupt_id=asked(page), **{"field.city": value})
    assert answered(page, "ask-1") == ({"city": " New  York "}, "anna")


@pytest.mark.parametrize("typed", ["inf", "nan", "1e999"])
def test_a_number_that_json_cannot_hold_is_refused(page: Site, typed: str) -> None:
    page.started("ask-1", asking_agent, reason={"schema": {"properties": {"price": {"type": "number"}}}})
    response = page.post("/executions/ask-1/answer", interrupt_id=asked(page), **{"field.price": typed})
    assert (response.status_code, "price has to be a number" in words(response.text)) == (400, True)


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"choice": "1"}, "fail"),
        ({"text": '{"ok": true}'}, {"result": {"ok": True}}),
        ({"text": "done"}, {"result": "done"}),
    ],
)
def test_a_step_in_doubt_has_a_form_of_its_own(page: Site, fields: dict[str, str], answer: Any) -> None:
    handle = page.dispatch("trip-1", {"tool": "strange"}, "Done.")
    with pytest.raises(ExecutionFailedError):
        page.run(handle.result(timeout=30))
    page.run(handle.resume())
    page.run(handle.result(timeout=30))
    text = page.text("/inbox")
    assert "It did not happen: run it again" in text
    assert "Approve" not in text
    assert page.post("/executions/trip-1/answer", interrupt_id=asked(page), **fields).status_code == 303
    assert answered(page, "trip-1") == (answer, "anna")


def test_a_question_says_until_when_it_can_be_answered_and_what_happens_then(page: Site) -> None:
    page.started("ask-1", asking_agent, reason={"what": "Where to?", "expires_in": 3600, "default": "stay"})
    for path in ("/inbox", "/executions/ask-1"):
        assert re.search(r"Without an answer by 20[\d-]+ [\d:]+ UTC , it is answered with stay \.", page.text(path))


def test_a_question_that_was_answered_meanwhile_says_so(page: Site) -> None:
    handle = page.finished("trip-1", APPROVAL, "Done.")
    interrupt_id = asked(page)
    page.run(handle.respond({interrupt_id: "no"}, by="bea"))
    for choice in ("0", "1"):
        response = page.post("/executions/trip-1/answer", interrupt_id=interrupt_id, choice=choice)
        assert response.status_code == 409
        assert re.search(
            r"This question was answered meanwhile by bea, .*: no Your answer was not recorded.", words(response.text)
        )
    assert answered(page, "trip-1") == ("no", "bea")


def test_a_question_that_never_was_is_refused(page: Site) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    response = page.post("/executions/trip-1/answer", interrupt_id="other", choice="0")
    assert (response.status_code, "no longer asks" in words(response.text)) == (409, True)


def test_an_answer_to_what_the_question_was_before_is_refused(page: Site) -> None:
    page.started("ask-1", asking_agent, reason={"options": ["Keep it", "Delete it"]})
    [shown] = set(re.findall(r'name="version" value="([^"]+)"', page.get("/inbox").text))
    page.started("ask-2", asking_agent, reason={"options": ["Delete it", "Keep it"]})
    html = page.get("/executions/ask-2").text
    [now] = set(re.findall(r'name="version" value="([^"]+)"', html))
    [interrupt_id] = set(re.findall(r'name="interrupt_id" value="([^"]+)"', html))
    fields = {"interrupt_id": interrupt_id, "choice": "0"}
    response = page.post("/executions/ask-2/answer", version=shown, **fields)
    assert (response.status_code, "The question has changed." in words(response.text)) == (400, True)
    assert page.post("/executions/ask-2/answer", version=now, **fields).status_code == 303
    assert answered(page, "ask-2") == ("Delete it", "anna")


def test_an_inbox_that_is_too_small_says_so(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_reading", "_pages"):
        monkeypatch.setattr(f"strands_durable.ui.{name}.INBOX_SIZE", 1)
    for number in (1, 2):
        page.finished(f"trip-{number}", APPROVAL, "Done.")
    assert "The last 1 open question; there are more" in page.text("/inbox")


def test_questions_of_two_executions_with_one_id_are_apart(page: Site) -> None:
    for number in (1, 2):
        page.finished(f"trip-{number}", APPROVAL, "Done.")
    html = page.get("/inbox").text
    ids, kept = re.findall(r' id="([qt]-[^"]+)"', html), re.findall(r'data-keep="([^"]+)"', html)
    assert len(set(re.findall(r'name="interrupt_id" value="([^"]+)"', html))) == 1
    assert len(set(ids)) == len(ids) == 4
    assert len(set(kept)) == len(kept) == 4


def test_a_button_that_is_not_there_is_refused(page: Site) -> None:
    page.finished("trip-1", APPROVAL, "Done.")
    for choice in ("7", "x", "-1", "9" * 5000):
        assert page.post("/executions/trip-1/answer", interrupt_id=asked(page), choice=choice).status_code == 400


def test_a_person_cancels_after_a_confirmation(page: Site) -> None:
    handle = page.finished("trip-1", APPROVAL, "Done.")
    assert "Cancel this execution?" in page.text("/executions/trip-1/cancel")
    assert page.run(handle.status()) is ExecutionStatus.SUSPENDED
    response = page.post("/executions/trip-1/cancel")
    assert (response.status_code, response.headers["location"]) == (303, "/executions/trip-1?done=cancel")
    until(lambda: page.run(handle.status()) is ExecutionStatus.CANCELLED)
    assert "CANCELLED" in page.text("/executions/trip-1")


def test_a_person_resumes_what_failed(page: Site) -> None:
    handle = page.dispatch("trip-1", {"fails_until": "fixed"})
    with pytest.raises(Exception, match="out of order"):
        page.run(handle.result(timeout=30))
    open(f"{page.folder}/fixed", "w").close()
    assert "accept_drift" in page.get("/executions/trip-1/resume").text
    assert page.post("/executions/trip-1/resume").status_code == 303
    assert str(page.run(handle.result(timeout=30))) == "Fixed.\n"


def test_a_person_removes_what_has_ended(page: Site) -> None:
    page.finished("trip-1", "Done.")
    assert "This cannot be undone." in page.text("/executions/trip-1/remove")
    response = page.post("/executions/trip-1/remove")
    assert response.headers["location"] == "/?done=remove"
    assert "It was removed. " in page.text("/?done=remove")
    assert page.get("/executions/trip-1").status_code == 404


def test_what_runs_cannot_be_removed(page: Site) -> None:
    handle = page.dispatch("trip-1", {"tool": "wait", "path": "go"}, "Done.")
    until(lambda: page.run(handle.detail()).execution.owner is not None)
    response = page.post("/executions/trip-1/remove")
    assert response.status_code == 409
    assert "trip-1" in words(response.text)
    open(f"{page.folder}/go", "w").close()
    page.run(handle.result(timeout=30))


def test_another_action_is_not_found(page: Site) -> None:
    page.finished("trip-1", "Done.")
    assert page.get("/executions/trip-1/explode").status_code == 404
    assert page.post("/executions/trip-1/explode").status_code == 404
    assert page.post("/executions/nothing/cancel").status_code == 404


def test_a_url_cannot_put_a_sentence_into_the_page(page: Site) -> None:
    page.finished("trip-1", "Done.")
    assert "You have won" not in page.get("/?done=You have won").text
    assert json.dumps("You have won") not in page.get("/executions/trip-1?done=You have won").text
