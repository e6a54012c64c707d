"""The command line on real stores: what it shows, what it prints as JSON, how it fails, and that looking changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.types.exceptions import EventLoopException

from strands_durable import Durability, durable
from strands_durable._cli.demos import trip
from strands_durable._records.views import short
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.checksums import _UNKNOWN
from strands_durable.errors import BackendUnavailableError, ExecutionNotFoundError
from strands_durable.testing import CrashPoints, ScriptedModel, call, forget_process
from tests.commands import cli
from tests.processes import run as in_child
from tests.script import answers, in_new_process, start_process
from tests.waiting import until

BOOK = [call("book", city="Paris"), "Booked."]
DIES = [call("book", city="Paris"), call("book_and_die", city="Rome"), "Booked both."]


@tool
def book(city: str) -> str:
    """Book a hotel."""
    return f"booked {city}"


@tool
def refuse(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@tool
def stamp() -> str:
    """Look at the clock."""
    return durable.now().isoformat()


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt('approval', reason={'what': what})}"


def build(script: list[Any], execution_id: str = "trip", **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel(script),
        tools=[book, refuse, stamp, approve],
        plugins=[Durability("runs.db", execution_id=execution_id, **options)],
        callback_handler=None,
    )


def shown(execution_id: str = "trip") -> dict[str, Any]:
    result = cli("show", execution_id, "--store", "runs.db", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def states(execution_id: str = "trip") -> list[tuple[str, int, str]]:
    return [(step.label, step.attempt, step.state) for step in Catalog("runs.db").execution(execution_id).steps]


def fingerprints(*, without: str = "") -> dict[str, str]:
    """Return what is in this folder, by content."""
    files = [path for path in Path().iterdir() if not (without and path.name.endswith(without))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_ls_lists_executions_with_the_last_changed_first() -> None:
    build(BOOK, "older")("Book")
    build(["Hello."], "newer")("Hi")
    result = cli("ls", "--store", "runs.db")
    assert result.exit_code == 0
    header, _, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header == ["ID", "AGENT", "STATUS", "STEPS", "TOKENS", "TOOK", "OWNER", "UPDATED"]
    assert [[*row[:5], *row[6:]] for row in rows] == [
        ["newer", "default", "COMPLETED", "1", "15", "s", "0", "s", "ago"],
        ["older", "default", "COMPLETED", "3", "30", "s", "0", "s", "ago"],
    ]


def test_the_number_of_steps_is_that_of_the_last_one() -> None:
    """An attempt without a result has no number, and does not count."""
    assert in_new_process(DIES, ["Book"]).exitcode == -signal.SIGKILL
    in_new_process(DIES, ["Book"]).checked()
    numbers = [step["ordinal"] for step in shown()["calls"][0]["steps"]]
    assert numbers == [1, 2, 3, None, 4, 5]
    assert cli("show", "trip", "--store", "runs.db").stdout.splitlines()[-1].split()[:3] == ["5", "model", "3"]
    assert cli("watch", "trip", "--store", "runs.db").stdout.splitlines()[-2].split()[:3] == ["5", "model", "3"]
    (listed,) = json.loads(cli("ls", "--store", "runs.db", "--json").stdout)
    assert [listed["steps"], *(run["steps"] for run in shown()["runs"])] == [5, 5]
    assert cli("ls", "--store", "runs.db").stdout.splitlines()[-1].split()[3] == "5"


def test_ls_filters_by_status_in_any_case() -> None:
    build(["Hello."], "whole")("Hi")
    with pytest.raises(AssertionError):
        build([], "broken")("Hi")
    for given in ("failed", "FAILED"):
        found = json.loads(cli("ls", "--store", "runs.db", "--status", given, "--json").stdout)
        assert [record["execution_id"] for record in found] == ["broken"]
    assert cli("ls", "--store", "runs.db", "--status", "running").stdout == "No matching executions.\n"


def test_ls_as_json_has_the_promised_shape() -> None:
    build(BOOK)("Book")
    (record,) = json.loads(cli("ls", "--store", "runs.db", "--json").stdout)
    times = [datetime.fromisoformat(record.pop(name)) for name in ("created_at", "updated_at")]
    assert times == sorted(times)
    assert all(time.utcoffset() is not None for time in times)
    assert record.pop("cursor").endswith("@trip")
    assert record.pop("duration_seconds") >= 0
    assert record == {
        "execution_id": "trip", "kind": "inline", "agent": "default", "status": "COMPLETED", "is_cancelling": False,
        "note": None, "unreadable": None, "run": 0, "calls": 1, "steps": 3, "owner": None,
        "tags": {}, "is_held": False, "contents_removed_at": None, "tokens": {"input": 20, "output": 10, "total": 30},
        "origin": None, "imported": None, "waited_seconds": 0.0, "tool_errors": 0,
    }  # fmt: skip


def test_the_store_comes_from_the_environment_or_as_a_url() -> None:
    build(BOOK)("Book")
    url = f"sqlite:///{Path('runs.db').absolute()}"
    for result in (cli("ls", env={"STRANDS_DURABLE_BACKEND": url}), cli("ls", "--store", url)):
        assert result.exit_code == 0
        assert "trip" in result.stdout


def test_a_running_execution_shows_its_owner_and_the_running_step() -> None:
    owner = start_process([call("wait_for", path="go"), "Done."], ["Wait"])
    until(Path("waiting").exists)
    record, timeline = Catalog("runs.db").executions()[0], states()
    Path("go").touch()
    owner.join().checked()
    assert record.owner is not None
    assert f"process {owner.pid} on" in record.owner
    assert timeline == [("model 1", 1, "done"), ("1.0 wait_for", 1, "running")]
    assert states()[1] == ("1.0 wait_for", 1, "done")


def test_show_prints_a_header_and_a_timeline() -> None:
    build(BOOK)("Book a hotel in Paris")
    text = cli("show", "trip", "--store", "runs.db").stdout
    assert "Execution trip\nagent   default (inline)\nstatus  COMPLETED\nrun     0 (the first)\n" in text
    assert "Call 0  COMPLETED  attempt 1, phase done, ended with end_turn\ninput   Book a hotel in Paris\n" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "# STEP INPUT STATUS TRY STARTED TOOK TOKENS" in rows
    assert any(row.startswith("1 model 1 done 1 +0.") and row.endswith("10/5") for row in rows)
    assert any(row.startswith('2 1.0 book {"city": "Paris"} done 1 +0.') for row in rows)


def test_a_narrow_terminal_cuts_inputs_and_nothing_else() -> None:
    build([call("book", city="Paris " * 10), "Booked."])("Book")
    lines = cli("show", "trip", "--store", "runs.db", env={"COLUMNS": "70"}).stdout.splitlines()
    assert "STEP      INPUT" in lines[-5]
    assert lines[-2].startswith('2  1.0 book  {"city": "P')
    assert lines[-2].split("…")[1].split()[:2] == ["done", "1"]


def test_show_as_json_has_the_promised_shape() -> None:
    build(BOOK)("Book")
    found = shown()
    (only,) = found["calls"]
    assert found["execution"]["execution_id"] == "trip"
    assert {name: only[name] for name in ("position", "input", "status", "phase", "attempt", "failures", "questions")} == {
        "position": 0, "input": "Book", "status": "COMPLETED", "phase": "done", "attempt": 1, "failures": [], "questions": [],
    }  # fmt: skip
    model, booking, _ = only["steps"]
    assert model["usage"]["totalTokens"] == 15
    assert datetime.fromisoformat(booking.pop("started_at")) <= datetime.fromisoformat(booking.pop("ended_at"))
    assert booking.pop("duration_seconds") >= 0
    assert booking == {
        "key": "000001/000:call-0-0~0", "number": "1.0", "kind": "tool", "name": "book", "input": {"city": "Paris"},
        "status": "done", "state": "done", "in_doubt": False, "attempt": 1, "usage": None, "error": None,
        "result": {"toolUseId": "call-0-0", "status": "success", "content": [{"text": "booked Paris"}]},
        "state_changes": None, "ordinal": 2, "traceback": None,
    }  # fmt: skip


def test_a_tool_left_behind_by_a_dead_process_is_in_doubt_and_stays_so_on_record() -> None:
    assert in_new_process(DIES, ["Book"]).exitcode == -signal.SIGKILL
    before = [
        ("model 1", 1, "done"),
        ("1.0 book", 1, "done"),
        ("model 2", 1, "done"),
        ("2.0 book_and_die", 1, "in doubt"),
    ]
    assert states() == before
    assert cli("ls", "--store", "runs.db").stdout.splitlines()[2].split()[2:8:5] == ["RUNNING", "gone"]
    text = cli("show", "trip", "--store", "runs.db").stdout
    assert "owner   gone\n" in text
    assert "next    run its script again to resume it\n" in text
    in_new_process(DIES, ["Book"]).checked()
    assert states() == [*before, ("2.0 book_and_die", 2, "done"), ("model 3", 1, "done")]
    assert [step["in_doubt"] for step in shown()["calls"][0]["steps"]].count(True) == 1


def test_a_step_is_in_doubt_as_soon_as_its_call_is_taken_up_again() -> None:
    assert in_new_process(DIES, ["Book"]).exitcode == -signal.SIGKILL
    with pytest.raises(BaseException, match="reopen"), CrashPoints().crashing("call.reopen:after@1", "raise"):
        build(DIES, on_drift="warn")("Book")
    assert Catalog("runs.db").executions()[0].owner is not None
    assert states()[-1] == ("2.0 book_and_die", 1, "in doubt")


def _die_in_the_model(folder: str) -> None:
    os.chdir(folder)
    with CrashPoints().crashing("model 1:chunk 0@1"):
        build(BOOK)("Book")


def test_a_model_call_left_behind_is_in_doubt_though_it_has_no_row() -> None:
    assert in_child(_die_in_the_model, os.getcwd()).exitcode == -signal.SIGKILL
    assert states() == [("model 1", 1, "done"), ("1.0 book", 1, "done"), ("model 2", 1, "in doubt")]
    assert cli("show", "trip", "--store", "runs.db").exit_code == 0
    build(BOOK)("Book")
    assert states()[-1] == ("model 2", 2, "done")


def test_a_call_that_waits_for_a_person_shows_its_question_and_then_that_it_was_answered() -> None:
    agent = build([call("approve", what="trip"), "Approved."])
    result: Any = agent("Ask")
    assert states()[-1] == ("1.0 approve", 1, "waiting for a person")
    text = cli("show", "trip", "--store", "runs.db").stdout
    assert f'waits   approval: {{"what": "trip"}} (interrupt_id {result.interrupts[0].id})' in text
    given: Any = answers(result, "yes")
    agent(given)
    assert states()[1:3] == [("1.0 approve", 1, "answered"), ("1.0 approve", 2, "done")]
    assert shown()["calls"][0]["questions"] == []


def test_failures_differ_from_error_results() -> None:
    with pytest.raises(EventLoopException, match="asked for turn 1"):
        build([call("refuse", reason="no room")])("Book")
    (only,) = shown()["calls"]
    assert [(step["state"], step["error"]) for step in only["steps"]][1] == ("error", "ValueError: no room")
    assert only["steps"][2]["state"] == "failed"
    assert only["failures"][0]["error"].startswith("EventLoopException: The model was asked for turn 1")
    assert "failed  attempt 1, 0 s ago: EventLoopException" in cli("show", "trip", "--store", "runs.db").stdout


@pytest.mark.parametrize(("status", "word"), [("discarded", "discarded"), ("unstorable", "not storable")])
def test_every_recorded_status_has_a_word(status: str, word: str) -> None:
    build(["Hello."])("Hi")
    with sqlite3.connect("runs.db") as connection:
        connection.execute("UPDATE steps SET status = ?, sum = ?", (status, _UNKNOWN))
    connection.close()
    assert states() == [("model 1", 1, word)]


def test_recorded_effects_are_shown_with_the_step_that_encloses_them() -> None:
    build([call("stamp"), "Done."])("Go")
    assert [label for label, _, _ in states()] == ["model 1", "1.0 stamp", "1.0 > now", "model 2"]


def test_calls_are_listed_in_order_and_only_those_of_the_current_run() -> None:
    agent = build(["One.", "Two."])
    agent("First")
    agent("Second")
    assert [found["input"] for found in shown()["calls"]] == ["First", "Second"]
    forget_process()
    build(["One."], on_completed="restart")("Anew")
    assert [found["input"] for found in shown()["calls"]] == ["Anew"]
    assert "run     1 (started over" in cli("show", "trip", "--store", "runs.db").stdout


def test_what_looks_like_a_secret_is_masked_and_control_characters_are_gone() -> None:
    build([call("book", city="\x1b[31mParis\x07\u202e", api_key="hush-hush"), "Booked."])("Use sk-abcdefghijklmnop1234")
    for result in (cli("show", "trip", "--store", "runs.db"), cli("show", "trip", "--store", "runs.db", "--json")):
        assert "hush-hush" not in result.stdout
        assert "abcdefghijklmnop" not in result.stdout
        assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout)


def test_square_brackets_in_inputs_are_not_read_as_markup() -> None:
    build([call("book", city="[red]Paris[/red]"), "Booked."])("[bold]Book[/nothing]")
    text = cli("show", "trip", "--store", "runs.db").stdout
    assert "[red]Paris[/red]" in text
    assert "[bold]Book[/nothing]" in text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"password": "a\\"b", "city": "Paris"}', '{"password": "***", "city": "Paris"}'),
        ('{"auth_token": "cut off by the len', '{"auth_token": ***'),
        ({"max_tokens": 100}, '{"max_tokens": 100}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("a\nb\tc", "a b c"),
        (None, ""),
        ("x" * 500, "x" * 159 + "…"),
        ({("a", 1): 2}, "{}"),
    ],
)
def test_short_forms(given: Any, expected: str) -> None:
    assert short(given) == expected


def test_an_unknown_id_is_exit_code_3_and_one_line() -> None:
    build(["Hello."])("Hi")
    result = cli("show", "nobody", "--store", "runs.db")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("Error: Execution 'nobody' was not found in ")
    assert result.stderr.count("\n") == 1
    with pytest.raises(ExecutionNotFoundError):
        Catalog("runs.db").execution("nobody")


@pytest.mark.parametrize("args", [("ls", "--status", "odd"), ("show",), ("nothing",), ("ls", "--stor")])
def test_wrong_usage_is_exit_code_2(args: tuple[str, ...]) -> None:
    assert cli(*args).exit_code == 2


def test_a_store_that_is_not_there_is_an_error_and_is_not_created() -> None:
    Path("empty.db").touch()
    for args in (("ls",), ("show", "trip"), ("ls", "--store", "runs.db"), ("ls", "--store", "empty.db")):
        result = cli(*args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "the store does not exist yet" in result.stderr
    assert os.listdir() == ["empty.db"]
    with pytest.raises(BackendUnavailableError):
        Catalog("runs.db").executions()


@pytest.mark.parametrize(
    ("store", "text"),
    [
        ("nowhere://user:hush@host:7233", "A nowhere:// backend is not supported"),
        ("sqlite://runs.db", "three slashes"),
        ("notes.txt", "not a SQLite file"),
        (".", "it is not a file"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line_without_a_traceback(store: str, text: str) -> None:
    Path("notes.txt").write_text("buy milk " * 100)
    result = cli("ls", "--store", store)
    assert result.exit_code == 1
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
    assert "hush" not in result.stderr


def test_looking_at_a_store_at_rest_changes_no_file_and_creates_none() -> None:
    in_new_process(BOOK, ["Book"]).checked()
    with sqlite3.connect("runs.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    Path("ledger.jsonl").unlink()
    before = fingerprints()
    assert list(before) == ["runs.db"]
    assert cli("ls", "--store", "runs.db").exit_code == 0
    assert states()
    assert fingerprints() == before


def test_looking_at_a_store_left_by_a_crash_leaves_its_records_as_they_are() -> None:
    assert in_new_process(DIES, ["Book"]).exitcode == -signal.SIGKILL
    before = fingerprints(without="-shm")
    assert "runs.db-wal" in before
    assert states()
    assert fingerprints(without="-shm") == before


def test_commands_that_run_no_agent_import_no_strands_and_json_needs_no_rich() -> None:
    build([call("approve", what="trip"), "Approved."])("Ask")
    code = (
        "import sys\nfrom strands_durable._cli import main\n"
        "try:\n    main(sys.argv[1:], standalone_mode=False)\n"
        "finally:\n    print(sorted({name.split('.')[0] for name in sys.modules} & {'strands', 'rich', 'psutil'}))"
    )
    for args, expected in (
        (["ls"], "['rich']"), (["show", "trip"], "['rich']"), (["ls", "--json"], "[]"), (["show", "trip", "--json"], "[]"),
        (["watch", "trip"], "[]"), (["resume", "trip"], "[]"), (["respond", "trip", "--answer", '"yes"'], "[]"),
        (["cancel", "trip"], "[]"), (["rm", "trip", "--yes"], "[]"), (["run", "--help"], "[]"), (["worker", "--help"], "[]"),
    ):  # fmt: skip
        backend = [] if "--help" in args else ["--backend", "runs.db"]
        ended = subprocess.run([sys.executable, "-c", code, *args, *backend], capture_output=True, text=True)
        assert ended.stdout.splitlines()[-1] == expected, ended.stderr


def test_the_demo_kills_a_process_and_every_side_effect_happens_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from strands_durable._cli import main; main()", "demo"]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "was killed with SIGKILL inside book_hotel" in ended.stdout
    assert "It took 5 steps from the journal and ran 4 itself." in ended.stdout
    assert "Every side effect and each of the 4 model calls happened exactly once." in ended.stdout
    (folder,) = tmp_path.glob("strands-durable-demo-*")
    effects = [json.loads(line)["effect"] for line in (folder / "ledger.jsonl").read_text().splitlines()]
    tools = ["book_flight", "book_hotel", "check_weather", "search_flights", "send_mail"]
    assert sorted(effects) == sorted([*tools, *["model call"] * 4])
    detail = Catalog(folder / "trip.db").execution("trip-42")
    with open(folder / "ledger.jsonl", "a") as ledger:
        ledger.write('{"effect": "book_hotel", "process": 1}\n')
    with pytest.raises(trip.DemoError, match="'book_hotel': 2"):
        trip.verify(folder, detail, {})
    assert "2.1 book_hotel" in cli(*ended.stdout.splitlines()[-1].split()[1:]).stdout
