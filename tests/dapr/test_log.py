"""The log in a state store behind real sidecars: its fence, large batches, compaction, removal, and reads meanwhile."""

from __future__ import annotations

import asyncio
import random
import secrets
from typing import Any

import pytest

from strands_durable._enginekit.key_value.head import Head
from strands_durable._enginekit.key_value.log import KeyValueLog, key_of
from strands_durable._enginekit.log import StaleError
from strands_durable.backends.dapr._client import Sidecar as Client
from tests.dapr.running import DaprBench
from tests.waiting import until_async

CONTENDERS = 8


def batch(text: str, owner: str | None = "someone", **more: Any) -> dict[str, Any]:
    """Return a change set whose effect on the head is known."""
    row = {"status": "RUNNING", "owner": owner, "created_at": 1.0, "updated_at": 2.0}
    return {"text": text, "tables": {"executions": [row]}, **more}


async def texts(log: KeyValueLog, after: Head | None = None) -> list[str]:
    return [entry.changes["text"] async for entry in log.read("trip", after)]


async def head_of(log: KeyValueLog) -> Head:
    head = await log.head("trip")
    assert head is not None
    return head


async def contend(log: KeyValueLog, name: str, acknowledged: list[str], until: asyncio.Event) -> int:
    """Take the log over and append to it until another contender has it; return how often that was."""
    tries = 0
    while not until.is_set():
        tries += 1
        try:
            position = await log.head("trip")
            for number in range(random.randint(1, 8)):
                text = f"{name} {tries} {number}"
                position = await log.append("trip", position, batch(text, owner=name))
                acknowledged.append(text)
        except StaleError:
            await asyncio.sleep(random.uniform(0, 0.02))
    return tries


def test_with_eight_contenders_on_two_sidecars_every_acknowledged_batch_counts_exactly_once(bench: DaprBench) -> None:
    clients = [bench.client(), bench.client(bench.add_sidecar())]
    acknowledged: list[str] = []

    async def fight() -> list[str]:
        logs = [KeyValueLog(clients[number % 2]) for number in range(CONTENDERS)]
        await logs[0].append("trip", None, batch("first"))
        over = asyncio.Event()
        fighting = [
            asyncio.ensure_future(contend(log, f"contender-{number}", acknowledged, over))
            for number, log in enumerate(logs)
        ]
        await asyncio.sleep(6)
        over.set()
        tries = await asyncio.gather(*fighting)
        assert all(each > 1 for each in tries)
        found = await texts(logs[0])
        assert await texts(logs[1]) == found, "both sidecars show the same"
        return found

    found = bench.run(fight())
    assert len(found) == len(set(found)), "a batch counts twice"
    assert len(acknowledged) > CONTENDERS
    in_order = [text for text in found if text in set(acknowledged)]
    assert sorted(in_order) == sorted(acknowledged), "an acknowledged batch is missing"
    for number in range(CONTENDERS):
        own = [text for text in acknowledged if text.startswith(f"contender-{number} ")]
        assert [text for text in in_order if text in set(own)] == own, "the batches of a writer are in its order"


def test_a_writer_that_was_replaced_is_refused_and_leaves_no_trace(bench: DaprBench) -> None:
    async def replaced() -> None:
        log = KeyValueLog(bench.client())
        old = await log.append("trip", await log.append("trip", None, batch("first")), batch("old owner"))
        new = await log.append("trip", await head_of(log), batch("new owner"))
        with pytest.raises(StaleError):
            await log.append("trip", old, batch("a zombie"))
        assert await texts(log) == ["first", "old owner", "new owner"]
        assert await texts(log, old) == ["new owner"]
        assert await head_of(log) == new

    bench.run(replaced())


def test_only_one_of_many_dispatches_creates_a_log(bench: DaprBench) -> None:
    async def create(log: KeyValueLog, text: str) -> str | None:
        try:
            await log.append("trip", None, batch(text))
        except StaleError:
            return None
        return text

    async def race() -> None:
        logs = [KeyValueLog(bench.client()) for _ in range(CONTENDERS)]
        made = await asyncio.gather(*(create(log, f"{number}") for number, log in enumerate(logs)))
        won = [text for text in made if text is not None]
        assert len(won) == 1
        assert await texts(logs[0]) == won

    bench.run(race())


