"""The pytest plugin: a store for each test, and a report of what came of it.

Loaded with ``-p strands_suite.plugin`` in the folder of Strands' tests, which has a package ``tests`` of its own.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from .attach import Bench, attach
from .resume import Resumption

_bench = Bench()
_outcomes: dict[str, dict[str, Any]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("strands-suite")
    group.addoption("--durable", choices=["off", "attach", "return", "crash"], default="off")
    group.addoption("--durable-crash-at", default="model.done:after@1", help="the point at which each call dies")
    group.addoption("--durable-agents-only", action="store_true", help="leave graphs and swarms alone")
    group.addoption("--durable-only", type=Path, help="a report: run only tests in which something was attached")
    group.addoption("--durable-report", type=Path, help="where to write the outcome of each test, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    mode = config.getoption("--durable")
    multi_agent = not config.getoption("--durable-agents-only")
    if mode == "attach":
        attach(_bench, multi_agent=multi_agent)
    elif mode != "off":
        point = config.getoption("--durable-crash-at") if mode == "crash" else None
        attach(_bench, multi_agent=multi_agent, then=Resumption(_bench, point).watch)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path = config.getoption("--durable-only")
    if path is not None:
        chosen = {name for name, found in json.loads(path.read_text()).items() if found["counts"].get("attached")}
        items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _bench.begin()
    try:
        return (yield)
    finally:
        _bench.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        item.user_properties.append(("counts", dict(_bench.counts)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    found = _outcomes.setdefault(report.nodeid, {"outcome": "passed", "counts": {}})
    if report.outcome != "passed":
        found["outcome"] = report.outcome
        found["error"] = str(report.longreprtext).rpartition("\nE  ")[2][:300]
    if report.when == "call":
        found["counts"] = dict(report.user_properties).get("counts", {})


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--durable-report")
    if path is not None and not hasattr(session.config, "workerinput"):
        path.write_text(json.dumps(_outcomes, indent=1))
