"""A store of an earlier format opens, lists, and resumes where it was left; an upgrade that is killed has changed nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_durable import connect, errors
from strands_durable._records.listing import Listing
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.checksums import _UNKNOWN, tables_with_sums
from strands_durable._sqlite.database import FORMAT, Store
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import CrashPoints, forget_process
from tests.processes import Child, run
from tests.script import answers
from tests.stores import record
from tests.stores.record import ASKED, FAILED, FINISHED, KILLED, PICTURE, PROMPT, STORES, TAGS, agent_of, booked

STATUSES = {
    "finished": "COMPLETED",
    "asked": "SUSPENDED",
    "failed": "FAILED",
    "dispatched": "PENDING",
    "killed": "RUNNING",
}


DIGESTS = {
    3: "c3c86dbc1f2d947c727619dec4c50f44576e97a5d8bbae57cd5c7100053e9967",
    4: "1f716c69bf4beedc92b49164a1197ebf2bbe24594d7c7df96cbd22a0d1c887eb",
    5: "71cf7a1c445fd0117f82a2a60aedb575c7ade8dc65ab54ae821732a418ef8705",
    6: "8a562e51c6f0270f3586eb5d9771c422bd92bdbc125532bea50b06caf9f234f9",
    7: "3b5815a7ecb3dcd05758bdce8a7f6b3497b5bd59f752ab8a579af4b7147c4737",
}
EARLIER = [format for format in DIGESTS if format < FORMAT]
"""The formats that are upgraded when a store is opened; a file of this one is kept for later versions."""


@pytest.fixture(autouse=True, params=DIGESTS, ids=lambda format: f"format {format}")
def old_store(fresh_process: None, request: pytest.FixtureRequest) -> int:
    """A store of an earlier format in this folder, with what its processes had booked."""
    shutil.copy(STORES / f"format_{request.param}.sqlite", "runs.db")
    Path("booked").write_text("Paris\nBonn\nKyiv\nLima\nRome\n")
    return int(request.param)


def version() -> int:
    with closing(sqlite3.connect("runs.db")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_the_kept_file_is_the_one_that_was_recorded(old_store: int) -> None:
    assert hashlib.sha256(Path("runs.db").read_bytes()).hexdigest() == DIGESTS[old_store]


def test_a_store_of_an_earlier_format_is_listed_and_shown_as_it_is() -> None:
    before = Path("runs.db").read_bytes()
    assert {found.execution_id: found.status.value for found in Catalog("runs.db").executions()} == STATUSES
    assert [step.label for step in Catalog("runs.db").execution("killed").steps if step.in_doubt] == [
        "2.0 book_and_die"
    ]
    assert Path("runs.db").read_bytes() == before


def test_tags_are_those_that_were_recorded_and_earlier_formats_have_none(old_store: int) -> None:
    tags = TAGS if old_store >= 6 else {}
    for _ in range(2):
        found = Catalog("runs.db").executions()
        assert {each.execution_id: dict(each.tags) for each in found} == dict.fromkeys(STATUSES, tags)
        asked = Listing(tags=TAGS, limit=10)
        assert len(Catalog("runs.db").executions(asked)) == (5 if tags else 0)
        assert [each.execution_id for each in found if each.tokens] == ["killed", "failed", "asked", "finished"]
        assert [each.question.name for each in Catalog("runs.db").questions()] == ["approval"]
        Store(Path("runs.db").resolve()).close()  # upgrades it


def test_what_was_to_be_reported_in_an_earlier_format_still_is(old_store: int) -> None:
    events = {"finished": ["completed"], "asked": ["suspended"], "failed": ["failed"], "dispatched": [], "killed": []}
    for execution_id, expected in events.items():
        found = Catalog("runs.db").execution(execution_id).undelivered
        assert [each.event for each in found] == (expected if old_store >= 7 else [])


def test_a_store_of_an_earlier_format_becomes_one_of_this_format_when_it_is_opened() -> None:
    Store(Path("runs.db").resolve()).close()
    assert version() == FORMAT
    assert {found.execution_id: found.status.value for found in Catalog("runs.db").executions()} == STATUSES
    with closing(sqlite3.connect("runs.db")) as connection:
        for table in tables_with_sums():
            assert connection.execute(f"SELECT count(*) FROM {table} WHERE sum = {_UNKNOWN}").fetchone() == (0,), table
        assert connection.execute("SELECT number FROM uses").fetchall() == [(2,)], "a prompt and a result"
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = connection.execute("SELECT usage, loop FROM steps WHERE kind = 'model' AND status = 'done'").fetchall()
    assert rows
    for usage, loop in rows:
        assert set(json.loads(usage)) == {"inputTokens", "outputTokens", "totalTokens"}
        assert set(json.loads(loop)) == {"latencyMs", "leg", "cycle"}


def test_a_damaged_row_of_an_earlier_format_is_not_sound_after_the_upgrade(old_store: int) -> None:
    if old_store < 4:
        return  # it has no checksums
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as connection:
        connection.execute("UPDATE steps SET title = 'another' WHERE id = 1")
    store = Store(Path("runs.db").resolve())
    with pytest.raises(errors.BackendUnavailableError, match="does not match its checksum"):
        store.rows("steps", "title", "id = 1")
    assert store.rows("steps", "id", "id = 2") == [(2,)]
    store.close()


def test_what_was_finished_in_an_earlier_format_returns_its_result_and_runs_nothing() -> None:
    agent = agent_of("finished", FINISHED)
    assert str(agent(PROMPT)) == "Both are done.\n"
    assert agent.state.get() == {"city": "Oslo", "nights": 3}
    assert agent.messages[0]["content"][1] == PICTURE
    assert agent.messages[2]["content"][1]["toolResult"]["content"][1] == PICTURE
    assert booked() == ["Paris", "Bonn", "Kyiv", "Lima", "Rome"]


def test_what_waited_in_an_earlier_format_takes_its_answer() -> None:
    result: Any = agent_of("asked", ASKED)("Ask me")
    assert result.stop_reason == "interrupt"
    forget_process()
    agent = agent_of("asked", ASKED)
    assert str(agent(answers(result, "yes"))) == "Approved.\n"  # type: ignore[arg-type]
    assert booked() == ["Paris", "Bonn", "Kyiv", "Lima", "Rome"]


def test_what_was_killed_in_an_earlier_format_resumes_at_its_step_in_doubt() -> None:
    assert str(agent_of("killed", KILLED)("Book both")) == "You are going to Lima and Rome.\n"
    assert booked() == ["Paris", "Bonn", "Kyiv", "Lima", "Rome", "Rome"], "the step in doubt alone was run again"


def test_what_had_failed_in_an_earlier_format_is_tried_again_from_the_failed_step() -> None:
    script = [FAILED[0], "It works again."]
    assert str(agent_of("failed", script)("Fail")) == "It works again.\n"
    assert booked() == ["Paris", "Bonn", "Kyiv", "Lima", "Rome"]


def test_what_was_dispatched_in_an_earlier_format_is_run_by_a_worker() -> None:
    async def result() -> Any:
        backend = connect("sqlite:///runs.db")
        try:
            return await (await backend.get("dispatched")).result(timeout=30)
        finally:
            await backend.close()  # type: ignore[attr-defined]

    assert record.greeter is not None
    assert str(asyncio.run(result())).strip() == "Hello."


def test_a_picture_of_an_earlier_format_is_deleted_with_the_last_that_refers_to_it() -> None:
    asyncio.run(connect("sqlite:///runs.db?worker=off").remove("finished"))
    with closing(sqlite3.connect("runs.db")) as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (0,)


def _killed_while_it_upgrades(folder: str, point: str) -> None:
    os.chdir(folder)
    with CrashPoints().crashing(f"{point}@1"):
        Store(Path("runs.db").resolve())


@pytest.mark.parametrize("old_store", EARLIER, indirect=True)
@pytest.mark.parametrize("point", ["upgrade:before", "upgrade:after"])
def test_an_upgrade_that_is_killed_is_made_by_the_next(point: str) -> None:
    assert run(_killed_while_it_upgrades, os.getcwd(), point).exitcode == -signal.SIGKILL
    assert {found.execution_id: found.status.value for found in Catalog("runs.db").executions()} == STATUSES
    assert str(agent_of("finished", FINISHED)(PROMPT)) == "Both are done.\n"
    stores.close()
    assert version() == FORMAT


def _opened(folder: str) -> Any:
    os.chdir(folder)
    return len(Store(Path("runs.db").resolve()).rows("executions", "id", "1"))


def test_processes_that_start_at_once_upgrade_once() -> None:
    children = [Child(_opened, os.getcwd()) for _ in range(4)]
    assert [child.join().checked() for child in children] == [5] * 4


@pytest.mark.parametrize("old_store", EARLIER, indirect=True)
def test_a_store_that_an_older_process_has_open_is_left_as_it_is(old_store: int) -> None:
    with closing(sqlite3.connect("runs.db")) as older:
        assert older.execute("SELECT count(*) FROM executions").fetchone() == (5,)
        with pytest.raises(errors.BackendUnavailableError, match="another process has it open"):
            Store(Path("runs.db").resolve(), busy_seconds=0.2)
        assert older.execute("PRAGMA user_version").fetchone() == (old_store,)
    Store(Path("runs.db").resolve()).close()
    assert version() == FORMAT
