"""strands-durable fork: what it prints, what it records, and what an editor makes of a conversation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import AGENTS, cli

EDITOR = """
import json, sys
path = sys.argv[1]
found = json.load(open(path))
open("seen.json", "w").write(json.dumps(found))
{change}
json.dump(found, open(path, "w"))
"""


@pytest.fixture(autouse=True)
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDS_DURABLE_BACKEND", f"sqlite:///{tmp_path}/runs.db")
    assert cli("run", f"{AGENTS}:planner", "Go", "--id", "trip").exit_code == 0


def edit_with(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Let the editor be a program that changes what it finds."""
    Path("editor.py").write_text(EDITOR.format(change=change))
    monkeypatch.setenv("VISUAL", f"{sys.executable} {Path('editor.py').absolute()}")


def shown(execution_id: str) -> Any:
    return json.loads(cli("show", execution_id, "--json").stdout)


def test_a_fork_is_recorded_and_says_what_comes_next() -> None:
    result = cli("fork", "trip", "--at", "1", "--id", "again")
    assert result.stdout.startswith("Forked trip at step 1 as again. Next: a worker runs it")
    found = shown("again")["execution"]
    assert (found["status"], found["origin"]["execution_id"], found["origin"]["step"]) == ("PENDING", "trip", 1)
    assert "forked  from trip at step 1, by " in cli("show", "again").stdout
    assert cli("run", f"{AGENTS}:planner", "Go", "--id", "again").exit_code == 0
    steps = [len(call["steps"]) for call in shown("again")["calls"]]
    assert steps == [len(call["steps"]) for call in shown("trip")["calls"]]


def test_a_fork_as_json_is_the_execution_as_in_a_list() -> None:
    found = json.loads(cli("fork", "trip", "--at", "1", "--json").stdout)
    assert found["execution_id"].startswith("trip-fork-")
    assert found == next(each for each in json.loads(cli("ls", "--json").stdout) if each["origin"])


def test_a_fork_that_makes_no_sense_is_an_error_in_one_line() -> None:
    result = cli("fork", "trip", "--at", "99")
    assert result.exit_code == 1
    assert "was not forked: it has no finished step 99. Finished steps: 1 to " in result.stderr
    assert cli("fork", "trip", "--id", "trip").exit_code == 1
    assert cli("fork", "nothing").exit_code == 3
    assert cli("fork", "trip", "--at", "-1").exit_code == 2


def test_an_editor_changes_the_state_and_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    edit_with(monkeypatch, "found['state']['mood'] = 'calm'; found['messages'] = found['messages'][:1]")
    assert cli("fork", "trip", "--at", "1", "--id", "again", "--edit").exit_code == 0
    seen = json.loads(Path("seen.json").read_text())
    assert seen["messages"][0]["content"] == [{"text": "Go"}]
    assert shown("again")["execution"]["origin"]["changed"] == ["state", "messages"]


def test_what_an_editor_leaves_as_it_is_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    edit_with(monkeypatch, "")
    assert cli("fork", "trip", "--at", "1", "--id", "again", "--edit").exit_code == 0
    assert shown("again")["execution"]["origin"]["changed"] == []


def test_what_is_no_json_after_editing_forks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    edit_with(monkeypatch, "found = 'nonsense'")
    result = cli("fork", "trip", "--at", "1", "--id", "again", "--edit")
    assert (result.exit_code, "Nothing was forked" in result.stderr) == (2, True)
    assert cli("show", "again").exit_code == 3


USER = '{"role": "user", "content": [{"text": "x"}]}'
WRITTEN: dict[str, bytes | None] = {
    "a deleted file": None,
    "nothing": b"",
    "another encoding": b'{"messages": [], "state": {"a": "\xe9"}}',
    "a list": b"[]",
    "null": b'{"messages": null, "state": null}',
    "numbers": b'{"messages": 5, "state": 5}',
    "an object of messages": b'{"messages": {"a": 1}, "state": {}}',
    "a list of pairs": f'{{"messages": [{USER}], "state": [["a", 1]]}}'.encode(),
    "a text": f'{{"messages": [{USER}], "state": "ab"}}'.encode(),
    "no number": f'{{"messages": [{USER}], "state": {{"a": NaN}}}}'.encode(),
    "an unknown type": f'{{"messages": [{USER}], "state": {{"a": {{"$": "zzz", "v": 1}}}}}}'.encode(),
    "another type": f'{{"messages": [{USER}], "state": {{"$": "bytes", "v": "aGk="}}}}'.encode(),
    "deep nesting": f'{{"messages": [{USER}], "state": {{"a": {"[" * 3000}{"]" * 3000}}}}}'.encode(),
    "nesting that cannot be recorded": f'{{"messages": [{USER}], "state": {{"a": {"[" * 300}{"]" * 300}}}}}'.encode(),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_what_an_editor_cannot_mean_is_one_error_of_usage(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = WRITTEN[what]
    change = "import os; os.remove(path)" if written is None else f"open(path, 'wb').write({written!r})"
    Path("editor.py").write_text(f"import sys\npath = sys.argv[1]\n{change}\n")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {Path('editor.py').absolute()}")
    result = cli("fork", "trip", "--at", "1", "--id", "again", "--edit")
    assert (result.exit_code, result.stderr.count("Error: ")) == (2, 1)
    assert "This is not a JSON object with messages and state" in result.stderr
    assert cli("show", "again").exit_code == 3
