"""C47 on every backend: the commands for many executions stand on the list and the handles of the port alone."""

from __future__ import annotations

import json
import time

import pytest

from strands_durable._cli import bulk, control, filters
from strands_durable.testing.contract import Bench
from strands_durable.testing.contract._bench import S


class BulkContract:
    """What `resume`, `cancel` and `rm` do with filters."""

    def test_c47_every_page_is_taken_and_each_execution_is_reported(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(filters, "_PAGE", 1)
        names = {"bulk-1", "bulk-2"}
        for name in (*names, "other"):
            bench.result(bench.dispatch("Hi.", execution_id=name, tags={"kind": name.partition("-")[0]}))
        asked = filters.Filters(
            statuses=frozenset({S.COMPLETED}),
            others={"agent": None, "since": time.time() - 3_600, "tags": {"kind": "bulk"}, "search": "bulk-"},
            older_than=time.time() + 60,
        )
        bench.until(lambda: len(bench.run(asked.found(bench.backend))) == 2)  # a list may lag behind
        records = bench.run(asked.found(bench.backend))
        change = bulk.Change(verb="cancel", done="cancelled", question="", make=control._cancelled)
        capsys.readouterr()
        bench.run(bulk.make(bench.backend, records, change, as_json=True, still=asked.takes))
        report = json.loads(capsys.readouterr().out)
        assert (report["cancelled"], report["failed"]) == ([], [])
        reasons = {each["execution_id"]: each["reason"] for each in report["skipped"]}
        assert reasons == dict.fromkeys(names, "it is COMPLETED: nothing to cancel")
        none = filters.Filters(statuses=asked.statuses, others=asked.others, older_than=time.time() - 3_600)
        assert bench.run(none.found(bench.backend)) == []
