"""Answering, resuming, cancelling, removing and watching on the command line; none of it runs an agent."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from strands_durable import StreamEvent, connect
from strands_durable._cli import options
from strands_durable._cli.prompts import _split
from strands_durable._cli.stream_view import Lines, line_of
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.database import Store
from strands_durable.testing import call
from tests.commands import AGENTS, cli
from tests.script import in_new_process, start_process
from tests.waiting import until


def begin(agent: str, execution_id: str = "trip", *more: str) -> int:
    return cli("run", f"{AGENTS}:{agent}", "Go", "--id", execution_id, *more).exit_code


def status(execution_id: str = "trip") -> str:
    found: str = json.loads(cli("show", execution_id, "--json").stdout)["execution"]["status"]
    return found


def questions(execution_id: str = "trip") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("show", execution_id, "--json").stdout)["calls"][0]["questions"]
    return found


# respond


def test_an_answer_is_recorded_and_a_worker_resumes() -> None:
    begin("asker")
    result = cli("respond", "trip", "--answer", '{"go": true}')
    assert (
        result.stdout
        == "Answer recorded. Next: a worker runs it; if none is running, start one with strands-durable worker FILE\n"
    )
    assert (status(), questions()) == ("PENDING", [])
    assert begin("asker") == 0
    assert "trip: {'go': True}" in cli("watch", "trip").stdout


def test_without_terminal_and_answer_the_questions_are_shown_as_wrong_usage() -> None:
    begin("twice")
    result = cli("respond", "trip")
    assert (result.exit_code, result.stdout) == (2, "")
    for found in questions():
        assert f"interrupt_id: {found['interrupt_id']}" in result.stderr
    assert "Answer with: strands-durable respond trip --answer INTERRUPT_ID=JSON ...\n" in result.stderr


def test_several_answers_are_given_by_id_and_some_may_stay_open() -> None:
    begin("twice")
    one, two = (found["interrupt_id"] for found in questions())
    assert "2 questions are open" in cli("respond", "trip", "--answer", "1").stderr
    assert cli("respond", "trip", "--answer", "1", "--answer", "2").exit_code == 2
    assert status() == "SUSPENDED"
    told = json.loads(cli("respond", "trip", "--answer", f'{one}="yes"', "--json").stdout)
    assert told["answered"] == [one]
    assert begin("twice") == 5
    assert cli("respond", "trip", "--answer", f'{two}="no"').exit_code == 0
    assert begin("twice") == 0
    for _ in range(2):
        again = cli("respond", "trip", "--answer", f'{one}="yes"', "--answer", f'{two}="no"')
        assert again.exit_code == 0
    other = cli("respond", "trip", "--answer", f'{one}="never"')
    assert (other.exit_code, other.stderr.count("\n")) == (1, 1)


def test_an_answer_to_no_question_is_refused_in_one_line() -> None:
    begin("planner")
    result = cli("respond", "trip", "--answer", '"yes"')
    assert (result.exit_code, result.stderr) == (1, "Error: Execution 'trip' is COMPLETED and has no open question.\n")
    begin("asker", "asked")
    assert cli("respond", "asked", "--answer", 'nobody="yes"').exit_code == 1
    plain = cli("respond", "asked", "--answer", "yes")
    assert plain.exit_code == 2
    assert "--answer 'yes' is not JSON. To pass it as text, write '\"yes\"'." in plain.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a=b"', (None, "a=b")),
        ('id="a=b"', ("id", "a=b")),
        ("v1:x=:y=1", ("v1:x=:y", 1)),
        ('{"a": 1}', (None, {"a": 1})),
        ("id=null", ("id", None)),
    ],
)
def test_an_id_is_separated_from_its_answer(text: str, expected: Any) -> None:
    assert _split(text) == expected


def test_an_inline_execution_is_only_recorded_on() -> None:
    in_new_process([call("approve", what="trip"), "Approved."], ["Ask"])
    env = {"STRANDS_DURABLE_BACKEND": "runs.db"}
    assert " (then run its script again)" in cli("show", "trip", env=env).stdout
    result = cli("respond", "trip", "--answer", '"yes"', env=env)
    assert result.stdout == "Answer recorded. Next: run its script again to resume it\n"
    assert "next    run its script again to resume it\n" in cli("show", "trip", env=env).stdout


# resume, cancel


def test_resume_has_a_failed_execution_tried_again() -> None:
    assert begin("broken") == 4
    assert "next    retry it from the failed step with strands-durable resume trip\n" in cli("show", "trip").stdout
    assert (
        cli("resume", "trip").stdout
        == "Requested. Next: a worker runs it; if none is running, start one with strands-durable worker FILE\n"
    )
    assert status() == "PENDING"
    again = cli("resume", "trip").stdout
    assert again.startswith("trip is PENDING: nothing to resume. Next: a worker runs it")
    assert begin("broken") == 4
    assert len(json.loads(cli("show", "trip", "--json").stdout)["calls"][0]["failures"]) == 2


def test_resume_of_what_waits_is_over_or_cancelled() -> None:
    begin("asker", "asked")
    assert "Next: answer its questions with strands-durable respond asked" in cli("resume", "asked").stdout
    begin("planner", "over")
    assert cli("resume", "over").stdout == "over is COMPLETED: nothing to resume.\n"
    cli("cancel", "asked")
    assert cli("resume", "asked").exit_code == 6


def test_cancel_ends_what_rests_and_leaves_what_is_over() -> None:
    begin("asker", "asked")
    assert cli("cancel", "asked").stdout == "asked is CANCELLED.\n"
    assert json.loads(cli("cancel", "asked", "--json").stdout)["status"] == "CANCELLED"
    begin("planner", "over")
    assert cli("cancel", "over").stdout == "over is COMPLETED: nothing to cancel.\n"


def test_the_owner_of_what_is_at_work_is_asked_to_stop_and_it_is_not_removed() -> None:
    owner = start_process([call("wait_for", path="go"), "Done."], ["Wait"])
    until(Path("waiting").exists)
    busy = cli("rm", "trip", "--yes", "--backend", "runs.db")
    assert (busy.exit_code, busy.stderr.count("\n")) == (1, 1)
    assert f"is running in process {owner.pid}" in busy.stderr
    asked = cli("cancel", "trip", "--backend", "runs.db").stdout
    assert asked.startswith(f"Requested. trip is CANCELLED as soon as process {owner.pid} on ")
    assert "RUNNING, cancelling" in cli("ls", "--backend", "runs.db").stdout
    Path("go").touch()
    owner.join()
    assert cli("rm", "trip", "--yes", "--backend", "runs.db").stdout == "Removed trip.\n"


# rm


def test_rm_asks_before_it_removes_unless_yes_is_passed() -> None:
    begin("planner")
    refused = cli("rm", "trip")
    assert refused.exit_code == 2
    assert "Pass --yes" in refused.stderr
    removed = json.loads(cli("rm", "trip", "trip", "-y", "--json").stdout)
    assert removed == {"removed": ["trip"], "skipped": [], "failed": []}
    assert cli("rm", "trip", "-y").exit_code == 3


def test_rm_of_all_completed_spares_the_young_and_the_open() -> None:
    begin("planner", "done")
    begin("asker", "asked")
    assert cli("rm", "--all-completed", "--older-than", "1h", "--yes").stdout == "Nothing to remove.\n"
    assert cli("rm", "--all-completed", "--yes").stdout == "Removed done.\n"
    assert status("asked") == "SUSPENDED"


@pytest.mark.parametrize(
    "args", [(), ("trip", "--all-completed"), ("trip", "--older-than", "1h"), ("--older-than", "odd")]
)
def test_rm_wants_to_know_what(args: tuple[str, ...]) -> None:
    assert cli("rm", *args, "--yes").exit_code == 2


# Nothing is made, nothing is started


@pytest.mark.parametrize(
    "args",
    [("ls",), ("show", "x"), ("watch", "x"), ("respond", "x", "--answer", "1"), ("resume", "x"), ("cancel", "x"),
     ("rm", "x", "-y")],
    ids=lambda args: args[0],
)  # fmt: skip
def test_a_store_that_is_not_there_is_an_error_and_is_not_made(args: tuple[str, ...]) -> None:
    result = cli(*args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the store does not exist yet" in result.stderr
    assert os.listdir() == []
    Store(Path("runs.db").absolute()).close()
    assert cli(*args, "--backend", "runs.db").exit_code == (0 if args == ("ls",) else 3)


@pytest.mark.parametrize(
    "url", ["runs.db", "sqlite:///runs.db", "sqlite:///runs.db?worker=on", "sqlite:///runs.db?worker=off"]
)
def test_who_looks_works_on_nothing(url: str) -> None:
    Store(Path("runs.db").absolute()).close()
    assert options.BackendTarget(url=url, is_said=True).visited().url == "sqlite:///runs.db?worker=off"
    assert connect("temporal://host?namespace=x").working("own").url == "temporal://host?namespace=x&worker=own"


# ls


def test_ls_filters_by_agent_and_time_and_limits() -> None:
    begin("planner", "one")
    begin("asker", "two")
    begin("planner", "three")

    def ids(*args: str) -> list[str]:
        return [found["execution_id"] for found in json.loads(cli("ls", "--json", *args).stdout)]

    assert ids() == ["three", "two", "one"]
    assert ids("--agent", "planner") == ["three", "one"]
    assert ids("--limit", "2") == ["three", "two"]
    assert ids("--since", "1h", "--status", "suspended", "--status", "failed") == ["two"]
    assert ids("--since", "2000-01-01T00:00Z") == ["three", "two", "one"]
    assert ids("--since", "2100-01-01") == []
    assert cli("ls", "--since", "2100-01-01").stdout == "No matching executions.\n"
    assert cli("ls", "--since", "yesterday").exit_code == cli("ls", "--limit", "0").exit_code == 2


def test_a_note_says_why_an_execution_waits() -> None:
    begin("planner", "trip", "--detach")
    store = Store(Catalog(".strands/durable.db").path)
    with store.transaction("note") as connection:
        connection.update("dispatches", {"note": "no agent here; start another worker"}, "1")
    store.close()
    assert cli("ls").stdout.splitlines()[-1] == "trip waits: no agent here; start another worker"
    assert "trip  planner  PENDING  waits for a worker that has its agent" in cli("ls", "--waiting").stdout
    assert "waits   no agent here; start another worker\n" in cli("show", "trip").stdout
    assert json.loads(cli("ls", "--json").stdout)[0]["note"].startswith("no agent here")


# watch


@pytest.mark.parametrize(("agent", "code"), [("planner", 0), ("broken", 4), ("asker", 5)])
def test_watch_prints_each_step_and_ends_with_the_exit_code_of_the_run(agent: str, code: int) -> None:
    assert begin(agent) == code
    result = cli("watch", "trip")
    assert result.exit_code == code
    lines = result.stdout.splitlines()
    assert lines[0].split()[:4] == ["1", "model", "1", "done"]
    assert lines[1].split()[0] == "2"
    assert f"trip is {status()}." in lines
    assert cli("watch", "trip", "--after", "1").stdout.splitlines() == lines[1:]


def test_watch_as_json_is_a_line_for_each_event_and_one_for_the_end() -> None:
    begin("planner")
    *events, end = map(json.loads, cli("watch", "trip", "--json").stdout.splitlines())
    assert end == {"execution_id": "trip", "status": "COMPLETED"}
    assert [(event["number"], event["kind"], event["name"], event["status"]) for event in events] == [
        (1, "model", "scripted", "done"), (2, "tool", "book", "done"), (3, "model", "scripted", "done"),
    ]  # fmt: skip


def test_watch_of_what_is_cancelled_is_exit_code_6() -> None:
    begin("asker")
    cli("cancel", "trip")
    assert cli("watch", "trip").exit_code == 6


def step(**facts: Any) -> StreamEvent:
    base: Any = {"number": 7, "recorded": True, "step": "default#0/000002/001:id~0", "attempt": 1, "kind": "tool"}
    return {**base, "name": "book", "status": "done", "result": None, "error": None, "usage": None, **facts}


def chunk(text: str, **facts: Any) -> StreamEvent:
    return {
        "number": 1,
        "recorded": False,
        "step": "a#0/000001/model~0",
        "attempt": 1,
        "kind": "model",
        "data": text,
        **facts,
    }  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (step(result={"content": [{"text": "booked"}, {"json": {"api_key": "hush"}}]}),
         '7 2.1 book done booked {"api_key": ***}'),
        (step(status="failed", error="ValueError: no\nroom", attempt=3), "7 2.1 book failed attempt 3 ValueError: no room"),
        (step(kind="model", step="a#0/000003/model~0", usage={"inputTokens": 1, "outputTokens": 2},
              result={"message": {"content": [{"text": "Let me"}, {"toolUse": {"name": "book"}}]}}),
         "7 model 3 done Let me → book 1/2 tokens"),
        (step(kind="node", name="review", step="graph#0/node/review#1"), "7 review (visit 2) done"),
        (step(kind="effect", name="now", step="a#0/000001/000:x~0/running:now#0", result="noon"), "7 1.0 > now done noon"),
        (step(name="\x1b[31mred", step="odd"), "7 call [31mred done"),
    ],
)  # fmt: skip
def test_a_committed_step_is_one_line(event: StreamEvent, expected: str) -> None:
    text = line_of(event)
    plain = "".join(part.split("m", 1)[-1] if index else part for index, part in enumerate(text.split("\x1b[")))
    assert " ".join(plain.split()) == expected


def test_steps_inside_of_steps_are_indented() -> None:
    assert line_of(step(step="a#0/000001/000:x~0/b#0/000002/001:id~0")).startswith("    7    2.1 book")


def test_live_text_stands_between_the_lines_and_another_attempt_begins_a_new_one() -> None:
    out = io.StringIO()
    lines = Lines(out, is_live=True)
    for event in (
        chunk("Hel"),
        chunk("lo\x07"),
        chunk("Again", attempt=2),
        step(kind="model", step="a#0/000001/model~0"),
    ):
        lines.print(event)
    assert [line.split() for line in out.getvalue().splitlines()] == [["Hello"], ["Again"], ["7", "model", "1", "done"]]
    silent = io.StringIO()
    Lines(silent, is_live=False).print(chunk("Hello"))
    assert silent.getvalue() == ""


def test_a_secret_that_streams_in_pieces_is_masked() -> None:
    out = io.StringIO()
    lines = Lines(out, is_live=True)
    for piece in ("The password is pass", "word=hun", "ter2"):
        lines.print(chunk(piece))
    lines.print(step(kind="model", step="a#0/000001/model~0"))
    streamed, _ = out.getvalue().splitlines()
    assert "hunter2" not in streamed
    assert "***" in streamed