def test_a_large_batch_is_written_in_pieces_and_many_of_them_are_read_in_groups(bench: DaprBench) -> None:
    large = [secrets.token_hex(number * 1_000_000) for number in (1, 3, 0, 1, 1, 1, 1)]  # compresses to half of it

    async def write() -> None:
        log = KeyValueLog(bench.client())
        position = await log.append("trip", None, batch("first"))
        for each in large:
            position = await log.append("trip", position, batch(each))
        assert await texts(KeyValueLog(bench.client())) == ["first", *large]
        pieces = await bench.client().get_many([key_of("trip", f"{position.last[0]}.3.{piece}") for piece in range(4)])
        assert len(pieces) == 4
        await log.remove("trip", position)
        assert await bench.client().get_many(list(pieces)) == {}

    bench.run(write())


async def _are_gone(client: Client, keys: list[str]) -> bool:
    return await client.get_many(keys) == {}


def test_compaction_replaces_all_batches_and_readers_keep_their_place(bench: DaprBench) -> None:
    async def compact() -> None:
        client = bench.client()
        log = KeyValueLog(client)
        position = await log.append("trip", None, batch("first"))
        for number in range(3):
            position = await log.append("trip", await head_of(log), batch(f"batch {number}"))
        old = [key_of("trip", f"{epoch}.{number}") for epoch, number in position.batches()]
        new = await log.compacted("trip", position, batch("whole"))
        assert await texts(log, position) == [], "a reader that has all has all"
        last = await log.append("trip", new, batch("later"))
        assert await texts(log, position) == ["later"]
        assert await texts(log) == ["whole", "later"]
        assert last.last == (new.last[0], 2), "the writer continues"
        await until_async(lambda: _are_gone(client, old))
        with pytest.raises(StaleError):
            await log.compact("trip", position, batch("a zombie's whole"))

    bench.run(compact())


def test_what_a_process_that_died_did_not_delete_is_deleted_with_the_next_compaction(bench: DaprBench) -> None:
    async def compact() -> None:
        client = bench.client()
        log = KeyValueLog(client)
        position = await log.append("trip", None, batch("first"))
        old = [key_of("trip", f"{epoch}.{number}") for epoch, number in position.batches()]
        position = await log.compacted("trip", position, batch("whole"))
        await log.close()  # it has deleted nothing yet
        assert len(await client.get_many(old)) == 1
        old += [key_of("trip", f"{epoch}.{number}") for epoch, number in position.batches()]
        await log.compacted("trip", position, batch("the next"))
        await until_async(lambda: _are_gone(client, old))
        assert await texts(log) == ["the next"]

    bench.run(compact())


def test_a_reader_meanwhile_sees_the_log_before_or_after_a_compaction(bench: DaprBench) -> None:
    async def torn() -> None:
        log, reader = KeyValueLog(bench.client()), KeyValueLog(bench.client())
        position = await log.append("trip", None, batch("0"))
        over = asyncio.Event()

        async def read() -> int:
            reads = 0
            while not over.is_set():
                found = await texts(reader)
                assert [int(text) for text in found] == list(range(int(found[0]), int(found[-1]) + 1))
                reads += 1
            return reads

        reading = asyncio.ensure_future(read())
        for number in range(1, 60):
            position = await log.append("trip", position, batch(f"{number}"))
            if number % 3 == 0:
                position = await log.compacted("trip", position, batch(f"{number}"))
        over.set()
        assert await reading > 10

    bench.run(torn())


def test_what_was_removed_cannot_be_brought_back_by_a_writer_of_before_and_the_id_is_free(bench: DaprBench) -> None:
    async def removed() -> None:
        log = KeyValueLog(bench.client())
        position = await log.append("trip", None, batch("first"))
        await log.remove("trip", await head_of(log))
        assert await log.head("trip") is None
        assert await texts(log) == []
        with pytest.raises(StaleError):
            await log.append("trip", position, batch("a zombie"))
        again = await log.append("trip", None, batch("another life"))
        assert again.life != position.life
        with pytest.raises(StaleError):
            await log.append("trip", position, batch("a zombie"))
        assert await texts(log) == ["another life"]

    bench.run(removed())
