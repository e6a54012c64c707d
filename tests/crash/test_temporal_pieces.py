"""A worker is killed while it sends what is too large for one payload: what it had sent of it counts for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strands_durable.testing.temporal import TemporalServer
from tests.crash import crew
from tests.crash.temporal import Site
from tests.temporal import agents


def serve(url: str, folder: str) -> None:
    """Be a worker that has these agents, too."""
    crew.serve(url, folder)


def die_between_pieces(url: str, folder: str) -> None:
    """Be a worker that dies when it has sent one piece of several."""
    crew.serve_until(url, folder, "piece:after@1")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("agent", "given", "attempts"),
    [
        pytest.param(agents.greedy, {"sizes": [1_000_000, 1_000_001, 10, 20]}, {1}, id="of a new run"),
        pytest.param(agents.squirrel, {"size": 1_200_000}, {1, 2}, id="of a batch"),
    ],
)
def test_pieces_count_together_or_not_at_all(
    temporal: TemporalServer, tmp_path: Path, agent: Any, given: dict[str, Any], attempts: set[int]
) -> None:
    with Site(temporal, tmp_path, max_events=30) as site:
        handle = site.dispatch("run", agent=agent, **given)
        first = site.worker(target=die_between_pieces)
        first.process.join(60)
        assert first.process.exitcode == -9
        site.worker(target=serve)
        assert str(site.result(handle)) == "Done.\n"
        tools = [step for step in site.run(handle.steps()) if step.kind == "tool"]
        assert {step.attempt for step in tools} == attempts
        assert [step.status for step in tools].count("done") == len(given.get("sizes", "12"))

        async def lengths() -> list[int]:
            found = [event async for event in handle.stream() if event["kind"] == "tool" and event["status"] == "done"]
            return sorted(len(event["result"]["content"][0]["text"]) for event in found)

        assert site.run(lengths()) == sorted(given.get("sizes", [1_200_000, 1_200_001]))
