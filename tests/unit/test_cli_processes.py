"""The command line in processes of its own, with signals and on terminals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strands_durable._sqlite.catalog import Catalog
from tests.commands import AGENTS, Terminal, cli, start
from tests.waiting import until

STORE = ".strands/durable.db"


def dispatch(agent: str, execution_id: str = "trip") -> None:
    assert cli("run", f"{AGENTS}:{agent}", "Go", "--id", execution_id, "--detach").exit_code == 0


def status(execution_id: str = "trip") -> str:
    return Catalog(STORE).execution(execution_id).execution.status.value


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_worker_carries_executions_and_says_so() -> None:
    for number in range(3):
        dispatch("planner", f"trip-{number}")
    worker = start("worker", AGENTS, "--concurrency", "2")
    until(lambda: all(status(f"trip-{number}") == "COMPLETED" for number in range(3)))
    worker.send_signal(signal.SIGINT)
    code, out, err = ended(worker)
    assert code == 0
    first, *others = out.splitlines()
    assert first.startswith(f"Worker {worker.pid} on sqlite:///{STORE}: asker, broken, hasty, killer, planner, ")
    assert first.endswith("; 2 at a time. Press Ctrl-C to stop.")
    assert others == ["booking Paris"] * 3
    assert "execution_id=<trip-0>, agent=<planner>, alone=<False> | claimed" in err
    assert "Stopping. Press Ctrl-C again to stop at once." in err


def test_sigterm_lets_the_running_step_end_and_leaves_the_rest_to_others() -> None:
    dispatch("waiter")
    worker = start("worker", AGENTS, "--quiet")
    until(Path("waiting").exists)
    worker.send_signal(signal.SIGTERM)
    Path("go").touch()
    assert ended(worker) == (0, "", "")
    detail = Catalog(STORE).execution("trip")
    assert (detail.execution.status.value, detail.execution.owner) == ("RUNNING", None)
    assert [(step.label, step.state) for step in detail.steps][:2] == [("model 1", "done"), ("1.0 wait_for", "done")]
    assert "a worker runs it" in cli("show", "trip").stdout
    assert cli("run", f"{AGENTS}:waiter", "--id", "trip").stdout == "Done.\n"
    assert [step.attempt for step in Catalog(STORE).execution("trip").steps] == [1] * 5


def test_a_tool_that_does_not_end_cannot_keep_a_worker() -> None:
    dispatch("waiter")
    worker = start("worker", AGENTS, "--drain-seconds", "0.1")
    until(Path("waiting").exists)
    worker.send_signal(signal.SIGTERM)
    code, _, err = ended(worker)
    assert code == 0
    assert "what is still running is left, a step in doubt" in err
    assert Catalog(STORE).execution("trip").steps[-1].state == "in doubt"


def test_a_tool_whose_time_was_over_cannot_keep_a_worker_either() -> None:
    dispatch("hasty")
    worker = start("worker", AGENTS, "--quiet")
    until(lambda: status() in ("COMPLETED", "FAILED"))
    worker.send_signal(signal.SIGTERM)
    assert ended(worker)[0] == 0


def test_a_quiet_worker_still_logs_a_run_that_failed() -> None:
    dispatch("broken")
    worker = start("worker", AGENTS, "--quiet")
    until(lambda: status() == "FAILED")
    worker.send_signal(signal.SIGTERM)
    code, _, err = ended(worker)
    assert code == 0
    assert "| ERROR |" in err
    assert "execution_id=<trip>, error=<" in err
    assert "claimed" not in err


def test_a_second_interrupt_ends_a_worker_at_once() -> None:
    dispatch("waiter")
    worker = start("worker", AGENTS)
    until(Path("waiting").exists)
    worker.send_signal(signal.SIGINT)
    assert worker.stderr is not None
    until(lambda: "Ctrl-C again" in str(worker.stderr and worker.stderr.readline()))
    worker.send_signal(signal.SIGINT)
    assert ended(worker)[0] == -signal.SIGINT


def test_what_killed_a_worker_is_tried_in_a_process_beside_the_next_one() -> None:
    dispatch("killer")
    assert ended(start("worker", AGENTS))[0] == -signal.SIGKILL
    worker = start("worker", AGENTS)
    until(lambda: status() == "COMPLETED")
    worker.send_signal(signal.SIGTERM)
    code, _, err = ended(worker)
    assert code == 0
    assert "running alone what may have killed a worker" in err
    assert "execution_id=<trip>, agent=<killer>, alone=<True> | claimed" in err
    assert "has not ended" not in err, "to wait for that process is no tool"
    assert f"alive as {worker.pid}" not in cli("watch", "trip").stdout


def test_a_worker_without_agents_or_with_a_broken_file_ends_with_one_line() -> None:
    Path("agents.py").write_text("x = 1\nx.y")
    Path("empty.py").touch()
    for file, text in (
        ("agents.py", "agents.py:2: AttributeError: "),
        ("empty.py", "empty.py: it defines no agent"),
    ):
        result = cli("worker", file)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert text in result.stderr
    assert cli("worker").exit_code == 2
    assert not Path(".strands").exists()


def test_a_worker_does_not_guess_between_backends() -> None:
    head = "from strands import Agent\nfrom strands_durable import durable_agent\n"
    agent = '@durable_agent(durable_backend="sqlite:///{0}.db")\ndef {0}() -> Agent:\n    return Agent()\n'
    Path("agents.py").write_text(head + agent.format("one") + agent.format("two"))
    result = cli("worker", "agents.py")
    assert result.exit_code == 2
    assert "different backends (sqlite:///one.db, sqlite:///two.db). Choose one with --backend" in result.stderr


def test_run_gives_up_waiting_in_time_though_a_tool_does_not_end() -> None:
    code, out, err = ended(start("run", f"{AGENTS}:waiter", "Go", "--id", "trip", "--timeout", "0.3", "--json"))
    assert code == 7
    assert json.loads(out)["status"] == "RUNNING"
    assert f"A worker can continue it, or resume it with: strands-durable run {AGENTS}:waiter --id trip" in err
    Path("go").touch()
    assert cli("run", f"{AGENTS}:waiter", "--id", "trip").stdout == "Done.\n"


def test_on_a_terminal_run_prints_steps_asks_and_continues() -> None:
    terminal = Terminal("run", f"{AGENTS}:asker", "Go", "--id", "trip")
    terminal.read_until('approval: {"what": "trip"}\nAnswer: ')
    terminal.type("of course\n")
    assert terminal.end() == 0
    lines = terminal.seen.splitlines()
    assert lines[0] == "Execution trip"
    assert lines[-1] == "Approved."
    assert [line.split()[0] for line in lines if "model" in line] == ["1", "4"]
    assert "trip: of course" in terminal.seen


def test_on_a_terminal_a_question_may_be_left_open() -> None:
    terminal = Terminal("run", f"{AGENTS}:asker", "Go", "--id", "trip")
    terminal.read_until("Answer: ")
    terminal.type("\x04")
    assert terminal.end() == 5
    assert "Answer: strands-durable respond trip\n" in terminal.seen


@pytest.mark.parametrize(("typed", "recorded"), [("yes", "yes"), ('{"go": [1]}', "{'go': [1]}"), ("NaN", "NaN")])
def test_respond_asks_on_a_terminal_and_takes_json_as_json(typed: str, recorded: str) -> None:
    assert cli("run", f"{AGENTS}:asker", "Go", "--id", "trip").exit_code == 5
    terminal = Terminal("respond", "trip")
    terminal.read_until('approval: {"what": "trip"}\nAnswer: ')
    terminal.type(f"{typed}\n")
    assert terminal.end() == 0
    assert "Answer recorded. Next: a worker runs it" in terminal.seen
    assert cli("run", f"{AGENTS}:asker", "--id", "trip").stdout == "Approved.\n"
    assert f"trip: {recorded}" in cli("watch", "trip").stdout


def test_rm_asks_on_a_terminal() -> None:
    cli("run", f"{AGENTS}:planner", "Go", "--id", "trip")
    for typed, code in (("n", 1), ("y", 0)):
        terminal = Terminal("rm", "trip")
        question = "Remove this execution and everything recorded? This cannot be undone [y/N]: "
        terminal.read_until(question)
        assert "COMPLETED" in terminal.seen
        terminal.type(f"{typed}\n")
        assert terminal.end() == code
    assert Catalog(STORE).executions() == []


def test_watch_follows_a_worker_and_ctrl_c_stops_only_watching() -> None:
    dispatch("waiter")
    terminal = Terminal("watch", "trip")
    terminal.read_until(
        "No process is running it now. Next: a worker runs it; if none is running, start one with strands-durable worker FILE\n"
    )
    worker = start("worker", AGENTS, "--quiet")
    terminal.read_until("model 1")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "To continue watching: strands-durable watch trip --after 1" in terminal.seen
    follower = start("watch", "trip", "--after", "1")
    Path("go").touch()
    code, out, _ = ended(follower)
    assert (code, out.splitlines()[-1]) == (0, "trip is COMPLETED.")
    assert out.splitlines()[0].split()[:2] == ["2", "1.0"]
    worker.send_signal(signal.SIGTERM)
    assert ended(worker)[0] == 0


def test_ctrl_c_stops_a_run_which_resumes_with_its_id() -> None:
    terminal = Terminal("run", f"{AGENTS}:waiter", "Go", "--id", "trip")
    terminal.read_until("model 1")
    until(Path("waiting").exists)
    terminal.type("\x03")
    assert terminal.end() == 130
    assert f"Stopped. To resume: strands-durable run {AGENTS}:waiter --id trip\n" in terminal.seen
    Path("go").touch()
    assert cli("run", f"{AGENTS}:waiter", "--id", "trip").exit_code == 0


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "strands_durable", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.startswith("Usage: strands-durable [OPTIONS] COMMAND")
