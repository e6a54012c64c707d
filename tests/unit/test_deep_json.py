"""JSON that is nested deeply: recorded and shown as far as there is a form for it, refused with an error of ours beyond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Durability, errors
from strands_durable._records.codec import decode, decode_all, peek
from strands_durable.testing import ScriptedModel, call
from tests.commands import cli

BRACKETS, OPEN, NESTED = "[" * 1_000, '{"a":' * 1_000, '{"a":[' * 450 + '{"password": "hunter2"}' + "]}" * 450


def nested(depth: int) -> Any:
    found: Any = 1
    for index in range(depth):
        found = [found] if index % 2 else {"a": found}
    return found


@tool
def take(value: Any) -> str:
    """Take a value."""
    return "taken"


@tool
def give(depth: int) -> dict[str, Any]:
    """Return a value."""
    return {"status": "success", "content": [{"json": nested(depth)}]}


@tool
def repeat(text: str) -> str:
    """Return a text."""
    return text


@tool
def refuse(text: str) -> str:
    """Fail with a text."""
    raise ValueError(text)


@tool(context=True)
def ask(reason: Any, tool_context: ToolContext) -> str:
    """Ask a person."""
    return str(tool_context.interrupt("question", reason=reason))


def run(execution_id: str, *script: Any, prompt: str = BRACKETS) -> Any:
    plugin = Durability("runs.db", execution_id=execution_id)
    tools = [take, give, repeat, refuse, ask]
    return Agent(model=ScriptedModel(list(script)), tools=tools, plugins=[plugin], callback_handler=None)(prompt)


def succeeds(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    result = cli(*arguments, "--backend", "runs.db")
    assert result.exit_code in codes, (arguments, result.output[-400:], result.stderr[-400:])
    assert "hunter2" not in result.output
    return result.output


def test_every_command_shows_what_is_nested_deeply() -> None:
    texts = [
        each for text in (BRACKETS, OPEN, NESTED) for each in (call("repeat", text=text), call("refuse", text=text))
    ]
    run("deep", call("take", value=nested(180)), call("give", depth=185), *texts, BRACKETS)
    run("asks", call("ask", reason=[BRACKETS, NESTED, nested(150)]), "Done.")
    for name, codes in (("deep", (0,)), ("asks", (0, 5))):
        for more in ((), ("--full",), ("--json",)):
            succeeds("show", name, *more)
        for more in ((), ("--json",)):
            succeeds("watch", name, *more, codes=codes)
        succeeds("export", name, "--to", f"{name}.json")
        succeeds("import", f"{name}.json", "--id", f"{name}-2")
    for command in (("ls",), ("ls", "--json"), ("ls", "--waiting"), ("ls", "--waiting", "--json"), ("verify",)):
        succeeds(*command)
    succeeds("fork", "deep", "--at", "2", "--id", "deep-3")


@pytest.mark.parametrize("answer", [BRACKETS, OPEN, "[" * 100_000, json.dumps(nested(300)), "[" * 900 + "]" * 900])
def test_an_answer_that_is_nested_too_deeply_is_refused_or_a_text(answer: str) -> None:
    run("asks", call("ask", reason="Which?"), "Done.")
    result = cli("respond", "asks", "--answer", answer, "--backend", "runs.db")
    assert result.exit_code != 0
    assert "RecursionError" not in result.output + result.stderr
    succeeds("respond", "asks", "--answer", '"yes"')


def test_what_is_too_deep_to_be_recorded_is_refused_when_it_arrives_and_by_name() -> None:
    for name, script in (("input", call("take", value=nested(300))), ("result", call("give", depth=300))):
        for _ in range(1 if name == "result" else 2):
            with pytest.raises(errors.NotSerializableError) as refused:
                run(name, script, "Done.")
            assert "nested deeper than 200 levels" in str(refused.value)
            assert len(str(refused.value)) < 1_000
        succeeds("show", name, "--full")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"$":"tuple","v":[' * 5_000, "[" * 5_000 + "]" * 5_000])
def test_a_stored_value_that_no_one_can_read_is_damage(text: str) -> None:
    for read in (decode, peek, lambda given: decode_all(["1", given])):
        with pytest.raises(errors.UnreadableError):
            read(text)


def test_a_file_that_is_nested_too_deeply_is_no_export() -> None:
    for text in ("[" * 100_000, "[" * 900 + "]" * 900, '{"strands_durable_export":' * 2_000):
        Path("x.json").write_text(text)
        result = cli("import", "x.json", "--backend", "runs.db")
        assert result.exit_code == 1
        assert "cannot be used as an export" in result.stderr
