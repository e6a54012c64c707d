"""C45: an export that was edited by hand or by an attacker changes no other execution, and leaves nothing that cannot run."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_durable import Durability
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import ScriptedModel, call, forget_process
from tests.commands import cli
from tests.contract.test_c43_exports import connect, export
from tests.contract.test_c45_imports import first, import_, second


def agent(store: str, execution_id: str = "trip") -> Agent:
    return Agent(
        model=ScriptedModel([call("first"), call("second"), "The end."]),
        tools=[first, second],
        system_prompt="Be kind.",
        plugins=[Durability(store, execution_id=execution_id)],
        callback_handler=None,
    )


def interrupted(store: str, execution_id: str = "trip") -> None:
    """Run an agent until it dies in its second tool."""
    Path("die").touch()
    with pytest.raises(KeyboardInterrupt):
        agent(store, execution_id)("Go")
    forget_process()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_c45_what_an_import_says_of_its_agent_is_not_taken_for_that_of_another(folder: Path) -> None:
    agent("runs.db")("Go")
    forget_process()
    found = export()
    found["rows"]["configs"][0]["data"]["system_prompt"] = "Be evil."
    import_(found, execution_id="evil")
    interrupted("other.db", "victim")
    assert str(agent("other.db", "victim")("Go")).strip() == "The end."
    copied = connect("sqlite:///other.db?worker=off").sync.get("victim").export()
    assert [row["data"]["system_prompt"] for row in copied["rows"]["configs"]] == [[{"text": "Be kind."}]]
    assert cli("verify", "--store", "other.db").exit_code == 0


def test_c45_a_config_under_the_digest_of_another_is_found_by_verify(folder: Path) -> None:
    agent("runs.db")("Go")
    forget_process()
    store, _ = stores.open(Path(os.path.realpath("runs.db")))
    with store.transaction("test") as connection:
        connection.update("configs", {"data": '{"model": "evil"}'}, "1")
    checked = cli("verify", "--store", "runs.db")
    assert checked.exit_code == 1
    assert "not what its digest was made of" in checked.stdout
