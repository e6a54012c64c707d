"""C47: one command for many executions: the filters of a list in place of an id."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from strands_durable import DurableBackend, connect
from strands_durable._cli import bulk, filters
from strands_durable._records.executions import ExecutionRecord
from strands_durable.errors import BackendUnavailableError, ExecutionBusyError
from strands_durable.testing import agents
from tests.commands import Terminal, cli
from tests.unit.test_cli_listed import filled

URL = "sqlite:///runs.db?worker=off"


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_PAGE", 3)


def dispatch(execution_id: str, *script: Any, url: str = URL, **more: Any) -> None:
    spec = agents.contract_agent.spec_with(folder=".", script=list(script or ["Hi."]))
    asyncio.run(connect(url).dispatch(spec, "Go", execution_id=execution_id, **more))


def run_all(url: str = URL) -> None:
    """Run what is queued until nothing is."""

    async def work() -> None:
        stop, backend = asyncio.Event(), connect(url)
        worker = asyncio.create_task(backend.work(stop=stop))
        for record in await backend.list():
            handle = await backend.get(record.execution_id)
            with_end = asyncio.gather(handle.result(20), return_exceptions=True)
            await with_end
        stop.set()
        await worker

    asyncio.run(work())


def statuses(url: str = URL) -> dict[str, str]:
    return {record.execution_id: record.status.value for record in asyncio.run(connect(url).list())}


def printed(*args: str) -> Any:
    found = cli(*args, "--json", "--backend", "runs.db")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    return URL if request.param == "sqlite" else f"memory://{uuid.uuid4().hex}"


def test_c47_filters_name_every_page_of_the_list(url: str) -> None:
    for number in range(10):
        dispatch(f"run-{number}", url=url, tags={"parity": "even" if number % 2 == 0 else "odd"})
    dispatch("other", url=url)
    found = cli("cancel", "--tag", "parity=even", "--search", "run-", "--yes", "--json", "--backend", url)
    report = json.loads(found.stdout)
    assert (sorted(report["cancelled"]), report["skipped"], report["failed"]) == (
        [f"run-{number}" for number in range(0, 10, 2)], [], []
    )  # fmt: skip
    assert list(statuses(url).values()).count("PENDING") == 6
    rest = cli("cancel", "--status", "pending", "--yes", "--backend", url)
    assert (rest.exit_code, rest.stdout.splitlines()[-1]) == (0, "Cancelled 6.")
    assert set(statuses(url).values()) == {"CANCELLED"}


def test_c47_failed_ones_are_resumed_and_what_is_not_failed_is_left() -> None:
    for number in range(4):
        dispatch(f"bad-{number}", {"fails_until": "fixed"})
    dispatch("good")
    run_all()
    assert cli("resume", "--since", "1h", "--yes", "--backend", "runs.db").stdout.splitlines()[-1] == "Resumed 4."
    assert statuses() == {**{f"bad-{number}": "PENDING" for number in range(4)}, "good": "COMPLETED"}
    skipped = printed("resume", "--status", "completed", "--yes")
    assert skipped == {
        "resumed": [], "failed": [],
        "skipped": [{"execution_id": "good", "reason": "it is COMPLETED: nothing to resume"}],
    }  # fmt: skip


@pytest.mark.parametrize("command", ["resume", "cancel", "rm"])
@pytest.mark.parametrize("args", [(), ("trip", "--status", "failed"), ("trip", "--older-than", "1d")])
def test_c47_an_id_and_filters_together_or_neither_is_wrong_usage(command: str, args: tuple[str, ...]) -> None:
    dispatch("trip")
    found = cli(command, *args, "--yes", "--backend", "runs.db")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "Pass either an id, or filters" in found.stderr
    assert statuses() == {"trip": "PENDING"}


@pytest.mark.parametrize("command", ["resume", "cancel"])
def test_c47_a_dry_run_of_one_id_is_wrong_usage_and_does_nothing(command: str) -> None:
    dispatch("trip")
    assert cli(command, "trip", "--dry-run", "--backend", "runs.db").exit_code == 2
    assert statuses() == {"trip": "PENDING"}


def test_c47_a_dry_run_shows_all_and_changes_nothing() -> None:
    filled(60)
    before = statuses()
    found = cli("rm", "--status", "failed", "--dry-run", "--backend", "runs.db")
    assert found.stdout.splitlines()[-1] == "Would remove 12 executions."
    assert all(f"run-{number:06d}" in found.stdout for number in range(1, 60, 5))
    listed = printed("rm", "--status", "failed", "--dry-run")
    assert {each["status"] for each in listed} == {"FAILED"}
    assert len(listed) == 12
    assert len(printed("rm", "--search", "run-", "--dry-run")) == 36  # without a status: what has ended
    assert len(printed("cancel", "--search", "run-", "--dry-run")) == 24
    assert statuses() == before


def test_c47_older_than_spares_what_has_changed_since() -> None:
    filled(20)  # changed decades ago
    dispatch("young")
    assert len(printed("cancel", "--older-than", "30d", "--dry-run")) == 8
    assert [each["execution_id"] for each in printed("cancel", "--since", "1h", "--dry-run")] == ["young"]
    assert printed("cancel", "--older-than", "30d", "--since", "1h", "--dry-run") == []
    borders = printed("cancel", "--older-than", "1970-01-01T00:16:48+00:00", "--dry-run")  # second 1008
    assert sorted(each["execution_id"] for each in borders) == ["run-000002", "run-000003", "run-000007", "run-000008"]


def test_c47_without_a_terminal_and_without_yes_nothing_is_done() -> None:
    dispatch("trip")
    found = cli("cancel", "--status", "pending", "--backend", "runs.db")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "Pass --yes to cancel without confirmation" in found.stderr
    assert statuses() == {"trip": "PENDING"}
    assert cli("cancel", "--status", "failed", "--backend", "runs.db").stdout == "Nothing to cancel.\n"


def test_c47_a_person_is_shown_the_executions_and_asked_once() -> None:
    for name in ("one", "two"):
        dispatch(name)
    for typed, code, left in (("n", 1, "PENDING"), ("y", 0, "CANCELLED")):
        terminal = Terminal("cancel", "--status", "pending", "--backend", "runs.db")
        terminal.read_until("Cancel these 2 executions? Cancelled executions cannot be resumed [y/N]: ")
        assert "UPDATED" in terminal.seen
        terminal.type(f"{typed}\n")
        assert terminal.end() == code
        assert set(statuses().values()) == {left}
    assert "one is CANCELLED." in terminal.seen
    assert "two is CANCELLED." in terminal.seen


def test_c47_one_that_cannot_be_changed_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    filled(20)
    real = type(connect(URL))._remove_unchanged

    async def remove(self: DurableBackend, record: ExecutionRecord) -> bool:
        if record.execution_id == "run-000006":
            raise ExecutionBusyError(record.execution_id, "process 7")
        if record.execution_id == "run-000011":
            raise BackendUnavailableError("runs.db", "the disk is full")
        return await real(self, record)  # type: ignore[arg-type]

    monkeypatch.setattr(type(connect(URL)), "_remove_unchanged", remove)
    found = cli("rm", "--status", "failed", "--yes", "--json", "--backend", "runs.db")
    report = json.loads(found.stdout)
    assert (found.exit_code, report["removed"]) == (1, ["run-000016", "run-000001"])
    assert [each["execution_id"] for each in report["failed"]] == ["run-000011", "run-000006"]
    assert "the disk is full" in report["failed"][0]["error"]
    assert found.stderr.count("Error: ") == 2


def test_c47_one_that_changes_after_it_was_listed_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gone", "resumed", "stays"):
        dispatch(name, {"fails_until": "fixed"})
    run_all()
    real = filters.Filters.found

    async def found(self: filters.Filters, backend: DurableBackend) -> list[ExecutionRecord]:
        records = await real(self, backend)
        await (await backend.get("resumed")).resume()
        await backend.remove("gone")
        return records

    monkeypatch.setattr(filters.Filters, "found", found)
    report = printed("rm", "--status", "failed", "--yes")
    assert report["removed"] == ["stays"]
    assert {each["execution_id"]: each["reason"] for each in report["skipped"]} == {
        "gone": "it was removed in the meantime",
        "resumed": "it has changed since it was listed, and is PENDING now",
    }
    assert statuses() == {"resumed": "PENDING"}


def test_c47_the_exit_code_is_that_of_the_error_if_all_failed_alike() -> None:
    report = bulk.Report(failed=[("a", ExecutionBusyError("a", "b"))])
    assert report.exit_code == 1
    assert bulk.Report().exit_code == 0


def test_c47_one_that_is_resumed_after_it_was_read_again_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    for execution_id in ("one", "two"):
        dispatch(execution_id, {"fails_until": "fixed"})
    run_all()
    assert statuses() == {"one": "FAILED", "two": "FAILED"}
    read_again = bulk._unchanged

    async def then_resumed(backend: DurableBackend, *args: Any) -> ExecutionRecord:
        record = await read_again(backend, *args)
        if record.execution_id == "one":
            await (await backend.get("one")).resume()
        return record

    monkeypatch.setattr(bulk, "_unchanged", then_resumed)
    report = printed("rm", "--status", "failed", "--yes")
    assert report["removed"] == ["two"]
    assert report["skipped"] == [{"execution_id": "one", "reason": "it has changed since it was listed"}]
    assert statuses() == {"one": "PENDING"}
