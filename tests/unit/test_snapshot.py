"""One execution as a change set, and written again under another id: the same rows with other numbers."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability
from strands_durable._enginekit.replica import Replica
from strands_durable._records.change_sets import ChangeSet
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.open_files import stores
from strands_durable._sqlite.snapshot import snapshot
from strands_durable._sqlite.snapshot.restore import restore
from strands_durable.errors import BackendUnavailableError, ExecutionExistsError, ExecutionNotFoundError, ForkError
from strands_durable.testing import ScriptedModel, call

IMAGE = bytes(range(256)) * 20


@tool(context=True)
def paint(number: int, tool_context: ToolContext) -> dict[str, Any]:
    """Return an image, and change the state."""
    tool_context.agent.state.set("last", number)
    image = {"image": {"format": "png", "source": {"bytes": IMAGE}}}
    return {"status": "success", "content": [{"text": f"image {number}"}, image]}


def run(execution_id: str = "trip", file: str = "runs.db") -> None:
    """An agent that makes two calls."""
    script = [call("paint", number=1), [call("paint", number=2), call("paint", number=3)], "Done.", "Again."]
    agent = Agent(
        model=ScriptedModel(script),
        tools=[paint],
        plugins=[Durability(file, execution_id=execution_id)],
        callback_handler=None,
    )
    agent("Paint")
    agent("Once more")


def opened(file: str = "runs.db") -> Store:
    return stores.open(Path(file).resolve())[0]


def shown(execution_id: str, file: str = "runs.db") -> Any:
    """What `show` shows, without what belongs to one execution or one moment."""
    detail = Catalog(Path(file).resolve()).execution(execution_id)
    return [(each.scope, each.status, each.input, each.steps, each.phase, each.stop_reason) for each in detail.calls]


def rows(changes: ChangeSet) -> Any:
    return json.loads(json.dumps(changes))


def test_a_whole_execution_is_written_again_under_another_id_with_one_copy_of_its_bytes() -> None:
    run()
    run("other")
    restore(opened(), snapshot(opened(), "trip"), execution_id="copy")
    assert shown("copy") == shown("trip")
    with closing(sqlite3.connect("runs.db")) as connection:
        assert connection.execute("SELECT count(*), max(length(data)) FROM blobs").fetchone() == (1, len(IMAGE))
        ((uses,),) = connection.execute("SELECT number FROM uses").fetchall()
        assert uses == 3 * 3, "each result that has the image, of each of the three executions"


def test_what_was_written_again_is_written_again_equally() -> None:
    run()
    restore(opened("other.db"), snapshot(opened(), "trip"), execution_id="trip")
    once = snapshot(opened("other.db"), "trip")
    restore(opened("third.db"), once, execution_id="trip")
    again = snapshot(opened("third.db"), "trip")
    for row in [*once["tables"]["calls"], *again["tables"]["calls"]]:
        assert row.pop("input_hash"), "made with the key of the file"
    assert again == once, "a new file counts from one, like the one before"


def test_a_store_in_memory_takes_a_snapshot_as_it_is() -> None:
    run()
    replica = Replica.new("memory", opened().hash_key)
    changes = snapshot(opened(), "trip")
    replica.apply(rows(changes))
    assert [each.steps for each in replica.detail().calls] == [each[3] for each in shown("trip")]
    assert snapshot(replica, "trip") == changes


def test_every_step_has_a_snapshot_and_none_knows_of_later_ones() -> None:
    run()
    whole = snapshot(opened(), "trip")
    last = max(row["number"] for row in whole["tables"]["steps"])
    for number in range(last + 1):
        found = snapshot(opened(), "trip", number)["tables"]
        assert [row["number"] for row in found.get("steps", [])] == list(range(1, number + 1))
        restore(opened("other.db"), {"format": whole["format"], "tables": found}, execution_id=f"at-{number}")
        shown(f"at-{number}", "other.db")
    assert found["executions"][0]["status"] == "COMPLETED"


@pytest.mark.parametrize("at", [-1, 99])
def test_a_step_that_is_not_there_is_named(at: int) -> None:
    run()
    with pytest.raises(ForkError, match=f"no finished step {at}.*Finished steps: 1 to 7"):
        snapshot(opened(), "trip", at)


def test_an_id_that_is_taken_or_unknown_is_refused_and_nothing_is_written() -> None:
    run()
    changes = snapshot(opened(), "trip")
    with pytest.raises(ExecutionExistsError, match="already an execution 'trip'"):
        restore(opened(), changes, execution_id="trip")
    with pytest.raises(ExecutionNotFoundError):
        snapshot(opened(), "unknown")
    assert snapshot(opened(), "trip") == changes


def test_a_damaged_row_has_no_snapshot() -> None:
    run()
    with closing(sqlite3.connect("runs.db")) as connection:
        connection.execute("UPDATE steps SET result = replace(result, 'Done.', 'Gone.')")
        connection.commit()
    with pytest.raises(BackendUnavailableError, match="does not match its checksum"):
        snapshot(opened(), "trip")
