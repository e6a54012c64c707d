"""Encrypting again what a key-value store holds, whatever the store misses, whoever writes, and wherever it is killed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from strands import Agent

from strands_durable import Cipher, ExecutionStatus, durable_agent, errors
from strands_durable._enginekit.handle import AT_WORK
from strands_durable._enginekit.key_value.backend import KeyValueBackend
from strands_durable._enginekit.key_value.engine import KeyValueEngine
from strands_durable._enginekit.key_value.head import Head
from strands_durable._enginekit.key_value.log import _piece_keys, key_of
from strands_durable._enginekit.key_value.notices import StoredNotice, name_of
from strands_durable._enginekit.key_value.store import Value
from strands_durable._journal.owner import Owner
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash
from tests.readable import is_readable
from tests.unit.test_key_value_log import HostileStore, PlainStore

SECRET = "Marzipan"
NOTHING: dict[str, Any] = {"format": 5, "tables": {}}
"""A batch that changes nothing."""


def keys(**given: int) -> Cipher:
    return Cipher({key_id: bytes([number]) * 32 for key_id, number in given.items()}, current=next(iter(given)))


@durable_agent(name="rekeyed")
def rekeyed() -> Agent:
    return Agent(model=ScriptedModel(["Done."]), callback_handler=None)


class Backend(KeyValueBackend):
    """A backend on a store in memory, without workers."""

    url = "memory://"

    def __init__(self, store: HostileStore, cipher: Cipher | None = None) -> None:
        self.engine = KeyValueEngine.at(store, cipher=cipher)
        self.log, self.store = self.engine.log, store

    async def wake(self, execution_id: str) -> None:
        pass

    async def unattended(self) -> str | None:
        return None

    async def work(self, **options: Any) -> None:
        raise NotImplementedError

    async def dispatched(self, more: str = "") -> Head:
        await self.dispatch(rekeyed.spec, SECRET + more, execution_id="trip")
        return await self.head("trip")

    async def is_open_to(self, cipher: Cipher | None) -> bool:
        detail = await (await Backend(self.store, cipher).get("trip")).detail()
        return detail.execution.execution_id == "trip"

    def before_swap(self, act: Callable[[], Awaitable[None]]) -> None:
        """Have another process act before the next swap of a head together with a batch."""
        write = self.store.save_together

        async def save_together(*values: Value) -> None:
            self.store.save_together = write  # type: ignore[method-assign]
            await act()
            await write(*values)

        self.store.save_together = save_together  # type: ignore[method-assign]

    def readable(self) -> list[str]:
        return [key for key, (data, _) in self.store._values.items() if is_readable(SECRET, data)]

    async def left_over(self) -> set[str]:
        """Return the keys of an execution that nothing refers to."""
        stored, head = self.store._values, await self.log.head("trip")
        batches = [] if head is None else [key_of("trip", f"{epoch}.{number}") for epoch, number in head.batches()]
        pieces = [each for key in batches for each in _piece_keys(key, stored[key][0])]
        others = [key_of("trip", part) for part in ("head", "rekey")]
        return {key for key in stored if "/trip/" in key} - {*batches, *pieces, *others}


class Missing(PlainStore):
    """Misses one value that is there, once."""

    missed = ""

    async def get(self, key: str) -> tuple[bytes, str]:
        return (b"", "") if self._misses(key) else await super().get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        return {key: data for key, data in (await super().get_many(keys)).items() if not self._misses(key)}

    def _misses(self, key: str) -> bool:
        if not self.missed or self.missed not in key:
            return False
        self.missed = ""
        return True


@pytest.mark.parametrize("missed", ["trip/head", "the batch", "-executions/"])
def test_rekey_does_not_leave_out_what_the_store_misses_once(missed: str) -> None:
    async def work() -> None:
        plain = Backend(store := Missing())
        head = await plain.dispatched()
        for cipher, outcome in ((keys(k1=1), "encrypted"), (keys(k2=2, k1=1), "rotated")):
            head = await plain.head("trip")
            store.missed = f"trip/{head.last[0]}." if missed == "the batch" else missed
            assert (await Backend(store, cipher).rekey()).outcome == outcome
            assert store.missed == ""
        assert plain.readable() == []
        assert await plain.is_open_to(keys(k2=2))

    asyncio.run(work())


POINTS = ["rekey:before", "rewrite.begin:after", "rewrite.batch:after", "rewrite.swap:before", "rekey:after"]
LARGE = secrets.token_hex(1_100_000)
"""In pieces, even compressed."""


@pytest.mark.parametrize("more", ["", LARGE], ids=["small", "in pieces"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("commits", [0, 1])
def test_the_next_rekey_deletes_what_a_killed_one_has_written(point: str, more: str, commits: int) -> None:
    async def work() -> None:
        backend = await killed_while_decrypting(point, more)
        current = backend if point != "rekey:after" else Backend(backend.store)
        for _ in range(commits):
            await current.log.append("trip", await current.head("trip"), NOTHING)
        await backend.rekey()
        assert await backend.left_over() == set()
        assert backend.readable() == []
        assert await backend.is_open_to(keys(k1=1))
        assert (await backend.rekey()).outcome == "unchanged"

    asyncio.run(work())


@pytest.mark.parametrize("point", POINTS)
def test_a_removal_deletes_what_a_killed_rekey_has_written(point: str) -> None:
    async def work() -> None:
        backend = await killed_while_decrypting(point, LARGE)
        anyone = Backend(backend.store)  # removing needs no key
        await anyone.remove("trip")
        assert await backend.left_over() == set()
        assert key_of("trip", "rekey") not in backend.store._values

    asyncio.run(work())


async def killed_while_decrypting(point: str, more: str) -> Backend:
    backend = Backend(PlainStore(), keys(k1=1))
    await backend.dispatched(more)
    await (await backend.get("trip")).cancel()
    with CrashPoints().crashing(f"{point}@1", how="raise"), pytest.raises(SimulatedCrash):
        await backend.rekey(decrypt=True)
    return backend


def test_a_rekey_that_is_too_late_deletes_what_it_has_written() -> None:
    async def work() -> None:
        backend = Backend(PlainStore(), keys(k1=1))
        await backend.dispatched()

        async def continued() -> None:
            other = Backend(backend.store, keys(k1=1))
            await other.log.append("trip", await other.head("trip"), NOTHING)

        backend.before_swap(continued)
        with pytest.raises(errors.ExecutionBusyError):
            await backend.rekey(decrypt=True)
        assert await backend.left_over() == set()
        assert backend.readable() == []

    asyncio.run(work())


def test_two_at_a_time_lose_nothing_and_leave_nothing() -> None:
    async def work() -> None:
        backend = Backend(PlainStore(), keys(k1=1))
        await backend.dispatched()

        async def again() -> None:
            await Backend(backend.store, keys(k2=2, k1=1)).rekey()

        backend.before_swap(again)
        with pytest.raises(errors.ExecutionBusyError):
            await backend.rekey(decrypt=True)
        assert await backend.left_over() == set()
        assert backend.readable() == []
        assert await backend.is_open_to(keys(k2=2))

    asyncio.run(work())


@pytest.mark.parametrize("seed", range(20))
def test_many_at_a_time_on_the_worst_store_lose_nothing(seed: int) -> None:
    async def work() -> None:
        store = HostileStore(seed)
        first = Backend(store, keys(k1=1))
        await first.dispatched()

        async def rekey(cipher: Cipher, decrypt: bool) -> None:
            for _ in range(3):
                with suppress(errors.ExecutionBusyError):
                    await Backend(store, cipher).rekey(decrypt=decrypt)

        both = (keys(k1=1, k2=2), keys(k2=2, k1=1), keys(k2=2, k1=1))
        await asyncio.gather(*(rekey(cipher, number == 2) for number, cipher in enumerate(both)))
        await rekey(both[0], decrypt=False)
        assert await first.is_open_to(keys(k1=1))
        assert first.readable() == []

    asyncio.run(work())


async def with_notice(store: PlainStore, **facts: Any) -> tuple[Backend, str]:
    """Return an execution in plain text with a notice that was given up."""
    plain = Backend(store)
    head = await plain.dispatched()
    notice = StoredNotice(notice_id="n", event="failed", at=1.0, base=head.last, place=head.last, tries=9, **facts)
    await plain.engine.notices._record("trip", head.life, notice)
    await plain.log.save_note("trip", f"{SECRET} is not ready", 60, plainly=False)
    return plain, name_of("trip", head.life)


async def error_for(store: PlainStore, cipher: Cipher | None) -> str | None:
    (found,) = (await (await Backend(store, cipher).get("trip")).detail()).undelivered
    return found.error


@pytest.mark.parametrize("missed", ["", "trip/notices.", "trip/note"])
def test_rekey_encrypts_errors_of_notifications_and_deletes_notes(missed: str) -> None:
    async def work() -> None:
        error = f"{SECRET} is not taken"
        plain, _ = await with_notice(store := Missing(), error=error, gave_up_at=2.0)
        store.missed = missed
        assert (await Backend(store, keys(k1=1)).rekey()).outcome == "encrypted"
        assert plain.readable() == []
        assert await error_for(store, keys(k1=1)) == error
        await Backend(store, keys(k2=2, k1=1)).rekey()
        assert await error_for(store, keys(k2=2)) == error
        assert (await Backend(store, keys(k2=2)).rekey()).outcome == "unchanged"
        await Backend(store, keys(k2=2)).rekey(decrypt=True)
        assert await error_for(store, None) == error

    asyncio.run(work())


def test_rekey_leaves_a_notification_to_the_worker_that_delivers_it() -> None:
    async def work() -> None:
        store = PlainStore()
        heartbeat = await KeyValueEngine.at(store).workers.begin()
        worker = Owner.me().within(heartbeat.name).recorded()
        _, name = await with_notice(store, error=SECRET, claimed_by=worker)
        new = Backend(store, keys(k1=1))
        with pytest.raises(errors.ExecutionBusyError):
            await new.rekey()
        (kept,) = await new.engine.notices.careful_read(name)
        assert (kept.error, kept.claimed_by) == (SECRET, worker)
        await heartbeat.leave()
        await new.rekey()
        assert new.readable() == []

    asyncio.run(work())


class Counting(PlainStore):
    """Counts reads, each of which takes a moment."""

    reads = 0

    async def get(self, key: str) -> tuple[bytes, str]:
        self.reads += 1
        await asyncio.sleep(0.001)
        return await super().get(key)


@pytest.mark.parametrize("batches", [1, 3])
def test_a_follower_waits_after_a_rekey_and_sees_what_comes_next(batches: int) -> None:
    async def work() -> None:
        backend = Backend(store := Counting(), keys(k2=2, k1=1))
        backend.poll_seconds = 0.05
        await Backend(store, keys(k1=1)).dispatched()
        for _ in range(batches - 1):
            await backend.log.append("trip", await backend.head("trip"), NOTHING)
        following = asyncio.create_task(_at_rest(await backend.get("trip")))
        for _ in range(2):
            await asyncio.sleep(0.1)
            assert (await backend.rekey()).outcome in ("rotated", "unchanged")
        await asyncio.sleep(0.2)
        before = store.reads
        await asyncio.sleep(0.5)
        assert store.reads - before < 20
        assert not following.done()
        await (await backend.get("trip")).cancel()
        assert await asyncio.wait_for(following, 5) == ExecutionStatus.CANCELLED

    asyncio.run(work())


async def _at_rest(handle: Any) -> ExecutionStatus:
    async for known in handle._versions():
        if known.status not in AT_WORK:
            return ExecutionStatus(known.status)
    raise AssertionError("it does not end")
