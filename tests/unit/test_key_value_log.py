"""The log on the worst key-value store that its port allows: lost answers, refused transactions that write, reads that miss."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from strands_durable._enginekit.key_value import heartbeat, shared_map
from strands_durable._enginekit.key_value.head import Head
from strands_durable._enginekit.key_value.heartbeat import Workers
from strands_durable._enginekit.key_value.log import KeyValueLog, ask_key
from strands_durable._enginekit.key_value.shared_map import SharedMap
from strands_durable._enginekit.key_value.store import Value, WriteError
from strands_durable._enginekit.log import StaleError
from strands_durable._journal.owner import Owner
from strands_durable.errors import BackendUnavailableError

T = TypeVar("T")
WRITERS, ROUNDS = 4, 25


class HostileStore:
    """Keeps values in memory. Nothing that it promises is more than the port asks for."""

    where = "memory"

    def __init__(self, seed: int) -> None:
        self._values: dict[str, tuple[bytes, str]] = {}
        self._random, self._count = random.Random(seed), 0

    async def _pause(self) -> None:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)

    async def get(self, key: str) -> tuple[bytes, str]:
        await self._pause()
        if self._random.random() < 0.02:
            return b"", ""  # it is there, but not visible yet
        return self._values.get(key, (b"", ""))

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        await self._pause()
        return {key: self._values[key][0] for key in keys if key in self._values and self._random.random() > 0.005}

    async def save(self, *values: Value) -> None:
        await self._write(values)

    async def save_together(self, *values: Value) -> None:
        await self._write(values)

    async def _write(self, values: tuple[Value, ...]) -> None:
        await self._pause()
        if self._random.random() < 0.05:
            raise WriteError("the request was lost")
        refused = [value for value in values if not self._may(value)]
        for value in values:
            if value not in refused:  # as Redis does, although the transaction is refused
                self._count += 1
                self._values[value.key] = value.data, str(self._count)
        if refused or self._random.random() < 0.05:
            raise WriteError("refused, or the answer was lost")

    def _may(self, value: Value) -> bool:
        return value.etag is None or self._values.get(value.key, (b"", ""))[1] == value.etag

    async def delete(self, keys: Sequence[str]) -> None:
        await self._pause()
        for key in keys:
            self._values.pop(key, None)

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except WriteError:
                await self._pause()


def batch(text: str, **more: Any) -> dict[str, Any]:
    row = {"status": "RUNNING", "owner": "someone", "created_at": 1.0, "updated_at": 2.0, **more}
    return {"text": [text], "tables": {"executions": [row]}}


async def texts(log: KeyValueLog) -> list[str]:
    return [text async for entry in log.read("trip") for text in entry.changes["text"]]


async def contend(store: HostileStore, name: str, acknowledged: list[str], seed: int) -> None:
    """Take over the log again and again, append, and compact it now and then."""
    choose, log = random.Random(f"{seed} {name}"), KeyValueLog(store)
    for round_ in range(ROUNDS):
        try:
            head = await log.existing_head("trip")
            if choose.random() < 0.2:
                entries = [entry async for entry in log.read("trip")]
                whole = {**batch(""), "text": [text for entry in entries for text in entry.changes["text"]]}
                head = await log.compacted("trip", entries[-1].position, whole)
            for number in range(choose.randrange(1, 5)):
                text = f"{name} {round_} {number}"
                head = await log.append("trip", head, batch(text))
                acknowledged.append(text)
        except StaleError:
            pass
    await asyncio.gather(*log._deleting)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_acknowledged_counts_once_and_in_order_whatever_the_store_does(seed: int) -> None:
    async def fight() -> None:
        store, acknowledged = HostileStore(seed), [""]
        acknowledged.clear()
        await KeyValueLog(store).append("trip", None, batch("first"))
        await asyncio.gather(*(contend(store, f"writer-{n}", acknowledged, seed) for n in range(WRITERS)))
        found = await texts(KeyValueLog(store))
        assert len(found) == len(set(found)), "a batch counts twice"
        assert [text for text in found if text in set(acknowledged)] == acknowledged, "in the order of the commits"
        assert len(acknowledged) > ROUNDS

    asyncio.run(fight())


@pytest.mark.parametrize("seed", range(10))
def test_only_one_of_many_creates_an_execution_whatever_the_store_does(seed: int) -> None:
    async def race() -> None:
        store = HostileStore(seed)

        async def create(name: str) -> str | None:
            try:
                await KeyValueLog(store).append("trip", None, batch(name, owner=None))
            except StaleError:
                return None
            return name

        made = [name for name in await asyncio.gather(*(create(str(n)) for n in range(8))) if name is not None]
        assert await texts(KeyValueLog(store)) == made
        assert len(made) == 1

    asyncio.run(race())


@pytest.mark.parametrize("seed", range(5))
def test_a_shared_map_loses_no_entry_whatever_the_store_does(seed: int) -> None:
    async def fill() -> None:
        store = HostileStore(seed)
        maps = [SharedMap(store, "test", shards=2) for _ in range(4)]
        await asyncio.gather(*(maps[n % 4].put(f"name-{n}", float(n)) for n in range(40)))
        await asyncio.gather(*(maps[n % 4].discard({f"name-{n}": None}) for n in range(0, 40, 2)))
        keys = [f"strands-durable/-test/{shard}" for shard in range(2)]
        kept = b"".join(store._values[key][0] for key in keys).decode()
        assert all(f'"name-{n}"' in kept for n in range(1, 40, 2))

    asyncio.run(fill())


class PlainStore(HostileStore):
    """Keeps its promises, and lets another process act before a write."""

    def __init__(self) -> None:
        super().__init__(0)
        self.before_write: Callable[[Value], Awaitable[None]] | None = None
        self.after_write: Callable[[], Awaitable[None]] | None = None
        self.is_read_only = False

    async def get(self, key: str) -> tuple[bytes, str]:
        return self._values.get(key, (b"", ""))

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        return {key: self._values[key][0] for key in keys if key in self._values}

    async def _write(self, values: tuple[Value, ...]) -> None:
        act, self.before_write = self.before_write, None
        if act is not None:
            await act(values[0])
        if self.is_read_only or not all(map(self._may, values)):
            raise WriteError("refused")
        for value in values:
            assert value.ttl_seconds is None or not value.key.endswith("/head"), "a head must not expire"
            self._count += 1
            self._values[value.key] = value.data, str(self._count)
        act, self.after_write = self.after_write, None
        if act is not None:
            await act()


async def head_of(log: KeyValueLog) -> Head:
    found = await log.existing_head("trip")
    assert found is not None
    return found


def test_a_compaction_from_which_another_writer_has_continued_is_lost() -> None:
    async def race() -> None:
        store = PlainStore()
        ours, other = KeyValueLog(store), KeyValueLog(store)
        await ours.append("trip", None, batch("first", status="PENDING", owner=None))

        async def claim() -> None:
            await other.append("trip", await head_of(other), batch("of another"))

        store.after_write = claim  # before the compaction is read back
        with pytest.raises(StaleError):
            await ours.compacted("trip", await head_of(ours), batch("first", status="PENDING", owner=None))
        assert await texts(ours) == ["first", "of another"]

    asyncio.run(race())


def test_a_life_that_was_removed_is_not_created_again_by_a_late_delivery() -> None:
    async def deliver() -> None:
        log = KeyValueLog(PlainStore())
        await log.create("trip", batch("first", status="COMPLETED", owner=None), "life")
        await log.remove("trip", await head_of(log))
        with pytest.raises(StaleError):
            await log.create("trip", batch("again"), "life")
        assert (await log.create("trip", batch("new"), "another")).life == "another"
        assert await texts(log) == ["new"]
        await log.close()

    asyncio.run(deliver())


def test_a_request_to_cancel_is_for_one_period_of_work() -> None:
    async def work() -> None:
        log = KeyValueLog(PlainStore())
        first = await log.append("trip", None, batch("dispatched", status="PENDING", owner=None))
        claimed = await log.append("trip", first, batch("claimed"))
        assert ask_key("trip", claimed) == ask_key("trip", first)
        asks = await log.append("trip", claimed, batch("asks", status="SUSPENDED", owner=None))
        answered = await log.append("trip", asks, batch("answered", status="PENDING", owner=None))
        assert ask_key("trip", answered) != ask_key("trip", first)
        assert answered.resumes == 0
        failed = await log.append("trip", answered, batch("failed", status="FAILED", owner=None))
        resumed = await log.append("trip", failed, batch("resumed", status="PENDING", owner=None))
        assert resumed.resumes == 1

    asyncio.run(work())


def test_a_slow_writer_does_not_overwrite_the_page_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_map, "_PAGE", 3)

    async def fill() -> None:
        store = PlainStore()
        found, other = SharedMap(store, "test", shards=1), SharedMap(store, "test", shards=1)
        for name in "abc":
            await found.put(name, 1.0)

        async def meanwhile(_: Value) -> None:
            await other.discard({"a": None})
            for name in "yz":
                await other.put(name, 1.0)

        store.before_write = meanwhile  # the writer has read a, b and c, and is about to move them to a page
        await found.put("x", 1.0)
        assert set(await found.items()) == set("bcxyz")
        assert await found.get("y") == 1.0
        assert await found.get("a") is None

    asyncio.run(fill())


def test_a_store_that_accepts_no_write_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_map, "_TRIES", 3)

    async def put() -> None:
        store = PlainStore()
        store.is_read_only = True
        await SharedMap(store, "test").put("name", 1.0)

    with pytest.raises(BackendUnavailableError, match="refuses to change the list 'test'"):
        asyncio.run(put())


def test_a_worker_that_was_cut_off_in_this_process_is_not_alive() -> None:
    async def end() -> None:
        workers = Workers(PlainStore())
        beat = await workers.begin()
        owner = Owner.me().within(beat.name).recorded()
        assert await workers.is_alive(owner)
        beat.end()
        assert not await workers.is_alive(owner)
        assert beat.name not in {name for _, name in heartbeat._here}

    asyncio.run(end())
