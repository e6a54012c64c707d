"""Maps in a state store that many processes change."""

from __future__ import annotations

import asyncio

from strands_durable._enginekit.key_value.shared_map import SharedMap
from tests.dapr.running import DaprBench


def test_entries_of_many_writers_on_two_sidecars_are_all_there(bench: DaprBench) -> None:
    async def put() -> None:
        maps = [SharedMap(client, "test", shards=2) for client in (bench.client(), bench.client(bench.add_sidecar()))]
        await asyncio.gather(*(maps[number % 2].put(f"name-{number}", float(number)) for number in range(40)))
        assert await maps[0].items() == {f"name-{number}": float(number) for number in range(40)}
        await asyncio.gather(*(maps[number % 2].discard({f"name-{number}": None}) for number in range(0, 40, 2)))
        assert set(await maps[1].items()) == {f"name-{number}" for number in range(1, 40, 2)}

    bench.run(put())


def test_an_entry_that_was_renewed_is_not_discarded(bench: DaprBench) -> None:
    async def renew() -> None:
        found = SharedMap(bench.client(), "test")
        await found.put("name", 1.0)
        await found.put("name", 2.0)
        await found.discard({"name": 1.0})
        assert await found.items() == {"name": 2.0}
        await found.discard({"name": 2.0})
        assert await found.items() == {}

    bench.run(renew())


def test_a_map_of_any_size_is_kept_in_pages(bench: DaprBench) -> None:
    async def fill() -> None:
        found = SharedMap(bench.client(), "test", shards=1)
        for number in range(1_100):
            await found.put(f"name-{number}", float(number))
        assert len(await found.items()) == 1_100
        await found.discard({f"name-{number}": None for number in (0, 700, 1_099)})
        assert len(await found.items()) == 1_097
        assert "name-0" not in await found.items()

    bench.run(fill())
