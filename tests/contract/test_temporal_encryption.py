"""C53, C54 and C57: encryption on Temporal: what its history holds, and who can read it."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.protobuf.json_format import MessageToJson
from strands import Agent, ToolContext, tool
from temporalio.client import Client

from strands_durable import Cipher, DurableBackend, durable_agent
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.errors import CipherError, ExecutionFailedError, UnsupportedFeatureError
from strands_durable.testing import ScriptedModel, call
from strands_durable.testing.temporal import TemporalServer
from tests.temporal.running import history, url_of, working

SECRET = "Marzipan"
PATIENCE = 60.0


def keys(**given: int) -> Cipher:
    return Cipher({key_id: bytes([number]) * 32 for key_id, number in given.items()}, current=next(iter(given)))


@tool(context=True)
def order(what: str, tool_context: ToolContext) -> str:
    """Order something that a person allows."""
    tool_context.agent.state.set("sweet", f"{SECRET} in state")
    return f"{SECRET} {what} {tool_context.interrupt('allowed', reason=f'{SECRET} asked')} {'Marzipan ' * 12_000}"


@durable_agent(name="temporal-encrypted")
def planner(flavour: str = "", fails: bool = False) -> Agent:
    if fails:
        return Agent(model=ScriptedModel(_fail), callback_handler=None)
    script = [call("order", what=f"{SECRET} input"), f"{SECRET} answer"]
    return Agent(model=ScriptedModel(script), tools=[order], system_prompt=f"{SECRET} system", callback_handler=None)


def _fail(turn: int, messages: list[Any]) -> str:
    raise RuntimeError(f"{SECRET} failure")


async def ordered(backend: DurableBackend) -> str:
    handle = await planner.on(backend).dispatch_async(
        f"{SECRET} prompt", execution_id="run", flavour=f"{SECRET} flavour", tags={"tenant": "acme"}
    )
    result = await handle.result(PATIENCE)
    await handle.respond({result.interrupts[0].id: f"{SECRET} allowed"})
    return str(await handle.result(PATIENCE)).strip()


def texts(value: Any) -> Iterator[str]:
    """Yield every text of a JSON value, and what it is the base64 of, uncompressed too."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value
        for data in _decoded(value):
            yield data.decode("latin-1")
            try:
                inner = json.loads(data)
            except ValueError:
                continue
            if not isinstance(inner, int | float):
                yield from texts(inner)


def _decoded(text: str) -> Iterator[bytes]:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return
    yield data
    try:
        yield zlib.decompress(data)
    except zlib.error:
        return


async def readable(backend: TemporalBackend, execution_id: str) -> list[str]:
    """Return the texts of a history, fetched without any key, that hold the secret."""
    events = await history(backend, execution_id)
    described = await (await backend.workflow(execution_id)).describe()
    found = [json.loads(MessageToJson(each)) for each in (*events, described.raw_description)]
    return [text[:80] for text in texts(found) if SECRET in text]


def test_c53_nothing_is_readable_in_a_history_and_its_large_payloads(temporal: TemporalServer, tmp_path: Path) -> None:
    url = url_of(temporal, payloads=quote(f"file://{tmp_path}/payloads"))
    cipher = keys(k1=1)

    async def main() -> None:
        backend = TemporalBackend(url, cipher=cipher)
        assert await ordered(backend) == f"{SECRET} answer"
        with pytest.raises(ExecutionFailedError, match=f"{SECRET} failure"):
            await (await planner.on(backend).dispatch_async("Go", execution_id="bad", fails=True)).result(PATIENCE)
        plain = TemporalBackend(url)
        assert await readable(plain, "run") == []
        assert await readable(plain, "bad") == []
        stored = list(Path(tmp_path, "payloads").iterdir())
        assert stored, "the result was too large for a payload"
        assert not [path for path in stored if SECRET.encode() in path.read_bytes()]
        handle = await backend.get("run")
        assert SECRET in str((await handle.steps())[1].result)

    with working(url, cipher=cipher):
        asyncio.run(main())


def test_c54_without_the_key_nothing_can_be_read(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        assert await ordered(TemporalBackend(url, cipher=keys(k1=1))) == f"{SECRET} answer"
        handle = await TemporalBackend(url, cipher=keys(k2=2, k1=1)).get("run")
        assert str(await handle.result(PATIENCE)).strip() == f"{SECRET} answer", "a new key beside the old one"
        for wrong in (None, keys(k1=9), keys(k2=2)):
            with pytest.raises(CipherError):
                await (await TemporalBackend(url, cipher=wrong).get("run")).result(PATIENCE)
        with pytest.raises(UnsupportedFeatureError, match="cannot be changed"):
            await TemporalBackend(url, cipher=keys(k1=1)).rekey()

    with working(url, cipher=keys(k1=1)):
        asyncio.run(main())


def test_c54_what_began_in_plain_text_can_be_read_with_a_cipher(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        backend = TemporalBackend(url)
        assert await ordered(backend) == f"{SECRET} answer"
        found = "\n".join(await readable(backend, "run"))
        assert all(word in found for word in ("prompt", "input", "answer"))
        handle = await TemporalBackend(url, cipher=keys(k1=1)).get("run")
        assert str(await handle.result(PATIENCE)).strip() == f"{SECRET} answer", "what began before can be read"

    with working(url):
        asyncio.run(main())


def test_c54_an_answer_that_the_worker_cannot_decrypt_is_refused(temporal: TemporalServer) -> None:
    url = url_of(temporal)

    async def main() -> None:
        handle = await planner.on(TemporalBackend(url)).dispatch_async("Go", execution_id="run")
        (asked,) = (await handle.result(PATIENCE)).interrupts
        encrypted = await TemporalBackend(url, cipher=keys(k1=1)).get("run")
        with pytest.raises(CipherError, match="the worker of execution 'run' has no cipher"):
            await encrypted.respond({asked.id: "allowed"})
        await handle.respond({asked.id: "allowed"})
        assert str(await handle.result(PATIENCE)).strip() == f"{SECRET} answer"

    with working(url):
        asyncio.run(main())


def test_c57_a_client_of_ones_own_has_a_codec_of_its_own(temporal: TemporalServer) -> None:
    async def main() -> None:
        client = await Client.connect(temporal.address)
        with pytest.raises(UnsupportedFeatureError, match="client or data converter of your own"):
            TemporalBackend(url_of(temporal), client=client, cipher=keys(k1=1))

    asyncio.run(main())
