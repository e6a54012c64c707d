"""Encrypting again what a key-value store holds, whatever the store misses, whoever writes, and wherever it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from strands import Agent

from strands_durable import Cipher, durable_agent
from strands_durable._enginekit.key_value.backend import KeyValueBackend
from strands_durable._enginekit.key_value.engine import KeyValueEngine
from strands_durable._enginekit.key_value.head import Head
from strands_durable.testing import ScriptedModel
from tests.readable import is_readable
from tests.unit.test_key_value_log import PlainStore

SECRET = "Marzipan"


def keys(**given: int) -> Cipher:
    return Cipher({key_id: bytes([number]) * 32 for key_id, number in given.items()}, current=next(iter(given)))


@durable_agent(name="rekeyed")
def rekeyed() -> Agent:
    return Agent(model=ScriptedModel(["Done."]), callback_handler=None)


class Backend(KeyValueBackend):
    """A backend on a store in memory, without workers."""

    url = "memory://"

    def __init__(self, store: PlainStore, cipher: Cipher | None = None) -> None:
        self.engine = KeyValueEngine.at(store, cipher=cipher)
        self.log, self.store = self.engine.log, store

    async def wake(self, execution_id: str) -> None:
        pass

    async def unattended(self) -> str | None:
        return None

    async def work(self, **options: Any) -> None:
        raise NotImplementedError

    async def dispatched(self) -> Head:
        await self.dispatch(rekeyed.spec, SECRET, execution_id="trip")
        return await self.head("trip")

    async def is_open_to(self, cipher: Cipher | None) -> bool:
        detail = await (await Backend(self.store, cipher).get("trip")).detail()
        return detail.execution.execution_id == "trip"

    def readable(self) -> list[str]:
        return [key for key, (data, _) in self.store._values.items() if is_readable(SECRET, data)]


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


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def begin() -> None:
        await work()

    asyncio.run(begin())


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

    run(work)
