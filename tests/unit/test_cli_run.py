"""Running agents from files on the command line: what is printed where, exit codes, and files that are wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.commands import AGENTS, cli

PLANNER = f"{AGENTS}:planner"
ONE = """
from strands import Agent
from strands_durable import durable_agent
from strands_durable.testing import ScriptedModel

@durable_agent
def greeter() -> Agent:
    return Agent(model=ScriptedModel(["Hello."]))
"""


def test_stdout_is_the_result_alone_and_what_agents_print_is_on_stderr() -> None:
    result = cli("run", PLANNER, "Plan", "--backend", "runs.db")
    assert (result.exit_code, result.stdout) == (0, "Your trip to Paris is booked.\n")
    assert result.stderr == "booking Paris\n"


def test_the_same_id_returns_what_is_recorded_with_or_without_the_prompt() -> None:
    for prompt in (["Plan"], ["Plan"], []):
        result = cli("run", PLANNER, *prompt, "--id", "trip", "--backend", "runs.db")
        assert (result.exit_code, result.stdout) == (0, "Your trip to Paris is booked.\n")
    other = cli("run", PLANNER, "Another", "--id", "trip", "--backend", "runs.db")
    assert other.exit_code == 1
    assert "was recorded with" in other.stderr
    assert cli("run", PLANNER, "--id", "nobody", "--backend", "runs.db").exit_code == 3


def test_a_prompt_comes_from_standard_input() -> None:
    assert cli("run", PLANNER, "-", "--id", "trip", "--backend", "runs.db", given="Plan it").exit_code == 0
    assert "input   Plan it" in cli("show", "trip", "--backend", "runs.db").stdout


def test_arguments_of_the_factory_and_the_state_are_json() -> None:
    assert cli("run", PLANNER, "Plan", "--arg", 'city="Rome"').stdout == "Your trip to Rome is booked.\n"
    state = ("--state", '{"season": "winter"}', "--id", "seasonal")
    assert cli("run", f"{AGENTS}:seasonal", "When?", *state).exit_code == 0
    assert "winter" in cli("watch", "seasonal").stdout


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("Plan", "--arg", "city=Rome"), "city: 'Rome' is not JSON. To pass it as text, write '\"Rome\"'."),
        (("Plan", "--arg", "city"), "'city' has no value"),
        (("Plan", "--state", "[]"), "'[]' is not a JSON object"),
        (("Plan", "--state", "NaN"), "'NaN' is not a JSON object"),
        ((), "Pass a PROMPT to start an execution, or --id to resume one."),
    ],
)
def test_wrong_usage_of_run_says_what_to_write(args: tuple[str, ...], text: str) -> None:
    result = cli("run", PLANNER, *args)
    assert result.exit_code == 2
    assert text in result.stderr


def test_an_argument_that_the_factory_does_not_take_is_one_line() -> None:
    result = cli("run", PLANNER, "Plan", "--arg", "town=1")
    assert result.exit_code == 1
    assert "planner() got an unexpected keyword argument 'town'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_result_as_json() -> None:
    found = json.loads(cli("run", PLANNER, "Plan", "--id", "trip", "--json").stdout)
    assert (found["execution_id"], found["status"], found["stop_reason"]) == ("trip", "COMPLETED", "end_turn")
    assert found["message"]["content"] == [{"text": "Your trip to Paris is booked."}]
    assert found["usage"]["totalTokens"] == 30


def test_a_failed_run_is_exit_code_4_until_it_is_resumed() -> None:
    for _ in range(2):
        result = cli("run", f"{AGENTS}:broken", "Go", "--id", "trip", "--json")
        assert result.exit_code == 4
        assert "failed: EventLoopException: The model was asked for turn 1" in result.stderr.splitlines()[-1]
    assert "booking" not in result.stderr
    again = cli("run", f"{AGENTS}:broken", "--id", "trip", "--json")
    found = json.loads(again.stdout)
    assert (found["execution_id"], found["status"], again.exit_code) == ("trip", "FAILED", 4)


def test_a_cancelled_run_is_exit_code_6() -> None:
    assert cli("run", PLANNER, "Plan", "--id", "trip", "--detach").stdout == "trip\n"
    assert cli("cancel", "trip").stdout == "trip is CANCELLED.\n"
    for prompt in (["Plan"], []):
        assert cli("run", PLANNER, *prompt, "--id", "trip").exit_code == 6


def test_without_a_terminal_questions_are_printed_with_the_commands_to_resume() -> None:
    asker = f"{AGENTS}:asker"
    result = cli("run", asker, "Ask", "--id", "trip", "--backend", "runs.db")
    assert (result.exit_code, result.stdout) == (5, "")
    assert 'approval: {"what": "trip"}' in result.stderr
    assert "Answer: strands-durable respond trip --backend runs.db\n" in result.stderr
    assert f"Resume: strands-durable run {asker} --id trip --backend runs.db\n" in result.stderr
    assert cli("respond", "trip", "--answer", '"yes"', "--backend", "runs.db").exit_code == 0
    assert cli("run", asker, "--id", "trip", "--backend", "runs.db").stdout == "Approved.\n"
    asked = json.loads(cli("run", asker, "Ask", "--json").stdout)
    assert (asked["status"], asked["interrupts"][0]["name"]) == ("SUSPENDED", "approval")


def test_detach_leaves_the_run_to_a_worker() -> None:
    result = cli("run", PLANNER, "Plan", "--detach", "--json", "--backend", "runs.db")
    found = json.loads(result.stdout)
    assert found["status"] == "PENDING"
    text = cli("show", found["execution_id"], "--backend", "runs.db").stdout
    assert "agent   planner (dispatched)\nstatus  PENDING\n" in text
    assert (
        "next    a worker runs it; if none is running, start one with strands-durable worker FILE --backend runs.db\n"
        in text
    )
    assert cli("ls", "--agent", "planner", "--status", "pending", "--backend", "runs.db").stdout.count("PENDING") == 1


def test_run_leaves_the_executions_of_others_alone() -> None:
    cli("run", f"{AGENTS}:waiter", "Wait", "--id", "foreign", "--detach")
    assert cli("run", PLANNER, "Plan").exit_code == 0
    assert not Path("waiting").exists()
    assert json.loads(cli("show", "foreign", "--json").stdout)["execution"]["status"] == "PENDING"


def test_a_backend_on_the_command_line_wins_over_that_of_the_agent_which_wins_over_the_environment() -> None:
    Path("agents.py").write_text(ONE.replace("@durable_agent", '@durable_agent(durable_backend="sqlite:///its.db")'))
    cli("run", "agents.py", "Hi", env={"STRANDS_DURABLE_BACKEND": "sqlite:///environment.db"})
    assert Path("its.db").exists()
    cli("run", "agents.py", "Hi", "--backend", "said.db")
    assert Path("said.db").exists()
    assert not Path("environment.db").exists()


# Files


def test_a_file_with_one_agent_needs_no_name_and_a_module_is_found_from_here() -> None:
    os.makedirs("package")
    Path("package/__init__.py").touch()
    Path("package/agents.py").write_text(ONE)
    for target in ("package/agents.py", "package/agents.py:greeter", "package.agents:greeter"):
        assert cli("run", target, "Hi").stdout == "Hello.\n"


def test_a_file_finds_its_neighbours() -> None:
    os.makedirs("there")
    Path("there/names.py").write_text("NAME = 'Ann'")
    Path("there/agents.py").write_text(
        ONE.replace("\n@dur", "from names import NAME\n\n@dur").replace('"Hello."', "NAME")
    )
    assert cli("run", "there/agents.py", "Hi").stdout == "Ann\n"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import nothing_of_that_name", "agents.py:1: ModuleNotFoundError: No module named 'nothing_of_that_name'. Is it"),
        ("x = 1\ndef f(:\n  pass", "agents.py:2: SyntaxError: invalid syntax."),
        ("x = 1\n\nx / 0", "agents.py:3: ZeroDivisionError: division by zero."),
        ("import sys\nsys.exit(3)", "agents.py:2: importing it exited the process with 3. Put code"),
        ("from .names import NAME", "agents.py:1: ImportError: attempted relative import with no known parent package. A file"),
        ("x = 1", "agents.py: it defines no agent. Put @durable_agent on"),
        (ONE + ONE.replace("greeter", "other"), "agents.py: it defines 2 agents. Name one of them: agents.py:greeter"),
        (ONE + "odd = durable_agent(lambda: 1)", "agents.py:9: '<lambda>' is not"),
    ],
    ids=["import", "syntax", "error", "exit", "relative", "empty", "several", "name"],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_line_that_names_its_line(code: str, text: str) -> None:
    Path("agents.py").write_text(code)
    result = cli("run", "agents.py", "Hi")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    assert not Path(".strands").exists()


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones() -> None:
    assert "the file does not exist" in cli("run", "nowhere.py:agent", "Hi").stderr
    assert "No module named 'nowhere'" in cli("run", "nowhere:agent", "Hi").stderr
    assert "it defines no agent 'nobody' (registered: asker, broken," in cli("run", f"{AGENTS}:nobody", "Hi").stderr
    assert "'book' is a DecoratedFunctionTool, not a durable agent" in cli("run", f"{AGENTS}:book", "Hi").stderr


def test_an_error_of_the_factory_is_one_line_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    result = cli("run", f"{AGENTS}:unbuilt", "Hi")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: LookupError: no model is configured (")
    assert "travel.py:" in result.stderr
    assert result.stderr.count("\n") == 1
    monkeypatch.setenv("STRANDS_DURABLE_TRACEBACK", "1")
    assert isinstance(cli("run", f"{AGENTS}:unbuilt", "Hi").exception, LookupError)
