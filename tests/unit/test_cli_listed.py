"""What `ls` lists: quickly however many there are, readable on a narrow terminal, and what waits for whom."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_durable._records.executions import ExecutionStatus
from strands_durable._records.listing import Listing
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.connection import Connection
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.inspection.listing import AT_ODDS, AT_REST, AT_WORK, rows_of, values_of
from strands_durable._sqlite.inspection.verified import read_checked
from strands_durable.testing import call
from tests.commands import AGENTS, cli
from tests.script import in_new_process

STORE = ("--store", "runs.db")


def filled(count: int, path: str = "runs.db") -> None:
    """Make a store with many executions of one step each; the newest has the highest number."""
    Store(Path(path).absolute()).close()
    statuses = ["COMPLETED", "FAILED", "SUSPENDED", "PENDING", "CANCELLED"]
    with closing(sqlite3.connect(path)) as connection:
        rows = [(n, f"run-{n:06d}", statuses[n % 5], 1000.0 + n) for n in range(1, count + 1)]
        connection.executemany(
            "INSERT INTO executions (id, execution_id, kind, status, run, created_at, updated_at, fence, beat, owner,"
            " lease_until) VALUES (?, ?, 'inline', ?, 0, 1000, ?, 0, 0, NULL, 0)",
            rows,
        )
        connection.executemany(
            "INSERT INTO calls (id, execution, run, parent, place, position, kind, member, scope, input, input_hash, lineage,"
            " status, attempt, base, config, started_at, taken_up_at)"
            " VALUES (?, ?, 0, 0, '', 0, 'agent', 'default', ?, 'null', '', ?, 'COMPLETED', 1, '[]', 0, 1000, 1000)",
            [(n, n, "rare" if n == 7 else "default", n) for n, *_ in rows],
        )
        connection.executemany(
            "INSERT INTO steps (call, key, attempt, kind, name, title, status, started_at, ended_at)"
            " VALUES (?, '000001/model~0', 1, 'model', 'm', '', 'done', 1000, 1000)",
            [(n,) for n, *_ in rows],
        )
        connection.commit()


def instructions(path: str, asked: Listing) -> int:
    """Return how much SQLite does for a list, in steps of its machine."""
    count = [0]

    def step() -> int:
        count[0] += 1
        return 0

    with closing(sqlite3.connect(path, factory=Connection)) as connection:
        read_checked(connection)
        connection.set_progress_handler(step, 1)
        assert len(rows_of(connection, asked)) == asked.limit
    return count[0]


@pytest.mark.parametrize("statuses", [frozenset(ExecutionStatus), frozenset({ExecutionStatus.FAILED})])
def test_the_last_ten_cost_the_same_however_many_there_are(statuses: frozenset[ExecutionStatus]) -> None:
    filled(100, "few.db")
    filled(2_000, "many.db")
    few, many = (instructions(path, Listing(statuses=statuses, limit=10)) for path in ("few.db", "many.db"))
    assert many < 1.2 * few


@pytest.mark.parametrize("query", [AT_REST, AT_WORK, AT_ODDS])
def test_a_list_is_read_by_its_index_and_never_by_a_scan(query: str) -> None:
    filled(1)
    values = {"status": "COMPLETED", "low": "FAILED", "high": "PENDING", **values_of(Listing(limit=10))}
    with closing(sqlite3.connect("runs.db")) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert any("executions_by_status" in line for line in plan)
    assert not [line for line in plan if line.startswith("SCAN") and line != "SCAN w VIRTUAL TABLE INDEX 1:"]
    if query is AT_REST:
        assert [line for line in plan if "TEMP B-TREE" in line and "e." in line] == []


def test_a_list_is_limited_unless_more_is_asked_for() -> None:
    filled(120)
    result = cli("ls", *STORE)
    assert len(result.stdout.splitlines()) == 2 + 50
    assert result.stderr == (
        "Showing the 50 most recently changed. Use --limit N to list more, --all to list all,"
        " --before 1071.0@run-000071 to continue.\n"
    )
    assert result.stdout.splitlines()[2].startswith("run-000120")
    for args, count, hint in (((), 50, True), (("--limit", "120"), 120, False), (("--all",), 120, False)):
        result = cli("ls", *args, "--json", *STORE)
        assert len(json.loads(result.stdout)) == count
        assert bool(result.stderr) is hint
    assert [found["execution_id"] for found in json.loads(cli("ls", "--agent", "rare", "--json", *STORE).stdout)] == [
        "run-000007"
    ]


def test_one_with_a_status_that_is_none_is_not_missing_from_the_list() -> None:
    filled(60)
    with closing(sqlite3.connect("runs.db", factory=Connection)) as connection:
        odd = ["", "DONE", "QUEUED", "zzz"]
        connection.executemany(
            "UPDATE executions SET status = ? WHERE id = ?", [(text, 57 + n) for n, text in enumerate(odd)]
        )
        connection.execute("UPDATE executions SET status = x'ff' WHERE id = 56")
        read_checked(connection)
        found = {row[0] for row in rows_of(connection, Listing(limit=5))}
    assert found == {56, 57, 58, 59, 60}


def test_one_that_runs_is_listed_by_its_last_step_and_not_by_its_last_change_of_status() -> None:
    filled(60)
    with closing(sqlite3.connect("runs.db")) as connection:
        connection.execute("UPDATE executions SET status = 'RUNNING' WHERE id IN (3, 4)")
        connection.execute("UPDATE steps SET ended_at = 9000 WHERE call = 4")
        connection.commit()
    assert [record.execution_id for record in Catalog("runs.db").executions(Listing(limit=2))] == [
        "run-000004",
        "run-000060",
    ]
    since = Catalog("runs.db").executions(Listing(since=5000.0))
    assert [record.execution_id for record in since] == ["run-000004"]


@pytest.mark.parametrize("execution_id", ["trip-42", "0123456789abcdef0123456789abcdef"])
def test_eighty_columns_show_ids_agents_statuses_and_ages(execution_id: str) -> None:
    filled(1)
    with closing(sqlite3.connect("runs.db")) as connection:
        connection.execute("UPDATE executions SET execution_id = ?, status = 'RUNNING'", (execution_id,))
        connection.execute("UPDATE calls SET scope = 'a-travel-agent-with-a-long-name'")
        connection.commit()
    lines = cli("ls", *STORE, env={"COLUMNS": "80"}).stdout.splitlines()
    assert len(lines) == 3, "no cell is broken over two lines"
    assert all(len(line) <= 80 for line in lines)
    assert lines[2].startswith(f"{execution_id}  a-trav")
    assert ("RUNNING, gone" in lines[2]) == (len(execution_id) > 10)
    assert "gone" in lines[2]
    assert lines[2].endswith("d ago")


def test_a_timeline_of_eighty_columns_has_no_broken_lines_and_errors_stand_below() -> None:
    script = [
        call("refuse", reason="no room " * 9),
        call("approve", what="a very long question of a tool " * 3),
        "Done.",
    ]
    in_new_process(script, ["Book"])
    lines = cli("show", "trip", *STORE, env={"COLUMNS": "80"}).stdout.splitlines()
    (header,) = [number for number, line in enumerate(lines) if line.startswith("#  STEP ")]
    table = lines[header + 2 : header + 6]
    assert [line.split()[:2] for line in table] == [["1", "model"], ["2", "1.0"], ["3", "model"], ["4", "2.0"]]
    assert all(len(line) <= 80 for line in table)
    assert "waiting for a person" in table[3]
    assert any(line.startswith("1.0 refuse: ") for line in lines[header + 6 :])


# What waits


def run(agent: str, *more: str) -> Any:
    return cli("run", f"{AGENTS}:{agent}", "Go", "--id", agent, *more)


def test_what_waits_is_listed_with_whom_for_and_why() -> None:
    run("planner")
    run("asker")
    run("waiter", "--detach")
    text = cli("ls", "--waiting").stdout
    assert "planner" not in text
    assert "asker  asker  SUSPENDED  waits for a person  (0 s ago)\n    trip" not in text
    assert 'asker  asker  SUSPENDED  waits for a person  (0 s ago)\n    approval: {"what": "trip"}\n' in text
    assert "    next: strands-durable respond asker\n" in text
    assert (
        "waiter  waiter  PENDING  waits for a worker  (0 s ago)\n    no worker with agent 'waiter' has claimed it\n"
        in text
    )
    found = {each["execution_id"]: each for each in json.loads(cli("ls", "--waiting", "--json").stdout)}
    assert {name: each["waits_for"] for name, each in found.items()} == {"asker": "person", "waiter": "worker"}
    assert found["asker"]["questions"][0]["name"] == "approval"
    cli("respond", "asker", "--answer", '"yes"')
    assert "asker  asker  PENDING  waits for a worker" in cli("ls", "--waiting").stdout
    assert cli("ls", "--waiting", "--status", "pending").exit_code == 2


def test_what_a_script_left_behind_waits_for_its_script() -> None:
    in_new_process([call("book_and_die", city="Rome"), "Done."], ["Book"])
    text = cli("ls", "--waiting", *STORE).stdout
    assert "RUNNING  waits for its script" in text
    assert "run its script again" in text
    in_new_process([call("book_and_die", city="Rome"), "Done."], ["Book"])
    assert cli("ls", "--waiting", *STORE).stdout == "No executions are waiting.\n"
