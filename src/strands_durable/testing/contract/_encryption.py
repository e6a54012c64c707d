"""C53, C54, C56 and C58: an encrypted execution: who can read it, who cannot, and with which keys.

The backend gets its keys from the environment, as one that is connected by its URL does.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ... import Cipher, DurableBackend, ExecutionHandle, connect, errors
from ..._records.cipher_setting import KEYS_VARIABLE
from ._bench import BOOK, Bench, S
from ._exports import exported, imported
from ._forks import failed, forked

KEY = bytes(range(32))
SECRET = "Marzipan"
_ASK = {"tool": "approve", "what": SECRET}


def visited(bench: Bench, cipher: Cipher | None, visit: Callable[[DurableBackend], Coroutine[Any, Any, Any]]) -> Any:
    """Return what a further process with other keys sees of the backend under test."""

    async def visiting() -> Any:
        backend = connect(bench.backend.url, cipher=cipher).working("off")
        try:
            return await visit(backend)
        finally:
            await backend.close()

    return bench.run(visiting())


async def _answered(backend: DurableBackend, answers: dict[str, Any]) -> None:
    await (await backend.get("trip")).respond(answers)


async def _exported(backend: DurableBackend, execution_id: str = "trip") -> Any:
    return await (await backend.get(execution_id)).export()


async def _shown(backend: DurableBackend) -> Any:
    detail = await (await backend.get("trip")).detail()
    return detail.execution.status, [(step.input, step.result) for step in detail.steps]


class EncryptionContract:
    """Encryption at rest."""

    encrypts = True
    """Whether the backend takes a cipher; `connect` refuses one for a backend that does not."""

    @pytest.fixture
    def encrypted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give keys to the backend; named before ``bench``, which connects it."""
        if not self.encrypts:
            pytest.skip("this backend takes no cipher")
        monkeypatch.setenv(KEYS_VARIABLE, f"2026={base64.b64encode(KEY).decode()}")

    def test_c53_an_encrypted_execution_runs_and_is_shown_as_any_other(self, encrypted: None, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, _ASK, f"{SECRET} it is.", prompt=f"Buy {SECRET}", tags={"tenant": "acme"})
        (asked,) = bench.result(handle).interrupts
        assert asked.reason == {"what": SECRET}
        bench.run(handle.respond({asked.id: f"{SECRET} allowed"}))
        result = bench.result(handle)
        assert (str(result), result.state) == (f"{SECRET} it is.\n", {"booked": ["Paris"]})
        detail = bench.run(handle.detail())
        assert detail.calls[0].input == f"Buy {SECRET}"
        assert f"{SECRET}: {SECRET} allowed" in str([step.result for step in detail.steps])
        bench.until(
            lambda: [found.status for found in bench.run(bench.backend.list())] == [S.COMPLETED]
        )  # it may lag behind
        (record,) = bench.run(bench.backend.list())
        assert (record.execution_id, record.status, record.tags) == ("trip", S.COMPLETED, {"tenant": "acme"})
        assert bench.booked() == ["Paris"]

    def test_c53_an_encrypted_execution_fails_resumes_and_is_forked(self, encrypted: None, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, {"fails_until": "fixed"})
        error = bench.fails(handle, errors.ExecutionFailedError)
        assert "the model is out of order" in str(error)
        bench.touch("fixed")
        fork: ExecutionHandle = bench.run(handle.fork(execution_id="fork"))
        assert str(bench.result(fork)) == "Fixed.\n"
        bench.run(handle.resume())
        bench.until(lambda: bench.status(handle) is S.COMPLETED)
        assert str(bench.result(handle)) == "Fixed.\n"
        assert bench.booked() == ["Paris"]

    def test_c54_without_the_right_key_nothing_is_read_and_nothing_is_written(
        self, encrypted: None, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = bench.dispatch(_ASK, "Done.", prompt=f"Buy {SECRET}")
        (asked,) = bench.result(handle).interrupts
        before = bench.run(handle.detail())
        monkeypatch.delenv(KEYS_VARIABLE)
        for cipher in (None, Cipher({"2026": bytes(32)}), Cipher({"2025": KEY})):
            for visit in (_exported, lambda backend: _answered(backend, {asked.id: "yes"})):
                with pytest.raises(errors.CipherError, match=None if cipher is None else "2026") as caught:
                    visited(bench, cipher, visit)
                assert SECRET not in str(caught.value)
        assert bench.run(handle.detail()) == before
        bench.run(handle.respond({asked.id: "yes"}))
        assert str(bench.result(handle)) == "Done.\n"

    def test_c56_what_an_earlier_key_encrypted_is_read_with_both_keys(self, encrypted: None, bench: Bench) -> None:
        handle = bench.dispatch(BOOK, f"{SECRET} it is.")
        bench.result(handle)
        both = Cipher({"2026": KEY, "2027": bytes(32)}, current="2027")
        status, steps = visited(bench, both, _shown)
        assert status is S.COMPLETED
        assert SECRET in str(steps[-1])

    def test_c58_an_encrypted_execution_is_exported_in_plain_text_and_imported_encrypted(
        self, encrypted: None, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = bench.dispatch(BOOK, _ASK, f"{SECRET} it is.", prompt=f"Buy {SECRET}")
        bench.result(handle)
        found = exported(bench, handle)
        assert SECRET in str(found["rows"]["calls"])
        assert SECRET not in str(exported(bench, handle, contents=False))
        moved = imported(bench, found)
        if moved is None:
            return
        (asked,) = bench.run(moved.interrupts())
        bench.run(moved.respond({asked.id: "yes"}))
        bench.until(lambda: bench.status(moved) is S.COMPLETED)
        assert (str(bench.result(moved)), bench.booked()) == (f"{SECRET} it is.\n", ["Paris"])
        monkeypatch.delenv(KEYS_VARIABLE)
        with pytest.raises(errors.CipherError):
            visited(bench, None, lambda backend: _exported(backend, moved.execution_id))

    def test_c58_what_a_fork_changes_is_encrypted(
        self, encrypted: None, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        origin = failed(bench, BOOK, {"fails_until": "fixed"})
        bench.touch("fixed")
        fork = forked(bench, origin, state={"kept": SECRET})
        result = bench.result(fork)
        assert (str(result), result.state) == ("Fixed.\n", {"kept": SECRET})
        monkeypatch.delenv(KEYS_VARIABLE)
        with pytest.raises(errors.CipherError):
            visited(bench, None, lambda backend: _exported(backend, fork.execution_id))
