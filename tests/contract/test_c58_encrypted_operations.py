"""C58 on a file: forks, exports and imports of encrypted executions."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_durable import Cipher, DurableBackend, Verification
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.open_files import stores
from strands_durable._sqlite.verification import verified
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing import forget_process
from tests.commands import cli
from tests.contract.test_c53_encryption import (
    PICTURE,
    SECRET,
    inline,
    new,
    old,
    readable,
    through_a_worker,
)

EDIT = f"{SECRET} edited"


def leave() -> None:
    """Close the store, as a process does that ends."""
    forget_process()
    stores.close()


def on(cipher: Cipher | None, name: str = "runs.db") -> DurableBackend:
    return SqliteBackend(f"sqlite:///{name}?worker=off", cipher=cipher)


def handle(cipher: Cipher | None, execution_id: str, name: str = "runs.db") -> Any:
    return asyncio.run(on(cipher, name).get(execution_id))


def export(cipher: Cipher | None, execution_id: str = "inline", name: str = "runs.db", **options: Any) -> Any:
    return asyncio.run(handle(cipher, execution_id, name).export(**options))


def check(cipher: Cipher | None, name: str = "runs.db") -> Verification:
    return verified(Path(name).resolve(), cipher=cipher)


def count(sql: str, name: str = "runs.db") -> int:
    with closing(sqlite3.connect(name)) as connection:
        return int(connection.execute(sql).fetchone()[0])


def seen(cipher: Cipher | None, execution_id: str, name: str = "runs.db") -> Any:
    """Return what people see of an execution, without its times and numbers."""
    found = Catalog(name, cipher).execution(execution_id)
    return [(call.input, call.answers, [(s.input, s.result, s.error) for s in call.steps]) for call in found.calls]


def texts(export: Any) -> str:
    return json.dumps(export, ensure_ascii=False)


# C58: forks, exports and imports


def test_c58_a_fork_of_an_encrypted_execution_is_encrypted_and_copies_no_bytes() -> None:
    inline(old())
    large, rows = count("SELECT count(*) FROM blobs"), count("SELECT sum(number) FROM uses")
    asyncio.run(handle(old(), "inline").fork(at=3, execution_id="fork"))
    assert count("SELECT count(*) FROM blobs") == large
    assert count("SELECT sum(number) FROM uses") > rows, "its rows refer to the same bytes"
    assert readable(Path.cwd()) == []
    assert inline(old(), "fork") == f"{SECRET} answer"
    leave()
    assert readable(Path.cwd()) == []
    assert check(old()).problems == ()


def test_c58_what_a_fork_changes_is_encrypted() -> None:
    through_a_worker(old())
    picture = {"image": {"format": "png", "source": {"bytes": PICTURE + b"?"}}}
    changes = {
        "state": {"state": {"sweet": EDIT}, "at": 1},
        "messages": {"messages": [{"role": "user", "content": [{"text": EDIT}, picture]}], "at": 1},
        "prompt": {"prompt": [{"text": EDIT}, picture], "at": 0},
    }
    for name, given in changes.items():
        fork = asyncio.run(handle(old(), "dispatched").fork(execution_id=name, **given))
        point = asyncio.run(fork.fork_point())
        assert name == "prompt" or EDIT in repr(point)
    assert readable(Path.cwd()) == []
    leave()
    assert check(old()).problems == ()


def test_c58_a_fork_point_of_an_encrypted_execution_is_readable_with_the_key() -> None:
    inline(old())
    point = asyncio.run(handle(old(), "inline").fork_point(1))
    assert PICTURE + b"!" in [block["image"]["source"]["bytes"] for block in point.messages[0]["content"][1:]]


def test_c58_an_export_is_the_same_as_that_of_a_store_in_plain_text() -> None:
    """It is decrypted: nothing in it depends on the keys of the store, not even the names of large bytes."""
    inline(old())
    leave()
    digests = {digest for (digest,) in closing_rows("SELECT digest FROM blobs UNION SELECT digest FROM configs")}
    found = export(old())
    assert SECRET in texts(found)
    assert len(digests) >= 3
    assert not [digest for digest in digests if digest in texts(found)]
    asyncio.run(on(None, "plain.db").import_execution(found))
    again = export(None, name="plain.db")
    assert comparable(again) == comparable(found)


def closing_rows(sql: str) -> list[Any]:
    with closing(sqlite3.connect("runs.db")) as connection:
        return connection.execute(sql).fetchall()


def comparable(export: Any) -> Any:
    """Return the rows of an export without the note of an import."""
    return {table: [row for row in rows if row.get("part") != "imported"] for table, rows in export["rows"].items()}


def test_c58_a_redacted_export_of_an_encrypted_execution_has_no_contents() -> None:
    inline(old())
    found = export(old(), contents=False)
    assert SECRET not in texts(found)
    assert '"order"' in texts(found)


@pytest.mark.parametrize(("source", "target"), [(old(), new()), (None, old()), (old(), None)])
def test_c58_an_execution_moves_between_encrypted_stores_and_those_in_plain_text(
    source: Cipher | None, target: Cipher | None
) -> None:
    inline(source)
    before, found = seen(source, "inline"), export(source)
    leave()
    os.mkdir("there")
    asyncio.run(on(target, "there/runs.db").import_execution(found))
    assert seen(target, "inline", "there/runs.db") == before
    assert bool(readable(Path("there"))) == (target is None)
    assert check(target, "there/runs.db").problems == ()
    os.chdir("there")
    assert inline(target) == f"{SECRET} answer", "a repeated call finds the result, and runs nothing"
    leave()
    assert bool(readable(Path.cwd())) == (target is None)


def test_c58_an_import_shares_what_the_store_has() -> None:
    inline(old())
    large, configs = count("SELECT count(*) FROM blobs"), count("SELECT count(*) FROM configs")
    asyncio.run(on(old()).import_execution(export(old()), execution_id="copy"))
    assert (count("SELECT count(*) FROM blobs"), count("SELECT count(*) FROM configs")) == (large, configs)
    assert seen(old(), "copy") == seen(old(), "inline")


def test_c58_without_the_key_nothing_is_exported_and_no_file_is_written() -> None:
    inline(old())
    leave()
    before = Path("runs.db").read_bytes()
    for options in ([], ["--redacted"]):
        found = cli("export", "inline", "--to", "run.json", *options, "--backend", "runs.db")
        assert found.exit_code != 0
        assert "no cipher was given" in found.stderr
    assert not Path("run.json").exists()
    assert Path("runs.db").read_bytes() == before
