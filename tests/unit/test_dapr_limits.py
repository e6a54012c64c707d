"""What waits for a sidecar of Dapr can be cancelled, also at the moment at which the sidecar answers."""

from __future__ import annotations

import asyncio

import pytest

from strands_durable.backends.dapr._client import Sidecar
from strands_durable.backends.dapr._url import DaprConfig


def test_a_caller_that_is_cancelled_as_the_sidecar_answers_ends() -> None:
    """Else `result(timeout)`, which polls the sidecar until it is cancelled, never returns."""

    async def main() -> None:
        sidecar = Sidecar(DaprConfig.of("dapr://127.0.0.1:50001"))
        answer = asyncio.get_running_loop().create_future()
        asking = asyncio.create_task(sidecar._succeeds(answer))
        await asyncio.sleep(0)
        answer.set_result(None)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(main())
