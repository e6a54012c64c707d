"""What is shown of an execution: whole values, who answered, earlier runs; and nothing of it can steer a terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, connect
from strands_durable.testing import Answer, ScriptedModel, call, forget_process
from tests.commands import ROOT, cli
from tests.script import answers

STORE = ("--store", "runs.db")
LONG = "Llanfairpwllgwyngyll " * 30
STEERING = "\x1b]0;owned\x07\x1b[31m\u202e\x9b2J"
CONTROL = set("\x1b\x07\u202e\x9b\x00\r")


@tool
def book(city: str) -> dict[str, Any]:
    """Book a hotel."""
    return {"status": "success", "content": [{"text": f"booked {city}"}, {"json": {"price": 7, "api_key": "hush"}}]}


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    return f"{what}: {tool_context.interrupt(what, reason={'what': what})}"


@tool(context=True)
def pack(what: str, tool_context: ToolContext) -> str:
    """Pack a bag, and change every kind of state."""
    state = tool_context.agent.state
    state.set("bag", [what])
    state.set("password", "hush hush")
    state.set("nothing", None)
    state.delete("list")
    tool_context.invocation_state["trip"]["bags"] = 1
    del tool_context.invocation_state["trip"]["draft"]
    return "packed"


def build(*script: Any, agent_id: str = "default", **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel(list(script)),
        tools=[book, approve, pack],
        plugins=[Durability("runs.db", **{"execution_id": "trip", **options})],
        callback_handler=None,
        agent_id=agent_id,
    )


def shown(*args: str) -> Any:
    result = cli("show", "trip", *args, *STORE, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# Values


def test_json_has_inputs_results_and_model_text_as_values() -> None:
    build(Answer(text="Let me see.", calls=[call("book", city=LONG)]), "Booked.")(LONG)
    (only,) = shown()["calls"]
    assert only["input"] == LONG
    asked, booked, last = only["steps"]
    assert booked["input"] == {"city": LONG}
    assert booked["result"]["content"][0] == {"text": f"booked {LONG}"}
    assert booked["result"]["content"][1] == {"json": {"price": 7, "api_key": "***"}}
    assert asked["result"]["message"]["content"][0] == {"text": "Let me see."}
    assert last["result"]["message"]["content"] == [{"text": "Booked."}]


def test_what_looks_like_a_secret_is_shown_where_it_is_asked_for() -> None:
    build(call("book", city="Paris"), "Booked.")("Go")
    assert shown("--unmasked")["calls"][0]["steps"][1]["result"]["content"][1]["json"]["api_key"] == "hush"
    assert "hush" not in cli("show", "trip", "--full", *STORE).stdout
    assert "hush" in cli("show", "trip", "--full", "--unmasked", *STORE).stdout


def test_show_of_a_step_prints_all_of_it() -> None:
    build(Answer(text="Let me see.", calls=[call("book", city=LONG)]), "Booked.")("Go")
    for name in ("1.1", "1.1 book"):
        text = cli("show", "trip", name, *STORE).stdout
        assert text.startswith("1.1 book  done  attempt 1, took ")
        assert f"booked {LONG}".rstrip() in text
        assert '"price": 7' in text
        assert LONG.rstrip() in text.split("result")[0], "the whole input"
    assert "Let me see." in cli("show", "trip", "1", *STORE).stdout
    assert [step["key"] for step in shown("model 2")] == ["000002/model~0"]
    unknown = cli("show", "trip", "9.9", *STORE)
    assert unknown.exit_code == 2
    assert "has no step '9.9'. Its steps: model 1, 1.1 book, model 2" in unknown.stderr


def test_show_in_full_has_every_step_whole() -> None:
    build(Answer(text="Let me see.", calls=[call("book", city=LONG)]), "All is booked.")(LONG)
    text = cli("show", "trip", "--full", *STORE).stdout
    for wanted in ("Let me see.", f"booked {LONG}".rstrip(), "All is booked.", f"input   {LONG}".rstrip()):
        assert wanted in text
    assert "All is booked." not in cli("show", "trip", *STORE).stdout


def test_an_input_that_a_hook_changed_is_shown_as_it_was_used() -> None:
    from strands.hooks import BeforeToolCallEvent

    def change(event: BeforeToolCallEvent) -> None:
        event.tool_use["input"] = {"city": f"{LONG} by a hook"}

    agent = build(call("book", city="Paris"), "Booked.")
    agent.add_hook(change, BeforeToolCallEvent)
    agent("Go")
    assert "Paris" not in json.dumps(shown()["calls"][0]["steps"][1]["input"])


CHANGES = {
    "state": {"set": {"bag": ["coat"], "password": "***", "nothing": None}, "deleted": ["list"]},
    "invocation_state": {"set": {"trip.bags": 1}, "deleted": ["trip.draft"]},
}


def test_what_a_tool_changed_in_the_state_is_shown_with_its_step() -> None:
    agent = build(call("pack", what="coat"), call("book", city="Paris"), "Packed.")
    agent.state.set("list", ["coat"])
    agent("Go", invocation_state={"trip": {"draft": True}})
    model, packed, _, booked, _ = shown()["calls"][0]["steps"]
    assert packed["state_changes"] == CHANGES
    assert (model["state_changes"], booked["state_changes"]) == (None, None)
    assert shown("1.0")[0]["state_changes"] == CHANGES
    assert shown("1.0", "--unmasked")[0]["state_changes"]["state"]["set"]["password"] == "hush hush"
    for text in (cli("show", "trip", "1.0", *STORE).stdout, cli("show", "trip", "--full", *STORE).stdout):
        assert "hush" not in text
        for line in (
            'state: bag = ["coat"]',
            'state: password = "***"',
            "state: nothing = null",
            "state: list was deleted",
            "invocation_state: trip.bags = 1",
            "invocation_state: trip.draft was deleted",
        ):
            assert line in text, text


# Answers


def test_who_answered_what_and_when_is_shown() -> None:
    build(call("approve", what="trip"), "Approved.")("Go")
    question = shown()["calls"][0]["questions"][0]
    assert (question["name"], question["reason"], question["answers"]) == ("trip", {"what": "trip"}, None)
    assert cli("respond", "trip", "--answer", '{"yes": [1]}', "--by", "ann@desk", *STORE).exit_code == 0
    text = cli("show", "trip", *STORE).stdout
    assert (
        f'answer  trip: {{"yes": [1]}}, by ann@desk, 0 s ago, not used yet (interrupt_id {question["interrupt_id"]})'
        in text
    )
    forget_process()
    assert str(build(call("approve", what="trip"), "Approved.")()) == "Approved.\n"
    (answer,) = shown()["calls"][0]["answers"]
    assert answer.pop("at").endswith("+00:00")
    assert answer == {
        "interrupt_id": question["interrupt_id"], "name": "trip", "answer": {"yes": [1]}, "by": "ann@desk", "is_taken": True,
    }  # fmt: skip


def test_an_answer_of_the_script_itself_is_shown_as_such() -> None:
    agent = build(call("approve", what="trip"), "Approved.")
    result: Any = agent("Go")
    given: Any = answers(result, "yes")
    agent(given)
    assert 'answer  "yes", by its script' in cli("show", "trip", *STORE).stdout.replace("yes, by", '"yes", by')
    assert shown()["calls"][0]["answers"][0]["by"] is None


# Runs


def test_earlier_runs_of_an_id_are_listed_and_shown() -> None:
    build("One.")("Go")
    forget_process()
    build("Two.", on_completed="restart")("Go")
    found = shown()
    assert [(run["run"], run["status"], run["steps"]) for run in found["runs"]] == [
        (0, "COMPLETED", 1),
        (1, "COMPLETED", 1),
    ]
    assert found["run"] == 1
    assert found["calls"][0]["steps"][0]["result"]["message"]["content"] == [{"text": "Two."}]
    assert shown("--run", "0")["calls"][0]["steps"][0]["result"]["message"]["content"] == [{"text": "One."}]
    text = cli("show", "trip", *STORE).stdout
    assert "others  0 COMPLETED (1 steps): strands-durable show trip --run 0 --backend runs.db" in text
    missing = cli("show", "trip", "--run", "7", *STORE)
    assert missing.exit_code == 1
    assert "Run 7 of execution 'trip' is not supported: the execution has runs 0, 1" in missing.stderr

    async def detail() -> Any:
        return await (await connect("sqlite:///runs.db?worker=off").get("trip")).detail(run=0)

    assert asyncio.run(detail()).run == 0


# One name for interrupt ids


def test_interrupt_ids_have_one_name_in_json_text_and_errors() -> None:
    build(call("approve", what="trip"), "Approved.")("Go")
    (question,) = shown()["calls"][0]["questions"]
    interrupt_id = question["interrupt_id"]
    for args in (("show", "trip"), ("respond", "trip"), ("respond", "trip", "--answer", 'nobody="yes"')):
        result = cli(*args, *STORE)
        assert re.search(rf"interrupt_id:? {re.escape(interrupt_id)}", result.output), args
    refused = cli("respond", "trip", "--answer", 'nobody="yes"', *STORE)
    assert f"open questions 'trip' (interrupt_id {interrupt_id})" in refused.stderr
    assert "Answer an open question by its interrupt_id." in refused.stderr


def test_watch_masks_secrets_unless_told_otherwise() -> None:
    build(Answer(text="It is password=hunter2."), execution_id="said")("Go")
    for args, is_shown in (((), False), (("--json",), False), (("--json", "--unmasked"), True)):
        text = cli("watch", "said", *args, *STORE).stdout
        assert ("hunter2" in text, "***" in text) == (is_shown, not is_shown), args


# Terminals and logs


def test_nothing_that_is_printed_can_steer_a_terminal() -> None:
    steered = build(call("approve", what=f"trip{STEERING}"), "Approved.", agent_id=f"agent{STEERING}")
    steered(f"Go{STEERING}")
    build(Answer(text=f"Hi{STEERING}"), execution_id="said")("Go")
    commands: list[tuple[str, ...]] = [
        ("ls",), ("ls", "--waiting"), ("show", "trip"), ("show", "trip", "--full"), ("show", "trip", "1.0"), ("watch", "trip"),
        ("respond", "trip"), ("show", "said", "--full"), ("watch", "said"), ("respond", "trip", "--answer", "x=1"),
        ("ls", "--json"), ("show", "trip", "--json"), ("watch", "said", "--json"),
    ]  # fmt: skip
    for command in commands:
        result = cli(*command, *STORE)
        assert not CONTROL & set(re.sub("\x1b\\[[0-9;]*m", "", result.output)), command
    for command in (("show", "trip"), ("ls",), ("show", "said", "--full")):
        assert not CONTROL & set(cli(*command, *STORE).output), command


def test_stop_reasons_are_printed_without_control_characters() -> None:
    import sqlite3

    build("Hi.")("Go")
    with sqlite3.connect("runs.db") as connection:
        connection.execute(
            "UPDATE calls SET result = replace(result, 'end_turn', 'end\\u001b[31m\\u0007'), sum = 1 << 41"
        )
    connection.close()
    text = cli("show", "trip", *STORE).stdout
    assert "ended with end [31m" in text
    assert not CONTROL & set(text)


AGENTS = """
from strands import Agent
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel

