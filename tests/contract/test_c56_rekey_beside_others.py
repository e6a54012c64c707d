"""C56 and C59 where several processes, ciphers or damaged rows meet in one encrypted store."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_durable import Cipher, Rekeyed
from strands_durable._sqlite import checksums
from strands_durable._sqlite.database import Store
from strands_durable._sqlite.encryption import rekeying
from strands_durable._sqlite.inspection.moment import at_one_moment
from strands_durable._sqlite.open_files import stores
from strands_durable.errors import CipherError
from tests.commands import cli
from tests.contract.test_c53_encryption import inline, readable
from tests.contract.test_c58_encrypted_operations import check, closing_rows, leave, on, seen
from tests.processes import run

KEYS = {name: bytes([number]) * 32 for number, name in enumerate(("k1", "k2", "k3"))}


def keys(*names: str) -> Cipher:
    """Return a cipher whose current key comes first."""
    return Cipher({name: KEYS[name] for name in names}, current=names[0])


def rekey(cipher: Cipher) -> Rekeyed:
    return asyncio.run(on(cipher).rekey())


def rekeyed(*names: str) -> str | None:
    """Encrypt the store again; called in a process of its own."""
    return rekey(keys(*names)).key_id


def data_keys() -> list[tuple[int, str]]:
    return closing_rows("SELECT id, key_id FROM data_keys ORDER BY id")


def forge(table: str, column: str, where: str, value: str) -> None:
    """Change a cell and its checksum, as one can who can write to the file."""
    names = checksums.covered(table)
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        (row,) = connection.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {where}").fetchall()
        cells = [value if name == column else cell for name, cell in zip(names, row, strict=True)]
        found = checksums.sum_of(table, checksums.text_of(cells))
        connection.execute(f"UPDATE {table} SET {column} = ?, sum = ? WHERE {where}", (value, found))


def test_c56_a_data_key_that_another_process_adds_at_the_end_costs_no_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inline(keys("k1"))
    expected = seen(keys("k1"), "inline")
    leave()
    looked = rekeying._bytes_left
    others: list[Store] = []

    def look_and_be_late(store: Store, number: int) -> int:
        found = looked(store, number)
        if not others:
            cipher = keys("k3", "k2", "k1")
            other = Store(store.path, cipher=cipher)
            others.append(other)
            seal = other.connection.seal
            assert seal is not None
            rekeying._add_key(other, seal, cipher)
        return found

    monkeypatch.setattr(rekeying, "_bytes_left", look_and_be_late)
    assert rekey(keys("k2", "k1", "k3")).outcome == "rotated"
    others[0].close()
    leave()
    everything = keys("k1", "k2", "k3")
    assert seen(everything, "inline") == expected
    assert not check(everything).problems
    assert [key_id for _, key_id in data_keys()] == ["k3"]


def test_c56_a_process_that_has_the_store_open_uses_the_keys_that_it_gives_now() -> None:
    inline(keys("k1"))
    assert rekey(keys("k2", "k1")).key_id == "k2"
    assert data_keys() == [(2, "k2")]
    inline(keys("k2"), "later")
    leave()
    assert not check(keys("k2")).problems


def test_c56_rekey_after_another_process_has_done_it() -> None:
    inline(keys("k1", "k2", "k3"))
    assert run(rekeyed, "k3", "k2", "k1").checked() == "k3"
    assert rekey(keys("k2", "k1", "k3")).key_id == "k2"
    leave()
    assert not check(keys("k2")).problems


def test_c56_damaged_rows_stay_and_all_others_get_the_new_key(caplog: pytest.LogCaptureFixture) -> None:
    inline(keys("k1"))
    leave()
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        [(text,)] = connection.execute("SELECT data FROM messages WHERE seq = 0").fetchall()
        middle, other = len(text) // 2, "B" if text[len(text) // 2] == "A" else "A"
        changed = f"{text[:middle]}{other}{text[middle + 1 :]}"
        connection.execute("UPDATE messages SET data = ? WHERE seq = 0", (changed,))
        connection.execute("UPDATE blobs SET data = substr(data, 1, 60) WHERE digest = (SELECT min(digest) FROM blobs)")
    done = rekey(keys("k2", "k1"))
    assert (done.outcome, done.damaged) == ("rotated", 2)
    assert "not encrypted again" in caplog.text
    assert [key_id for _, key_id in data_keys()] == ["k1", "k2"]
    again = rekey(keys("k2", "k1"))
    assert (again.outcome, again.damaged) == ("unchanged", 2)
    old = closing_rows("SELECT count(*) FROM steps WHERE result LIKE '%\"k\":1,%'")
    assert old == [(0,)]


def test_c54_a_store_whose_secret_was_replaced_by_plain_text_is_not_used() -> None:
    inline(keys("k1"))
    leave()
    forge("secrets", "value", "name = 'hash_key'", "ab" * 32)
    before = Path("runs.db").read_bytes()
    uses: list[Any] = [
        lambda: inline(None, "plain"),
        lambda: inline(keys("k1"), "sealed"),
        lambda: rekey(keys("k1")),
        lambda: asyncio.run(on(keys("k1")).rekey(decrypt=True)),
    ]
    for use in uses:
        with pytest.raises(CipherError, match="it was changed"):
            use()
        stores.close()
    for cipher in (keys("k1"), None):
        assert "its secret is not encrypted" in str(check(cipher).problems)
    assert Path("runs.db").read_bytes() == before
    assert readable(Path.cwd()) == []


def test_c59_verify_without_a_key_finds_cells_whose_data_key_is_gone() -> None:
    inline(keys("k1"))
    leave()
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        connection.execute("UPDATE data_keys SET id = 7")
    found = {(problem.check, problem.table) for problem in check(None).problems}
    assert {("cipher", "messages"), ("cipher", "steps"), ("bytes", "blobs")} <= found


def test_c59_a_damaged_data_key_is_an_error_of_ours() -> None:
    inline(keys("k1"))
    leave()
    forge("data_keys", "wrapped", "1", "!" * 88)
    with pytest.raises(CipherError, match="is damaged"):
        inline(keys("k1"), "other")
    stores.close()
    shown = cli("show", "inline", "--store", "runs.db", env={"STRANDS_DURABLE_CIPHER_KEYS": ""})
    assert shown.exit_code == 0


def test_c53_nothing_that_was_decrypted_is_sorted_in_a_file() -> None:
    inline(keys("k1"))
    store, _ = stores.open(Path("runs.db").resolve(), cipher=keys("k1"))
    assert store.read("PRAGMA temp_store") == [(2,)]
    found = at_one_moment(Path("runs.db").resolve(), lambda each: each.execute("PRAGMA temp_store").fetchone())
    assert found == (2,)
