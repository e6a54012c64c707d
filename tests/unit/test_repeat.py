"""A campaign of `make test-repeat`, with something quick in place of `make test`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import repeat
from tests.repeat import Campaign

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
STAYS = "import subprocess, sys; subprocess.Popen(['sleep', '1000'], start_new_session=True)"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with one file."""
    folder = tmp_path / "source"
    (folder / "tests").mkdir(parents=True)
    (folder / "code.py").write_text("print('3 passed, 1 warning in 0.1s')")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    given = ["-c", "user.name=Me", "-c", "user.email=me@example.com"]
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    subprocess.run(["git", *given, "commit", "--quiet", "--message", "More"], cwd=folder, check=True)


def entries(source: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (source / repeat.LOG).read_text().splitlines()]


def running(source: Path, *command: str, **given: Any) -> Campaign:
    return Campaign(source=source, command=(sys.executable, *(command or ("code.py",))), **given)


def test_every_second_round_is_loaded_and_rounds_of_the_same_code_count_in_a_later_sitting(source: Path) -> None:
    assert running(source).run(1)
    commit(source)  # of the log alone
    assert running(source).run(2)
    found = entries(source)
    assert [(entry["round"], entry["loaded"], entry["outcome"], entry["passed"]) for entry in found] == [
        (1, False, "passed", 3), (2, True, "passed", 3),
    ]  # fmt: skip
    assert len({entry["code"] for entry in found}) == 1
    assert len({entry["commit"] for entry in found}) == 2
    assert running(source).run(2)
    assert len(entries(source)) == 2, "enough are on record"
    (source / "code.py").write_text("print('4 passed')")
    commit(source)
    assert running(source).good_rounds() == 0


def test_a_round_runs_what_is_committed_and_its_line_holds_no_path(source: Path) -> None:
    (source / "code.py").write_text("raise SystemExit(1)")
    assert running(source).run(1)
    assert str(source) not in (source / repeat.LOG).read_text()
    assert "/" not in (source / repeat.LOG).read_text()


def test_a_round_that_fails_ends_the_campaign_and_is_recorded(source: Path) -> None:
    code = "print('FAILED tests/test_it.py::test_it - no\\n2 failed, 5 passed'); raise SystemExit(1)"
    assert not running(source, "-c", code).run(3)
    (entry,) = entries(source)
    assert (entry["outcome"], entry["failed"], entry["passed"]) == ("failed", 2, 5)
    assert entry["failures"] == ["tests/test_it.py::test_it"]


def test_a_process_that_is_left_is_found_killed_and_recorded(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "_LINGER_SECONDS", 0.2)
    assert not running(source, "-c", STAYS).run(3)
    (entry,) = entries(source)
    assert (entry["outcome"], entry["left"]) == ("left processes", ["sleep"])


def test_a_round_that_hangs_is_ended_and_shows_where(
    source: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(repeat, "_STACK_SECONDS", 0.5)
    code = "import faulthandler, time; faulthandler.enable()\ndef hangs(): time.sleep(1000)\nhangs()"
    assert not running(source, "-c", code, limit_seconds=1).run(3)
    (entry,) = entries(source)
    assert (entry["outcome"], entry["left"]) == ("hung", [])
    assert "in hangs" in capfd.readouterr().out
