"""C53 to C56 on the engine in memory: what its logs hold, wrong keys, changed and exchanged entries, and plain text."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strands_durable import Cipher, ExecutionStatus, errors
from strands_durable._enginekit.encryption import Contents
from strands_durable.testing import agents
from strands_durable.testing.contract._bench import BOOK
from strands_durable.testing.memory import MemoryBackend
from tests import threads
from tests.readable import is_readable
from tests.waiting import until_async

S = ExecutionStatus
SECRET = "Marzipan"
ASK = {"tool": "approve", "what": SECRET}


def keys(**given: int) -> Cipher:
    return Cipher({key_id: bytes([number]) * 32 for key_id, number in given.items()}, current=next(iter(given)))


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@contextmanager
def working(url: str, cipher: Cipher | None) -> Iterator[None]:
    with threads.worker(lambda stop: MemoryBackend(url, cipher=cipher).work(stop=stop, drain_seconds=2)):
        yield


async def dispatched(backend: MemoryBackend, folder: Path, *script: Any) -> Any:
    spec = agents.contract_agent.spec_with(folder=str(folder), script=list(script))
    return await backend.dispatch(spec, f"{SECRET} prompt", execution_id="trip", invocation_state={"given": SECRET})


async def asked(backend: MemoryBackend, folder: Path, *script: Any) -> Any:
    handle = await dispatched(backend, folder, *script)
    (question,) = (await handle.result(30)).interrupts
    return handle, question.id


def stored(url: str) -> bytes:
    """Return everything that the engine keeps, as it keeps it."""
    service = MemoryBackend(url)._service
    return repr((service.entries, service.notes, service.facts)).encode()


def test_c53_nothing_is_readable_in_the_log(url: str, tmp_path: Path) -> None:
    async def main(cipher: Cipher | None, url: str) -> None:
        backend = MemoryBackend(url, cipher=cipher)
        handle, question = await asked(backend, tmp_path, {**BOOK, "city": SECRET}, ASK, f"{SECRET} it is.")
        await handle.respond({question: f"{SECRET} allowed"})
        assert str(await handle.result(30)) == f"{SECRET} it is.\n"

    plain = f"{url}-plain"
    for cipher, each in ((keys(k1=1), url), (None, plain)):
        with working(each, cipher):
            asyncio.run(main(cipher, each))
    assert is_readable(SECRET, stored(plain)), "the search finds it where it is"
    assert not is_readable(SECRET, stored(url))


def test_c54_a_worker_without_the_key_waits_and_lists_show_what_is_readable(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        backend = MemoryBackend(url, cipher=keys(k1=1))
        handle = await dispatched(backend, tmp_path, "Done.")
        before = stored(url)
        for wrong in (None, keys(k1=9), keys(k2=2)):
            other = MemoryBackend(url, cipher=wrong)
            with working(url, wrong):
                await until_async(partial(noted, other))
            (record,) = await other.list()
            assert (record.execution_id, record.status, record.agent) == ("trip", S.PENDING, "contract_agent")
            assert record.created_at == (await backend.list())[0].created_at
        MemoryBackend(url)._service.notes.clear()
        assert stored(url) == before
        with working(url, keys(k2=2, k1=1)):
            assert str(await handle_with(keys(k2=2, k1=1)).result(30)) == "Done.\n"
        with pytest.raises(errors.CipherError, match="'k2', which the cipher does not have"):
            await handle.result(5)

    async def noted(other: MemoryBackend) -> bool:
        return "k1" in str(other._service.notes.get("trip"))

    def handle_with(cipher: Cipher) -> Any:
        return MemoryBackend(url, cipher=cipher)._handle("trip")

    asyncio.run(main())


def test_c54_plain_text_is_not_taken_for_an_encrypted_execution(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        await dispatched(MemoryBackend(url), tmp_path, "Done.")
        with pytest.raises(errors.CipherError, match="in plain text, and a cipher was given"):
            await MemoryBackend(url, cipher=keys(k1=1)).read("trip")

    asyncio.run(main())


def test_c55_a_changed_or_exchanged_entry_is_noticed(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        backend = MemoryBackend(url, cipher=keys(k1=1))
        with working(url, keys(k1=1)):
            await asked(backend, tmp_path, ASK, "Done.")
        log = backend._service.entries
        good = log["trip"]
        assert len(good) > 2
        log["trip"] = [replace(good[1], position=1), replace(good[0], position=2), *good[2:]]
        with pytest.raises(errors.CipherError, match=r"batch 1 of execution 'trip' is not what was encrypted"):
            await backend.read("trip")
        log["other"] = good
        with pytest.raises(errors.CipherError, match=r"batch 1 of execution 'other' is not what was encrypted"):
            await backend.read("other")
        plain = Contents(keys(k1=1), "here").open_value(good[1].changes, "batch 2 of execution 'trip'")
        log["trip"] = [good[0], replace(good[1], changes=plain), *good[2:]]
        with pytest.raises(errors.CipherError, match=r"batch 2 of execution 'trip' is in plain text"):
            await backend.read("trip")

    asyncio.run(main())


def test_c55_each_changed_bit_of_an_encrypted_value_is_noticed() -> None:
    contents = Contents(keys(k1=1), "here")
    sealed = contents.seal(b"Marzipan", "a cake")
    assert contents.open(sealed, "a cake") == b"Marzipan"
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            with pytest.raises(errors.CipherError):
                contents.open(bytes(changed), "a cake")
    for length in range(len(sealed)):
        with pytest.raises(errors.CipherError):
            contents.open(sealed[:length], "a cake")
    with pytest.raises(errors.CipherError):
        contents.open(sealed, "another cake")
    value = contents.seal_value({"a": 1}, "a cake")
    for damaged in ("", "no base64!", base64.b64encode(b"short").decode(), 7, None):
        with pytest.raises(errors.CipherError):
            contents.open_value(dict.fromkeys(value, damaged), "a cake")


def test_c56_a_new_current_key_is_used_at_once() -> None:
    class Rotating:
        current = "k1"

        def wrap(self, key_id: str, data_key: bytes) -> bytes:
            return key_id.encode() + data_key

        def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
            return wrapped.removeprefix(key_id.encode())

    service = Rotating()
    contents = Contents(Cipher(service), "here")
    first, again = contents.seal(b"1", "x"), contents.seal(b"2", "x")
    service.current = "k2"
    second = contents.seal(b"3", "x")
    assert [contents.key_id(each) for each in (first, again, second)] == ["k1", "k1", "k2"]
    assert [contents.open(each, "x") for each in (first, again, second)] == [b"1", b"2", b"3"]
