"""Types of users on Temporal: a worker that has not registered one leaves the execution, and runs the others."""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import Any

import pytest

from strands_durable import ExecutionStatus, register_type
from strands_durable._records import registered_types
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing.temporal import TemporalServer
from tests.temporal import agents
from tests.temporal.running import url_of, working
from tests.waiting import until_async


class Tint(Enum):
    RED = 1


def forget() -> None:
    found = registered_types.by_class.pop(Tint, None)
    if found is not None:
        del registered_types._by_name[found.name]


def test_c26_a_worker_that_has_not_registered_a_type_leaves_the_execution_to_one_that_has(
    temporal: TemporalServer, caplog: pytest.LogCaptureFixture
) -> None:
    url, spec = url_of(temporal), agents.cycler.spec_with(cycles=1)

    async def main() -> None:
        backend = TemporalBackend(url)
        register_type(Tint)
        given: dict[str, Any] = {"tint": Tint.RED}
        tinted = await backend.dispatch(spec, "Go", execution_id="tinted", invocation_state=given)
        forget()
        with working(url):
            plain = await backend.dispatch(spec, "Go", execution_id="plain")
            assert str(await plain.result(60)) == "Done.\n"
            await until_async(is_named)
            assert await tinted.status() in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)
            register_type(Tint)
            assert str(await tinted.result(60)) == "Done.\n"

    async def is_named() -> bool:
        return "left unclaimed: it cannot be read here: it has a value of type 'Tint'" in caplog.text

    try:
        with caplog.at_level(logging.WARNING, logger="strands_durable"):
            asyncio.run(main())
    finally:
        forget()
    assert caplog.text.count("'Tint', which is not registered") == 1
