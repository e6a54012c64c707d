"""Notices on the worst key-value store that its port allows, whatever is killed and whoever writes at the same time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from strands_durable._dispatch.notifications.hooks import Hook, hooks
from strands_durable._enginekit.key_value.engine import KeyValueEngine
from strands_durable._enginekit.key_value.head import Head, Place
from strands_durable._enginekit.key_value.log import key_of
from strands_durable._enginekit.key_value.notices import Notices, StoredNotice, name_of
from strands_durable._enginekit.key_value.notifier import Notifier
from strands_durable._enginekit.log import StaleError
from strands_durable._records import crash_points
from tests.unit.test_key_value_log import HostileStore, batch

WRITERS, ROUNDS = 4, 12


class Killed(BaseException):
    """The process that writes has died."""


@pytest.fixture(autouse=True)
def reported() -> Iterator[None]:
    """Have a hook, so that notices are recorded."""
    hooks.add("memory", Hook.of(print, "suspended"))
    yield
    hooks._hooks.clear()
    crash_points.listen(None)


def notice(**facts: Any) -> StoredNotice:
    found = StoredNotice(notice_id="n", event="suspended", at=1.0, base=("a", 2), place=("a", 3))
    return replace(found, **facts)


def head(*log: Place, **facts: Any) -> Head:
    return Head(life="l", status="RUNNING", log=log, **facts)


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (head(("a", 2)), "open"),
        (head(("a", 3)), "counts"),
        (head(("a", 7), ("b", 1)), "counts"),
        (head(("a", 2), ("b", 9)), "void"),
        (head(("c", 1), replaced=(("a", 3), ("b", 1))), "counts"),
        (head(("c", 1), replaced=(("a", 2), ("b", 1))), "void"),
        (head(("d", 1), replaced=(("c", 5),)), "counts"),
    ],
)
def test_the_head_decides_whether_a_notice_counts(found: Head, standing: str) -> None:
    assert notice().standing(found) == standing
    assert notice(tries=1).standing(found) == "counts", "it was looked at before"


def test_a_notice_survives_being_stored() -> None:
    found = notice(taken=("one", "two"), tries=3, claimed_by="me", error="no", gave_up_at=2.0)
    assert StoredNotice.of(found.stored()) == found


async def _contend(engine: KeyValueEngine, name: str, acknowledged: list[Place], seed: int) -> None:
    """Take over the log again and again, suspend the execution, and die now and then."""
    choose = random.Random(f"{seed} {name}")
    for _ in range(ROUNDS):
        found = await engine.log.existing_head("trip")
        if found is None:
            continue  # this store may miss it even three times in a row
        try:
            found = await engine.log.append("trip", found, batch(name))
            for _ in range(choose.randrange(3)):
                found = await engine.log.append("trip", found, batch(name, status="SUSPENDED", owner=None))
                if not found.is_ours:
                    break  # it counts, and another writer has continued from there
                acknowledged.append(found.last)
                found = await engine.log.append("trip", found, batch(name))
        except (StaleError, Killed):
            pass


@pytest.mark.parametrize("seed", range(20))
def test_every_commit_that_counts_has_one_notice_and_no_other_notice_counts(seed: int) -> None:
    choose = random.Random(seed)

    def die(point: str) -> None:
        if point.startswith("notice.") and choose.random() < 0.05:
            raise Killed

    async def main() -> None:
        store = HostileStore(seed)
        engines = [KeyValueEngine.at(store) for _ in range(WRITERS)]
        first = await engines[0].log.append("trip", None, batch("first"))
        acknowledged: list[Place] = []
        crash_points.listen(die)
        await asyncio.gather(*(_contend(each, str(n), acknowledged, seed) for n, each in enumerate(engines)))
        crash_points.listen(None)
        final = await engines[0].log.existing_head("trip") or await engines[0].log.existing_head("trip")
        assert final is not None
        name = name_of("trip", first.life)
        notices = await engines[0].notices.careful_read(name)
        counting = [each.place for each in notices if each.standing(final) == "counts"]
        assert len(set(counting)) == len(counting)
        assert set(acknowledged) <= set(counting), "also one whose acknowledgement was lost counts"
        assert all(final.has(place) for place in counting)
        assert all(each.standing(final) != "open" for each in notices if each.base != final.last)
        assert not counting or name in await _listed(engines[0].notices)

    asyncio.run(main())


async def _listed(notices: Notices) -> dict[str, float]:
    """Return the list, which a store may miss a part of, once."""
    return {**await notices.listed(), **await notices.listed()}


@pytest.mark.parametrize("seed", range(10))
def test_at_most_one_worker_claims_a_notice_and_only_that_one_settles_it(seed: int) -> None:
    async def main() -> None:
        store = HostileStore(seed)
        notices, name = [Notices(store) for _ in range(5)], name_of("trip", "l")
        await notices[0]._record("trip", "l", notice())
        claims = [notice(tries=1, claimed_by=str(number)) for number in range(5)]
        won = await asyncio.gather(*(each.replace(name, notice(), claims[n]) for n, each in enumerate(notices)))
        assert sum(won) <= 1, "none if the answer was lost: then the next look finds the claim"
        (found,) = await notices[0].careful_read(name)
        settled = await asyncio.gather(*(each.replace(name, claims[n], None) for n, each in enumerate(notices)))
        assert sum(settled) <= 1
        assert await notices[0].careful_read(name) == []
        assert found in claims

    asyncio.run(main())


def test_a_notice_that_comes_while_its_execution_is_taken_off_the_list_stays_listed() -> None:
    async def main() -> None:
        store = HostileStore(1)
        notices, name = Notices(store), name_of("trip", "l")
        await notices._record("trip", "l", notice())
        at = (await _listed(notices))[name]
        await notices._record("trip", "l", notice(notice_id="later"))
        await notices.unlist(name, at)
        assert name in await _listed(notices)

    asyncio.run(main())


def test_a_read_that_misses_what_is_watched_or_finds_it_damaged_ends_no_watch() -> None:
    async def main() -> None:
        store = HostileStore(1)
        await store.patiently(lambda: Notices(store).watch(["failed"]))
        hooks._hooks.clear()  # only another worker reports
        notices = Notices(store)
        (key,) = notices.watch_keys
        notices.note({key: store._values[key][0]})
        for missed in ({}, {key: b""}, {key: b"["}, {key: b'{"items": {"failed": "never"}}'}):
            notices.note(missed)
            assert await notices._is_watched("failed"), missed

    asyncio.run(main())


@pytest.mark.parametrize("damage", [b"[", b"{}", b'{"life": 3}'])
def test_a_head_that_cannot_be_read_keeps_no_other_execution_from_being_reported(damage: bytes) -> None:
    async def main() -> None:
        store = HostileStore(2)
        engine = KeyValueEngine.at(store)
        for name in ("damaged", "whole", "other"):
            await store.patiently(lambda name=name: engine.log.append(name, None, batch(name)))  # type: ignore[misc]
        key = key_of("damaged", "head")
        store._values[key] = damage, store._values[key][1]
        found = dict[str, Head]()
        for _ in range(5):  # a store may miss a value that is there, once
            found |= await Notifier(engine, "me")._heads(["damaged", "whole", "other"])
        assert found.keys() == {"whole", "other"}

    asyncio.run(main())
