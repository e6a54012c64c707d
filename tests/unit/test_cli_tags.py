"""Tags, sums and pages on the command line, and tags of inline runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from strands import Agent

from strands_durable import Durability, connect, errors
from strands_durable.testing import ScriptedModel, forget_process
from tests.commands import AGENTS, cli
from tests.unit.test_cli_listed import filled

STORE = ("--store", "runs.db")


def inline(execution_id: str, **tags: str) -> Agent:
    plugin = Durability("runs.db", execution_id=execution_id, tags=tags)
    return Agent(model=ScriptedModel(["Hello."]), plugins=[plugin], callback_handler=None)


def listed(*args: str) -> list[str]:
    return [found["execution_id"] for found in json.loads(cli("ls", "--json", *STORE, *args).stdout)]


def test_an_inline_run_has_the_tags_that_it_began_with() -> None:
    inline("one", tenant="acme", team="blue")("Hi")
    inline("two", tenant="acme")("Hi")
    inline("three")("Hi")
    forget_process()
    inline("one", tenant="other")("Hi")
    assert listed("--tag", "tenant=acme") == ["two", "one"]
    assert listed("--tag", "tenant=acme", "--tag", "team=blue") == ["one"]
    assert listed("--tag", "tenant=other") == []
    header, _, *rows = cli("ls", *STORE).stdout.splitlines()
    assert header.split() == ["ID", "AGENT", "STATUS", "STEPS", "TOKENS", "TOOK", "TAGS", "OWNER", "UPDATED"]
    assert "team=blue tenant=acme" in rows[2]
    with pytest.raises(errors.InvalidTagError, match="'no name' is not a valid tag"):
        inline("four", **{"no name": "x"})


def test_show_prints_tags_tokens_and_time() -> None:
    inline("one", tenant="acme")("Hi")
    lines = cli("show", "one", *STORE).stdout.splitlines()
    assert "tags    tenant=acme" in lines
    assert "tokens  15 (10 input, 5 output)" in lines
    assert any(line.startswith("took    0.") and line.endswith(" s") for line in lines)
    execution = json.loads(cli("show", "one", "--json", *STORE).stdout)["execution"]
    assert execution["tags"] == {"tenant": "acme"}
    assert execution["tokens"] == {"input": 10, "output": 5, "total": 15}
    assert execution["duration_seconds"] > 0


def test_run_records_tags_and_a_second_run_keeps_them() -> None:
    for tenant in ("acme", "other"):
        run = cli(
            "run", f"{AGENTS}:planner", "Go", "--id", "trip", "--tag", f"tenant={tenant}", "--tag", "x=1=2", *STORE
        )
        assert run.exit_code == 0, run.output
    (found,) = json.loads(cli("ls", "--json", *STORE).stdout)
    assert found["tags"] == {"tenant": "acme", "x": "1=2"}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--tag", "tenant"], "has no value. Use NAME=VALUE."),
        (["--tag", "a=1", "--tag", "a=2"], "'a' has two values."),
        (["--tag", "a b=1"], "'a b' is not a valid tag: a name has 1 to 63 letters"),
        (["--before", "yesterday"], "is not a cursor. Use the one that an earlier ls printed."),
        (["--before", "1000.0@run", "--waiting"], "cannot be combined with --waiting."),
    ],
)
def test_a_wrong_filter_is_a_usage_error(args: list[str], why: str) -> None:
    result = cli("ls", *STORE, *args)
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())


def test_pages_are_listed_one_after_the_other_by_the_command_that_a_page_prints() -> None:
    filled(12)
    first = cli("ls", "--limit", "5", "--search", "run-0000", *STORE)
    assert first.stderr.endswith("--before 1008.0@run-000008 to continue.\n")
    assert listed("--limit", "5", "--before", "1008.0@run-000008") == [f"run-{n:06d}" for n in range(7, 2, -1)]
    assert listed("--search", "run-00001", "--limit", "5") == ["run-000012", "run-000011", "run-000010"]
    assert cli("ls", "--tag", "no=thing", *STORE).stdout == "No matching executions.\n"


def test_what_waits_is_filtered_by_tag_and_search() -> None:
    for name, tenant in (("one", "acme"), ("two", "other")):
        cli("run", f"{AGENTS}:waiter", "Go", "--id", name, "--detach", "--tag", f"tenant={tenant}", *STORE)
    assert listed("--waiting", "--tag", "tenant=acme") == ["one"]
    assert listed("--waiting", "--search", "tw") == ["two"]


def test_a_removed_execution_leaves_no_tag_behind() -> None:
    inline("one", tenant="acme")("Hi")
    asyncio.run(connect("sqlite:///runs.db?worker=off").remove("one"))
    inline("two")("Hi")
    assert listed("--tag", "tenant=acme") == []
    found: Any = cli("ls", "--json", *STORE).stdout
    assert json.loads(found)[0]["tags"] == {}


def test_questions_are_found_from_sync_code() -> None:
    cli("run", f"{AGENTS}:asker", "Go", "--id", "asker", *STORE)
    (found,) = connect("sqlite:///runs.db?worker=off").sync.questions()
    assert (found.execution_id, found.agent, found.question.name) == ("asker", "asker", "approval")
    assert connect("sqlite:///none.db?worker=off").sync.questions() == []
