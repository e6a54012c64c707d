"""C43 and C44: the file of an exported execution, with its contents and without them."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import BeforeInvocationEvent

from strands_durable import Durability, connect, durable
from strands_durable._enginekit.export_files import text_of
from strands_durable._sqlite.open_files import stores
from strands_durable.testing import Answer, ScriptedModel, call, forget_process
from tests.commands import cli
from tests.script import answers

PICTURE = b"confidential-picture" + bytes(range(256)) * 20
SECRETS = {
    "prompt": "confidential-prompt",
    "system": "confidential-system",
    "city": "confidential-city",
    "answer": "confidential-answer",
    "state": "confidential-state",
    "key": "confidential-key",
    "reply": "confidential-reply",
    "reason": "confidential-reason",
    "error": "confidential-error",
    "tag": "confidential-tag",
    "invocation": "confidential-invocation",
    "field": "confidential-field",
    "description": "confidential-description",
}
ALL = re.compile(r"confidential|Y29uZmlkZW50aWFs")
"""Also as base64."""


@tool(description=SECRETS["description"], context=True)
def book(city: str, tool_context: ToolContext) -> dict[str, Any]:
    tool_context.agent.state.set(SECRETS["key"], {SECRETS["field"]: SECRETS["state"]})
    tool_context.invocation_state["seen"] = SECRETS["invocation"]
    reply = tool_context.interrupt("approval", reason={SECRETS["field"]: SECRETS["reason"]})
    return {"status": "success", "content": [{"text": f"{city}: {reply}"}, {"json": {SECRETS["field"]: 4711}}]}


@tool
def fail() -> str:
    """Fail."""
    raise ValueError(SECRETS["error"])


def run_a_rich_agent(execution_id: str = "trip") -> None:
    """Record a run with everything that may hold contents, which ends with a failure."""
    script = [[call("book", city=SECRETS["city"]), call("fail")], SECRETS["answer"]]
    picture = {"image": {"format": "png", "source": {"bytes": PICTURE}}}
    agent = Agent(
        model=ScriptedModel(script),
        tools=[book, fail],
        system_prompt=SECRETS["system"],
        plugins=[Durability("runs.db", execution_id=execution_id, tags={"tenant": SECRETS["tag"]})],
        callback_handler=None,
    )
    result: Any = agent([{"text": SECRETS["prompt"]}, picture], invocation_state={"user": SECRETS["invocation"]})
    agent(answers(result, SECRETS["reply"]))

    def refuse(event: BeforeInvocationEvent) -> None:
        raise ValueError(SECRETS["error"])

    agent.hooks.add_callback(BeforeInvocationEvent, refuse)
    with pytest.raises(ValueError, match="confidential"):
        agent(SECRETS["prompt"])
    forget_process()


def export(execution_id: str = "trip", **options: Any) -> dict[str, Any]:
    return connect("sqlite:///runs.db?worker=off").sync.get(execution_id).export(**options)


def test_c43_an_export_has_every_text_of_the_run_and_no_key_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_a_rich_agent()
    found = text_of(export())
    assert [name for name, secret in SECRETS.items() if secret not in found] == []
    store = stores.open(Path(os.path.realpath("runs.db")))[0]
    assert store.hash_key.hex() not in found
    assert str(os.getpid()) not in json.dumps(export()["rows"]["executions"])


def test_c43_two_exports_are_equal_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_a_rich_agent()
    first, second = text_of(export()).splitlines(), text_of(export()).splitlines()
    assert [line for line in first if "exported_at" not in line] == [
        line for line in second if "exported_at" not in line
    ]
    assert json.loads("\n".join(first))["rows"] == export()["rows"]
    steps = [line for line in first if '"key": "00000' in line]
    assert len(steps) == len(export()["rows"]["steps"])


def test_c43_half_a_surrogate_pair_is_exported_and_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = Agent(
        model=ScriptedModel([Answer(text="\ud83d and 😀")]),
        plugins=[Durability("runs.db", execution_id="trip")],
        callback_handler=None,
    )
    agent("\ud83d")
    forget_process()
    text = text_of(export()).encode()
    handle = connect("sqlite:///other.db?worker=off").sync.import_execution(json.loads(text))
    assert handle.export()["rows"] == export()["rows"]


def test_c43_the_command_writes_a_file_that_only_its_owner_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_a_rich_agent()
    printed = cli("export", "trip", "--store", "runs.db")
    assert json.loads(printed.stdout)["rows"] == export()["rows"]
    written = cli("export", "trip", "--store", "runs.db", "--to", "run.json")
    assert (written.exit_code, written.stdout) == (0, "Exported trip to run.json.\n")
    assert json.loads(Path("run.json").read_text())["rows"] == export()["rows"]
    assert stat.S_IMODE(Path("run.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir() if "run.json" in path.name) == ["run.json"]


def test_c43_an_unknown_execution_or_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_a_rich_agent()
    assert cli("export", "unknown", "--store", "runs.db").exit_code == 3
    failed = cli("export", "trip", "--store", "runs.db", "--to", "missing/run.json")
    assert failed.exit_code == 2
    assert failed.stderr.splitlines()[-1].startswith("Error: Invalid value for '--to': 'missing' is not a folder.")


def test_c44_a_redacted_export_has_no_text_of_a_rich_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_a_rich_agent()
    text = cli("export", "trip", "--store", "runs.db", "--redacted").stdout
    assert ALL.search(text_of(export()))
    assert ALL.findall(text) == []
    assert "4711" not in text


def test_c44_a_redacted_export_has_no_digest_of_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_a_rich_agent()
    rows = export()["rows"]
    digests = [*(row["digest"] for table in ("blobs", "configs") for row in rows[table])]
    text = text_of(export(contents=False))
    assert digests
    assert [digest for digest in digests if digest in text] == []


CUSTOMER = "confidential-customer/after:x#1"


@tool(context=True)
async def invite(tool_context: ToolContext) -> str:
    """Write to a customer who has agreed."""
    await durable.step(CUSTOMER, lambda: None)
    plugins = [Durability("runs.db", execution_id="trip")]
    inner = Agent(name="clerk", model=ScriptedModel(["Done."]), plugins=plugins, callback_handler=None)
    await inner.invoke_async("confidential-inner")
    return str(tool_context.interrupt("confidential-question"))


def test_c44_a_redacted_export_has_no_name_that_a_model_or_a_user_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = [call("invite", tool_use_id="confidential-id~0/x"), call("confidential_tool")]
    agent = Agent(
        model=ScriptedModel([asked, "End."]),
        tools=[invite],
        plugins=[Durability("runs.db", execution_id="trip")],
        callback_handler=None,
    )
    result: Any = agent("Go")
    names = {interrupt.id.rpartition(":")[2] for interrupt in result.interrupts}
    waiting = text_of(export(contents=False))
    agent(answers(result, "yes"))
    forget_process()
    ended = export(contents=False)
    for text in (waiting, text_of(ended)):
        assert ALL.findall(text) == []
        assert [name for name in names if name in text] == []  # made of the name of the question alone
    told = [(row["kind"], row["key"], row["name"]) for row in ended["rows"]["steps"]]
    assert ("tool", "000001/000:id-1~0", "invite") in told
    assert ("tool", "000001/001:id-2~0", "<17 characters>") in told
    said = f"<{len(CUSTOMER)} characters>"
    assert ("effect", f"000001/000:id-1~0/running:{said}#0", said) in told
    assert [row["interrupt_id"] for row in ended["rows"]["answers"]] == ["id-3"]
    inside = [(row["place"][:18], row["scope"][:28]) for row in ended["rows"]["calls"] if row["parent"]]
    assert inside == [("000001/000:id-1~0/", "default#0/000001/000:id-1~0/")]


def test_c44_a_redacted_export_shows_what_ran_and_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_a_rich_agent()
    whole, rows = export()["rows"], export(contents=False)["rows"]
    assert {table: len(found) for table, found in rows.items()} == {table: len(found) for table, found in whole.items()}
    kept = ("name", "status", "started_at", "ended_at", "usage", "attempt")
    told = [[{name: row.get(name) for name in kept} for row in found["steps"]] for found in (rows, whole)]
    assert told[0] == told[1]
    ids = re.compile(r":call-0-(\d)~")  # one of a model for each tool
    assert [row["key"] for row in rows["steps"]] == [
        ids.sub(lambda found: f":id-{int(found[1]) + 1}~", row["key"]) for row in whole["steps"]
    ]
    assert rows["failures"][0]["error"]["type"] == "builtins:ValueError"
    assert rows["failures"][0]["error"]["text"] == f"<{len(SECRETS['error'])} characters>"
    assert rows["blobs"][0]["data"] == {"bytes": len(PICTURE)}
    assert rows["tags"] == [{"execution": 1, "name": "tenant", "value": f"<{len(SECRETS['tag'])} characters>"}]