@durable_agent
def talker() -> Agent:
    return Agent(model=ScriptedModel(["Hi\\x1b[31m\\x07 there\\n\\ttab"]), callback_handler=None)
"""


def test_what_run_prints_of_a_model_cannot_steer_a_terminal() -> None:
    Path("agents.py").write_text(AGENTS)
    result = cli("run", "agents.py:talker", "Go", "--id", "talk")
    assert result.stdout == "Hi [31m  there\n\ttab\n"
    found = json.loads(cli("run", "agents.py:talker", "Go", "--id", "talk", "--json").stdout)
    assert found["message"]["content"] == [{"text": "Hi\x1b[31m\x07 there\n\ttab"}], "as a value, all of it"


def test_a_log_line_cannot_be_forged_and_holds_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    from strands_durable._records.logs import safe_logger

    logger = safe_logger("strands_durable.test")
    error = ValueError("no\n2026-01-01 | INFO | execution_id=<other> | completed\x1b[2J")
    with caplog.at_level(logging.INFO, logger="strands_durable"):
        logger.warning("execution_id=<%s>, error=<%s>, number=<%d> | failed", "a\nb", error, 3)
        logger.warning("error=<%r>", RuntimeError("postgresql://app:hunter2@db/x"))
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("execution_id=<a b>, error=<no 2026-01-01 | INFO")
    assert first.endswith("number=<3> | failed")
    assert "\n" not in first
    assert "hunter2" not in second
    assert caplog.records[0].msg == "execution_id=<%s>, error=<%s>, number=<%d> | failed", "handlers group by it"


def test_every_module_logs_through_the_logger_that_cannot_be_forged() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        if path.name != "logs.py":
            assert "logging.getLogger(__name__)" not in path.read_text(), f"{path}: use safe_logger"
