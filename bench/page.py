"""The web page over a large file: `python -m bench.page`.

The first page of a list of 100,000 finished executions, beside a bare count of them, and the page of a run with 2,000 steps,
both from a server in a process of its own, and in Chromium. Figures are printed, and written to results/page.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from strands import Agent, tool

from strands_durable import connect, durable_agent
from strands_durable._sqlite.checksums import covered, sum_of, text_of
from strands_durable.testing import ScriptedModel, call

EXECUTIONS, CYCLES, TIMES = 100_000, 1_000, 15
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
RESULT = Path(__file__).parent / "results" / "page.json"
_DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
_USER = {"x-user": "bench"}


@tool
def read(page: int) -> str:
    """Return 2 KB."""
    return f"{page}: " + "x" * 2_000


@durable_agent
def reader(cycles: int) -> Agent:
    script = [*(call("read", page=number) for number in range(cycles)), "Read."]
    return Agent(model=ScriptedModel(script), tools=[read], callback_handler=None)


async def _run(url: str) -> None:
    backend = connect(url)
    for execution_id, cycles in (("short", 3), ("long", CYCLES)):
        handle = await backend.dispatch(reader.spec_with(cycles=cycles), "Read", execution_id=execution_id)
        await handle.result()
    await backend.close()


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _copy(
    connection: sqlite3.Connection, table: str, where: str, changed: Callable[[dict[str, Any], int], None]
) -> None:
    """Write copies of the rows of a table, each changed and with a checksum of its own."""
    names = _columns(connection, table)
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute(f"SELECT * FROM {table} WHERE {where}")]

    def copies() -> Iterator[list[Any]]:
        for number in range(1, EXECUTIONS):
            for row in rows:
                copy = dict(row)
                changed(copy, number)
                copy["sum"] = sum_of(table, text_of([copy[name] for name in covered(table)]))
                yield [copy[name] for name in names]

    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", copies())


def _fill(path: Path) -> None:
    """Make many finished executions of one: what a list reads of them, not their conversations."""
    far = 1_000_000  # far above every id that is there
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT id FROM executions WHERE execution_id = 'short'").fetchone()

    def execution(row: dict[str, Any], number: int) -> None:
        row.update(id=far + number, execution_id=f"copy-{number:06d}", updated_at=row["updated_at"] - number)

    def call_of(row: dict[str, Any], number: int) -> None:
        row.update(id=far + number, execution=far + number)

    def step(row: dict[str, Any], number: int) -> None:
        row.update(id=far + number * 16 + row["id"] % 16, call=far + number)

    _copy(connection, "executions", f"id = {found}", execution)
    _copy(connection, "dispatches", f"execution = {found}", lambda row, number: row.update(execution=far + number))
    _copy(connection, "calls", f"execution = {found}", call_of)
    _copy(connection, "steps", f"call IN (SELECT id FROM calls WHERE execution = {found})", step)
    connection.commit()
    connection.execute("ANALYZE")
    connection.close()


@contextmanager
def _served(path: Path) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "strands_durable",
        "ui",
        "--port",
        "0",
        "--user-header",
        "X-User",
        "--backend",
        str(path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().removeprefix("Open ").strip()
        finally:
            server.terminate()


def _milliseconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - begin))
    return round(statistics.median(times), 1)


def _count(path: Path) -> int:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    (found,) = connection.execute("SELECT count(*) FROM executions").fetchone()
    connection.close()
    return int(found)


def _in_browser(urls: dict[str, str]) -> dict[str, float]:
    """Return how long a browser takes until a page is drawn, with its styles and script."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(extra_http_headers=_USER)
        found = {}
        for name, url in urls.items():
            found[name] = _milliseconds(lambda url=url: (page.goto(url), page.evaluate(_DRAWN)))
        browser.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        asyncio.run(_run(f"sqlite:///{path}"))
        _fill(path)
        counted = _count(path)
        assert counted == EXECUTIONS + 1
        with _served(path) as base, httpx.Client(base_url=base, headers=_USER) as client:

            def get(page: str) -> Callable[[], object]:
                return lambda: client.get(page).raise_for_status()

            found: dict[str, Any] = {
                "executions": counted,
                "steps": 2 * CYCLES + 1,
                "bare_count_ms": _milliseconds(lambda: _count(path)),
                "list_ms": _milliseconds(get("/")),
                "filtered_ms": _milliseconds(get("/?status=COMPLETED&agent=reader&search=copy-09")),
                "inbox_ms": _milliseconds(get("/inbox")),
                "long_run_ms": _milliseconds(get("/executions/long")),
                "conversation_ms": _milliseconds(get("/executions/long/conversation")),
                "long_run_kb": round(len(client.get("/executions/long").content) / 1000),
            }
            found["browser_ms"] = _in_browser({"list": base, "long_run": f"{base}executions/long"})
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
