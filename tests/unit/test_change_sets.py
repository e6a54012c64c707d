"""Change sets: what engines keep of an execution, also when it was written by an earlier version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strands_durable import errors
from strands_durable._dispatch.requests import Requests
from strands_durable._enginekit.replica import Replica
from strands_durable._records import change_sets
from strands_durable._records.change_sets import FORMAT, map_cells, pack, rows_of, unpack, upgrade
from strands_durable.testing import agents

COLUMNS = {
    4: {
        "executions": "id execution_id kind status run created_at updated_at fence beat owner lease_until cancel_asked_at "
        "listened_until",
        "dispatches": "execution agent fingerprint spec given is_suspected is_alone deaths tries not_before note",
        "calls": "id execution run parent place position kind member scope lineage state_of status attempt input input_hash "
        "base config result started_at taken_up_at ended_at",
        "failures": "rowid call attempt error at",
        "answers": "call interrupt_id answer at",
        "replies": "call interrupt_id answer at",
        "steps": "id call key attempt kind name title status config started_at ended_at usage result error number",
        "chunks": "call key attempt number data",
        "messages": "lineage seq data",
        "heads": "call part data",
        "state": "call key value",
        "configs": "id digest data",
        "blobs": "digest data",
        "secrets": "name value",
    }
}
"""By format, the columns that change sets name."""
COLUMNS[5] = {**COLUMNS[4], "steps": f"{COLUMNS[4]['steps']} loop"}
COLUMNS[6] = {**COLUMNS[5], "tags": "execution name value"}

STEP_3 = [7, 1, "000001/model", 1, "model", "m", "", "started", None, 1.5, None, None, None, None, None]
STEP_4 = {"id": 7, "call": 1, "key": "000001/model", "attempt": 1, "kind": "model", "name": "m", "title": ""}


def dispatched() -> Replica:
    replica = Replica.new("new")
    spec = agents.contract_agent.spec_with(folder="/nowhere", script=["Hi."])
    Requests(replica).dispatch(spec, "Go", "run", None, None)
    return replica


def through_json(changes: Any) -> Any:
    return json.loads(json.dumps(changes))


def test_changes_that_are_applied_in_order_make_the_same_replica() -> None:
    replica, other = dispatched(), Replica("other")
    other.apply(through_json(replica.changes()))
    Requests(replica).cancel("run")
    other.apply(through_json(replica.changes()))
    assert other.export() == replica.export()
    assert replica.changes() == other.changes() == {}


def test_many_change_sets_are_applied_at_once_or_not_at_all() -> None:
    replica, one, other = dispatched(), Replica("one"), Replica("other")
    changes = [replica.changes()]
    Requests(replica).cancel("run")
    changes.append(replica.changes())
    one.apply(*changes)
    assert one.export() == replica.export()
    with pytest.raises(errors.FormatVersionError):
        other.apply(*changes, {"format": FORMAT + 1, "tables": {}})
    assert other.export() == {}


def test_a_row_names_its_columns_and_none_that_is_at_its_default() -> None:
    changes = dispatched().changes()
    assert changes["format"] == FORMAT
    (row,) = rows_of(changes, "dispatches")
    assert row.keys() == {"execution", "agent", "fingerprint", "spec", "given"}
    other = Replica("other")
    other.apply(changes)
    assert other.read("SELECT is_suspected, deaths, not_before, note FROM dispatches") == [(0, 0, 0.0, None)]


def test_rows_that_are_gone_are_named_by_their_keys() -> None:
    replica = dispatched()
    first = replica.changes()
    with replica.transaction("test") as connection:
        connection.delete("secrets", "name = 'hash_key'")
    changes = replica.changes()
    assert changes["gone"] == {"secrets": [{"name": "hash_key"}]}
    other = Replica("other")
    other.apply(first, changes)
    assert other.export() == replica.export()


def test_bytes_and_broken_text_come_back_as_they_were() -> None:
    replica, other = dispatched(), Replica("other")
    with replica.transaction("test") as connection:
        connection.execute("INSERT INTO blobs (digest, data) VALUES ('x', ?)", (b"\x00\xff",))
    other.apply(unpack(pack(replica.changes())))
    assert other.read("SELECT data FROM blobs") == [(b"\x00\xff",)]
    assert unpack(pack({"text": "\ud83d"})) == {"text": "\ud83d"}


@pytest.mark.parametrize("wrapped", [False, True])
def test_positional_rows_of_format_3_get_their_names(wrapped: bool) -> None:
    rows = {"steps": [STEP_3], "-": {"replies": [[1, "v1:x"]], "failures": [[3]]}}
    found = change_sets._to_4({"format": 3, "rows": rows} if wrapped else rows)
    (step,) = found["tables"]["steps"]
    assert {name: step[name] for name in STEP_4} == STEP_4
    assert (step["started_at"], step["number"]) == (1.5, None)
    assert found["gone"] == {"replies": [{"call": 1, "interrupt_id": "v1:x"}], "failures": [{"rowid": 3}]}


def test_cells_of_every_format_can_be_changed() -> None:
    old, new = (
        {"steps": [[7, "x"]], "-": {"steps": [["x"]]}},
        {"format": 4, "tables": {"steps": [{"id": 7, "key": "x"}]}},
    )

    def loud(cell: Any) -> Any:
        return cell.upper() if isinstance(cell, str) else cell

    assert map_cells(old, loud) == {"steps": [[7, "X"]], "-": {"steps": [["x"]]}}
    assert map_cells({"format": 3, "rows": old}, loud)["rows"]["steps"] == [[7, "X"]]
    assert map_cells(new, loud)["tables"] == {"steps": [{"id": 7, "key": "X"}]}


def test_what_a_step_cost_and_its_place_in_the_loop_are_two_columns_since_format_5() -> None:
    both = '{"inputTokens": 3, "totalTokens": 4, "latencyMs": 1, "leg": 0, "cycle": 2}'
    (row,) = upgrade({"format": 4, "tables": {"steps": [{**STEP_4, "usage": both}]}})["tables"]["steps"]
    assert row == {
        **STEP_4,
        "usage": '{"inputTokens": 3, "totalTokens": 4}',
        "loop": '{"latencyMs": 1, "leg": 0, "cycle": 2}',
    }
    (row,) = upgrade({"format": 4, "tables": {"steps": [{**STEP_4, "usage": '{"runs":0}'}]}})["tables"]["steps"]
    assert row == {**STEP_4, "loop": '{"runs": 0}'}


def test_a_later_format_is_refused_by_its_number() -> None:
    with pytest.raises(errors.FormatVersionError, match=f"format {FORMAT + 1}"):
        upgrade({"format": FORMAT + 1, "tables": {}})


def test_a_column_that_is_not_known_is_not_dropped() -> None:
    with pytest.raises(errors.UnreadableError, match="surprise"):
        Replica("other").apply({"format": FORMAT, "tables": {"secrets": [{"name": "x", "value": "y", "surprise": 1}]}})


def test_one_function_brings_change_sets_to_the_next_format(monkeypatch: pytest.MonkeyPatch) -> None:
    def split(changes: Any) -> Any:
        for row in changes["tables"].get("steps", ()):
            row["cost"] = row.pop("usage", None)
        return {**changes, "format": FORMAT + 1}

    monkeypatch.setattr(change_sets, "_UPGRADES", {**change_sets._UPGRADES, FORMAT: split})
    monkeypatch.setattr(change_sets, "FORMAT", FORMAT + 1)
    found = upgrade({"steps": [[*STEP_3[:11], '{"inputTokens": 3}', *STEP_3[12:]]]})
    assert found["format"] == FORMAT + 1
    assert found["tables"]["steps"][0]["cost"] == '{"inputTokens": 3}'


def test_a_change_of_the_tables_needs_a_new_format() -> None:
    """Add the new columns here under a new number, raise `FORMAT`, and add the function that upgrades the one before."""
    found = {name: " ".join(table.columns) for name, table in Replica("x")._tables.items()}
    assert found == COLUMNS[FORMAT]
