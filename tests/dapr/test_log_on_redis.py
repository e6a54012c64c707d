"""The log on Redis, which keeps its promises less well than a database: refused transactions write, deleted keys come back."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_durable._enginekit.key_value.log import KeyValueLog, key_of
from strands_durable.testing.dapr import DaprCluster
from tests.dapr.running import DaprBench
from tests.dapr.test_log import (
    batch,
    head_of,
    test_a_large_batch_is_written_in_pieces_and_many_of_them_are_read_in_groups,
    test_a_reader_meanwhile_sees_the_log_before_or_after_a_compaction,
    test_a_writer_that_was_replaced_is_refused_and_leaves_no_trace,
    test_compaction_replaces_all_batches_and_readers_keep_their_place,
    test_only_one_of_many_dispatches_creates_a_log,
    test_what_was_removed_cannot_be_brought_back_by_a_writer_of_before_and_the_id_is_free,
    test_with_eight_contenders_on_two_sidecars_every_acknowledged_batch_counts_exactly_once,
)
from tests.waiting import until

__all__ = [
    "test_a_large_batch_is_written_in_pieces_and_many_of_them_are_read_in_groups",
    "test_a_reader_meanwhile_sees_the_log_before_or_after_a_compaction",
    "test_a_writer_that_was_replaced_is_refused_and_leaves_no_trace",
    "test_compaction_replaces_all_batches_and_readers_keep_their_place",
    "test_only_one_of_many_dispatches_creates_a_log",
    "test_what_was_removed_cannot_be_brought_back_by_a_writer_of_before_and_the_id_is_free",
    "test_with_eight_contenders_on_two_sidecars_every_acknowledged_batch_counts_exactly_once",
]

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run a Redis that writes each change to disk; return its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    server = subprocess.Popen(
        ["redis-server", *options, "--appendonly", "yes", "--appendfsync", "always"], stdout=subprocess.DEVNULL
    )

    def answers() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    until(answers)
    yield port
    server.terminate()
    server.wait()


@pytest.fixture(scope="module")
def cluster(redis: int) -> Iterator[DaprCluster]:
    with DaprCluster(store=f"redis://127.0.0.1:{redis}") as cluster:
        yield cluster


@pytest.fixture
def bench(cluster: DaprCluster, tmp_path: Path) -> Iterator[DaprBench]:
    bench = DaprBench(cluster, str(tmp_path))
    yield bench
    bench.close()


def test_an_execution_with_the_id_of_a_removed_one_does_not_expire_with_its_tombstone(
    bench: DaprBench, redis: int
) -> None:
    key = f"{bench.app_id}||{key_of('trip', 'head')}"

    def ttl() -> str:
        command = ["redis-cli", "-p", str(redis), "ttl", key]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    async def reuse() -> None:
        log = KeyValueLog(bench.client())
        await log.append("trip", None, batch("first"))
        await log.remove("trip", await head_of(log))
        assert ttl() == "-1", "a tombstone never expires: Redis would set that apart from the value"
        await log.append("trip", None, batch("another life"))

    bench.run(reuse())
    assert ttl() == "-1", "it never expires"
