"""Lists, sums, health and doctor where a clock, a model or a file is not as it should be."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
from strands import Agent

from strands_durable import Durability, connect
from strands_durable._cli.health import Health, HealthServer, address_of
from strands_durable._records.listing import Cursor, Listing
from strands_durable._sqlite import calls
from strands_durable._sqlite.catalog import Catalog
from strands_durable.testing import ScriptedModel
from tests.unit.test_doctor import STORES, command, findings


def run(execution_id: str, model: ScriptedModel | None = None) -> None:
    plugin = Durability("runs.db", execution_id=execution_id)
    Agent(model=model or ScriptedModel(["Hi."]), plugins=[plugin], callback_handler=None)("Go")


def test_pages_end_though_a_clock_was_set_back_between_a_step_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        run(f"before-{number}")

    class SetBack:
        """The clock an hour ago."""

        @staticmethod
        def time() -> float:
            return time.time() - 3600

    monkeypatch.setattr(calls, "time", SetBack)
    run("after")
    backend, seen, cursor = connect("sqlite:///runs.db?worker=off").sync, [], None
    while (page := backend.list(limit=1, before=cursor)) and len(seen) < 10:
        seen.append(page[0].execution_id)
        cursor = page[0].cursor
    assert seen == ["before-2", "before-1", "before-0", "after"]
    assert [each.execution_id for each in Catalog("runs.db").executions()] == seen
    assert [each.execution_id for each in Catalog("runs.db").executions(Listing(search="a", limit=5))] == ["after"]


class Reporting(ScriptedModel):
    """A model that reports its usage as it likes."""

    usage: Any = None

    async def stream(self, *args: Any, **given: Any) -> AsyncIterator[Any]:
        async for event in super().stream(*args, **given):
            yield {"metadata": {**event["metadata"], "usage": self.usage}} if "metadata" in event else event


@pytest.mark.parametrize("tokens", [None, "3"])
def test_a_model_that_reports_no_numbers_is_no_damage(tokens: Any) -> None:
    model = Reporting(["Hi."])
    model.usage = {"inputTokens": tokens, "outputTokens": 2, "totalTokens": 2}
    with pytest.raises(Exception, match="unsupported operand"):  # Strands itself adds them up
        run("trip", model)
    (found,) = Catalog("runs.db").executions()
    assert found.unreadable is None
    assert found.tokens is not None
    assert (found.tokens.input, found.tokens.output) == (0, 2)


def test_doctor_names_a_file_that_was_cut_off() -> None:
    Path("runs.db").write_bytes((STORES / "format_7.sqlite").read_bytes()[:100_000])
    before = Path("runs.db").read_bytes()
    (found,) = findings("--backend", "runs.db", code=1)["format"]
    assert "damaged" in found["text"]
    assert Path("runs.db").read_bytes() == before
    assert "Error" not in command("doctor", "--backend", "runs.db").stderr


def test_health_is_answered_on_an_ipv6_address_and_a_wrong_one_is_named() -> None:
    context = click.Context(click.Command("worker"))
    address = address_of(context, click.Option(["--health"]), "[::1]:0")
    assert address == ("::1", 0)
    server = HealthServer(address, Health())
    assert server.port > 0
    server.close()
    with pytest.raises(click.ClickException, match="Choose another address or port"):
        HealthServer(("no-such-host.invalid", 0), Health())


@pytest.mark.parametrize(
    "forged", ["1e999@x", f"{'9' * 400}@x", "1e12@x", "\u0661@x", "nan@x", "inf@x", "-1@x", "1@", "@x", ""]
)
def test_a_cursor_that_no_list_has_given_is_refused_on_every_engine(forged: str) -> None:
    with pytest.raises(ValueError, match="is not a cursor"):
        Cursor.of(forged)
