"""C53 to C57: encryption at rest on a file: what is readable, wrong keys, changed cells, new keys, and where keys come from."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import pickle
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool

from strands_durable import Cipher, Durability, connect, durable_agent
from strands_durable._dispatch.worker import Worker
from strands_durable._sqlite import checksums
from strands_durable._sqlite.catalog import Catalog
from strands_durable._sqlite.encryption import rekeying
from strands_durable._sqlite.encryption.sealing import CONTENTS, identity
from strands_durable._sqlite.open_files import stores
from strands_durable._sqlite.tables import tables
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.errors import BackendUnavailableError, CipherError, UnreadableError, UnsupportedFeatureError
from strands_durable.testing import CrashPoints, ScriptedModel, call, forget_process
from tests.commands import cli
from tests.processes import Child, run
from tests.script import answers
from tests.waiting import until

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SECRET = "Marzipan"
"""Part of everything that must not be readable."""
URL = "sqlite:///runs.db?worker=off"


def old() -> Cipher:
    return Cipher({"2025": OLD})


def both() -> Cipher:
    return Cipher({"2025": OLD, "2026": NEW}, current="2026")


def new() -> Cipher:
    return Cipher({"2026": NEW})


@tool(context=True)
def order(what: str, tool_context: ToolContext) -> Any:
    """Order something that a person allows; described as Marzipan in the schema."""
    tool_context.agent.state.set("sweet", f"{SECRET} in state")
    answer = tool_context.interrupt("allowed", reason=f"{SECRET} asked")
    content = [{"text": f"{what} {answer}"}, {"image": {"format": "png", "source": {"bytes": PICTURE}}}]
    return {"status": "success", "content": content}


@tool
def refuse(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"{SECRET} failed for {what}")


PICTURE = f"{SECRET} picture ".encode() * 200
PROMPT = [{"text": f"{SECRET} prompt \u00e4"}, {"image": {"format": "png", "source": {"bytes": PICTURE + b"!"}}}]
SCRIPT = [call("refuse", what=f"{SECRET} first"), call("order", what=f"{SECRET} input"), f"{SECRET} answer"]


def planner() -> Agent:
    return Agent(
        model=ScriptedModel(SCRIPT),
        tools=[order, refuse],
        system_prompt=f"{SECRET} system",
        callback_handler=None,
    )


@durable_agent(name="c53-planner")
def dispatched(flavour: str = "") -> Agent:
    return planner()


def inline(cipher: Cipher | None, execution_id: str = "inline") -> str:
    """Run an agent to its end, through a question; return what it answers."""
    agent = planner()
    Durability("runs.db", execution_id=execution_id, cipher=cipher).init_agent(agent)
    result: Any = agent(PROMPT)  # type: ignore[arg-type]
    if result.stop_reason == "interrupt":
        result = agent(answers(result, f"{SECRET} allowed"))  # type: ignore[arg-type]
    return str(result).strip()


async def _dispatched(cipher: Cipher | None, execution_id: str) -> str:
    backend = SqliteBackend("sqlite:///runs.db", cipher=cipher)
    arguments = {"flavour": f"{SECRET} flavour"}
    handle = await dispatched.on(backend).dispatch_async(PROMPT, execution_id=execution_id, **arguments)
    result = await handle.result(timeout=30)
    if result.interrupts:
        await handle.respond({result.interrupts[0].id: f"{SECRET} allowed"})
        result = await handle.result(timeout=30)
    await backend.close()
    return str(result).strip()


def through_a_worker(cipher: Cipher | None, execution_id: str = "dispatched") -> str:
    return asyncio.run(_dispatched(cipher, execution_id))


def shown(cipher: Cipher | None) -> dict[str, Any]:
    """Return everything that people see of the store."""
    catalog = Catalog("runs.db", cipher)
    found = {each.execution_id: catalog.execution(each.execution_id) for each in catalog.executions()}
    return {name: [(call.input, call.answers, [(s.input, s.result, s.error, s.state_changes) for s in call.steps])
                   for call in each.calls] for name, each in found.items()}  # fmt: skip


def readable(folder: Path, word: str = SECRET) -> list[str]:
    """Return where a word is readable in the files of a folder: as it is, in base64, in JSON, or compressed."""
    forms = [word.encode(), word.encode("utf-16-le"), word.encode().hex().encode()]
    forms += [_in_base64(word.encode(), shift) for shift in range(3)]
    return [f"{path.name}: {form!r}" for path in folder.iterdir() if path.is_file()
            for data in (path.read_bytes(),) for each in (data, *_inflated(data))
            for form in forms if form in each]  # fmt: skip


def _in_base64(word: bytes, shift: int) -> bytes:
    """Return the part of base64 that a word always has if so many bytes are before it, whatever they are."""
    data = b"x" * shift + word
    return base64.b64encode(data + b"x" * (-len(data) % 3))[(shift * 8 + 5) // 6 : len(data) * 8 // 6]


def _inflated(data: bytes) -> Iterator[bytes]:
    for found in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
        try:
            yield zlib.decompressobj().decompress(data[found.start() :])
        except zlib.error:
            continue


def test_the_search_for_plain_text_finds_it() -> None:
    inline(None)
    forget_process()
    assert readable(Path.cwd())
    Path("runs.db").write_bytes(zlib.compress(SECRET.encode()) + base64.b64encode(b"a" + SECRET.encode()))
    assert len(readable(Path.cwd())) >= 2


# C53: what is readable


@pytest.mark.parametrize("how", [inline, through_a_worker])
def test_c53_nothing_that_is_recorded_is_readable_in_the_files(how: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "strands_durable")
    assert how(old()) == f"{SECRET} answer"
    assert Path("runs.db-wal").exists(), "the WAL is looked at, too"
    assert readable(Path.cwd()) == []
    assert not [record for record in caplog.records if record.name.startswith("strands_durable")
                and SECRET in record.getMessage()]  # fmt: skip
    forget_process()
    assert readable(Path.cwd()) == []
    (calls,) = shown(old()).values()
    assert SECRET in json.dumps(calls, default=str), "with the key it is"
    assert how(old()) == f"{SECRET} answer", "and it is the same run"


def test_c53_ids_statuses_names_times_and_tags_are_readable() -> None:
    inline(old())
    with closing(sqlite3.connect("runs.db")) as connection:
        assert connection.execute("SELECT execution_id, status FROM executions").fetchall() == [("inline", "COMPLETED")]
        names = connection.execute("SELECT name, status FROM steps WHERE kind = 'tool' ORDER BY id").fetchall()
        assert {name for name, _ in names} == {"refuse", "order"}
        assert connection.execute("SELECT key FROM state").fetchall()[0] == ('"sweet"',)


def test_c53_every_column_that_holds_text_is_encrypted_or_known_to_be_readable() -> None:
    """A new column of the schema has to be decided on here."""
    names = {"execution_id", "kind", "status", "owner", "agent", "fingerprint", "place", "member", "scope", "input_hash",
             "base", "interrupt_id", "key", "name", "usage", "part", "digest", "notice_id", "claimed_by", "loop",
             "key_id", "wrapped", "by"}  # fmt: skip
    for table, found in tables().items():
        texts = set(found.columns) - found.reals - found.integers - set(CONTENTS.get(table, ())) - names
        assert texts == ({"value"} if table == "tags" else {"data"} if table == "blobs" else set()), table


def test_c53_two_stores_with_the_same_contents_have_no_digest_in_common() -> None:
    digests = []
    for _ in range(2):
        inline(old())
        forget_process()
        with closing(sqlite3.connect("runs.db")) as connection:
            digests.append({row[0] for table in ("blobs", "configs") for row in
                            connection.execute(f"SELECT digest FROM {table}")})  # fmt: skip
        Path("runs.db").unlink()
    assert digests[0]
    assert not digests[0] & digests[1]


# C54: a wrong or missing key


@pytest.mark.parametrize(
    ("cipher", "why"),
    [
        (None, "no cipher was given"),
        (Cipher({"2025": NEW}), "is not the one that it was encrypted with"),
        (new(), "which the cipher does not have"),
    ],
)
def test_c54_without_the_key_nothing_is_run_and_nothing_is_written(cipher: Cipher | None, why: str) -> None:
    inline(old())
    forget_process()
    before = Path("runs.db").read_bytes()
    uses: list[Any] = [inline, lambda given: asyncio.run(_dispatched(given, "other"))]
    for use in [*uses, shown] if cipher is not None else uses:
        with pytest.raises(CipherError, match=why) as raised:
            use(cipher)
        assert raised.value.key_id == "2025"
        assert base64.b64encode(OLD).decode() not in repr(raised.value.args)
        assert pickle.loads(pickle.dumps(raised.value)).key_id == "2025"
        forget_process()
        assert Path("runs.db").read_bytes() == before


def test_c54_a_store_in_plain_text_is_not_used_with_a_cipher() -> None:
    inline(None)
    forget_process()
    before = Path("runs.db").read_bytes()
    for use in (inline, shown):
        with pytest.raises(CipherError, match="it is not encrypted"):
            use(old())
    forget_process()
    assert Path("runs.db").read_bytes() == before


def test_c54_a_store_of_an_earlier_format_is_not_upgraded_if_a_cipher_was_given() -> None:
    Path("runs.db").write_bytes((Path(__file__).parents[1] / "stores" / "format_7.sqlite").read_bytes())
    before = Path("runs.db").read_bytes()
    with pytest.raises(CipherError, match="it is not encrypted"):
        inline(old())
    assert Path("runs.db").read_bytes() == before


def test_c54_a_wrong_key_does_not_disturb_those_who_have_the_right_one() -> None:
    inline(old())
    with pytest.raises(CipherError):
        inline(Cipher({"2025": NEW}), "other")
    with pytest.raises(CipherError):
        inline(None, "other")
    assert inline(old(), "third") == f"{SECRET} answer"


# C55: changed cells


def change(table: str, column: str, where: str, cell: str) -> None:
    """Change a cell as somebody would who knows how checksums are made."""
    names = checksums.covered(table)
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (cell,))
        row = connection.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {where}").fetchone()
        total = checksums.sum_of(table, checksums.text_of(row))
        connection.execute(f"UPDATE {table} SET sum = ? WHERE {where}", (total,))


def cells(table: str, column: str) -> list[tuple[str, str]]:
    """Return conditions for the rows of a table that have a cell, and the cells."""
    key = tables()[table].key
    with closing(sqlite3.connect("runs.db")) as connection:
        rows = connection.execute(f"SELECT {', '.join(key)}, {column} FROM {table} WHERE {column} <> ''").fetchall()
    return [
        (" AND ".join(f"{name} = '{value}'" for name, value in zip(key, row, strict=False)), row[-1]) for row in rows
    ]


@pytest.mark.parametrize("how", ["changed", "swapped", "in plain text"])
def test_c55_a_cell_that_was_changed_or_exchanged_is_noticed(how: str) -> None:
    inline(old())
    forget_process()
    assert shown(old())
    shutil.copy("runs.db", "kept.db")
    for table, column in [("steps", "result"), ("calls", "input"), ("failures", "error"), ("answers", "answer")]:
        found = cells(table, column)
        if not found:
            continue
        shutil.copy("kept.db", "runs.db")
        where, cell = found[0]
        other = cells("steps", "result")[1][1]
        middle = len(cell) // 2
        flipped = cell[:middle] + ("A" if cell[middle] != "A" else "B") + cell[middle + 1 :]
        change(table, column, where, {"changed": flipped, "swapped": other, "in plain text": '{"a":1}'}[how])
        reason = Catalog("runs.db", old()).execution("inline").execution.unreadable
        assert f"{table}.{column}" in str(reason)
        with pytest.raises(UnreadableError, match=f"{table}.{column}"):
            asyncio.run(asyncio.run(SqliteBackend(URL, cipher=old()).get("inline")).export())
        forget_process()


def test_c55_bytes_that_were_changed_are_noticed_also_without_a_key() -> None:
    inline(old())
    forget_process()
    with closing(sqlite3.connect("runs.db")) as connection, connection:
        digest, data = connection.execute("SELECT digest, data FROM blobs").fetchone()
        connection.execute("UPDATE blobs SET data = ? WHERE digest = ?", (data[:-1] + bytes([data[-1] ^ 1]), digest))
    with pytest.raises(CipherError, match=r"blobs\.data"):
        Catalog("runs.db", old()).recorded_bytes("inline", digest)
    assert zlib.crc32(data[13:]) == int.from_bytes(data[9:13]), "a checksum is stored with them"


def test_c55_every_encrypted_table_has_a_key_for_its_rows() -> None:
    assert all(identity(table) for table in CONTENTS)


# C56: a new key


def rekey(folder: str, point: str | None = None) -> Any:
    """Encrypt the store of a folder with the new key, a few rows at a time; die at a point."""
    os.chdir(folder)
    rekeying._PIECE_BYTES = 25_000
    points = CrashPoints()
    with points.recording() if point is None else points.crashing(point):
        done = asyncio.run(SqliteBackend(URL, cipher=both()).rekey())
    return done.outcome, points.reached


def test_c56_a_store_with_a_new_key_is_the_same_and_needs_the_old_one_no_more() -> None:
    inline(old())
    through_a_worker(old())
    before = shown(old())
    forget_process()
    done = asyncio.run(SqliteBackend(URL, cipher=both()).rekey())
    assert (done.outcome, done.key_id) == ("rotated", "2026")
    again = asyncio.run(SqliteBackend(URL, cipher=both()).rekey())
    assert (again.outcome, again.rows) == ("unchanged", 0)
    forget_process()
    assert shown(new()) == before
    assert inline(new()) == f"{SECRET} answer"
    with pytest.raises(CipherError, match="'2026', which the cipher does not have"):
        shown(old())


@pytest.mark.long
def test_c56_killed_anywhere_nothing_is_lost_and_the_next_one_finishes(tmp_path: Path, record_property: Any) -> None:
    inline(old())
    before = shown(old())
    forget_process()
    copied(tmp_path / "whole")
    outcome, points = run(rekey, os.getcwd()).checked()
    os.chdir(tmp_path)
    assert outcome == "rotated"
    assert {point.partition(":")[0] for point in points} >= {"rekey.key", "rekey.piece", "rekey.done"}
    for number, point in enumerate(points):
        copied(tmp_path / str(number))
        assert run(rekey, os.getcwd(), point).exitcode == -signal.SIGKILL, point
        assert shown(both()) == before, point
        assert asyncio.run(SqliteBackend(URL, cipher=both()).rekey()).outcome in ("rotated", "unchanged")
        stores.close()
        assert shown(new()) == before, point
        os.chdir(tmp_path)
    record_property("kills", len(points))


@tool
def rekey_meanwhile() -> str:
    """Have another process encrypt the store with a new key."""
    given = {**os.environ, "STRANDS_DURABLE_CIPHER_KEYS": keys(**{"2026": NEW, "2025": OLD})}
    command = [sys.executable, "-m", "strands_durable", "rekey", "--backend", "runs.db", "--json"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    return f"{SECRET} {json.loads(done.stdout)['outcome']}"


@durable_agent(name="c56-busy")
def busy() -> Agent:
    script = [call("order", what="one"), call("rekey_meanwhile"), "Done."]
    return Agent(model=ScriptedModel(script[1:]), tools=[rekey_meanwhile], callback_handler=None)


def work(folder: str) -> None:
    """Be a worker with both keys, until the file ``stop`` exists."""
    os.chdir(folder)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        working = asyncio.ensure_future(SqliteBackend("sqlite:///runs.db", cipher=both()).work(stop=stop))
        while not Path("stop").exists():
            await asyncio.sleep(0.01)
        stop.set()
        await working

    asyncio.run(until_stopped())


def test_c56_a_run_continues_while_its_store_gets_a_new_key() -> None:
    inline(old())
    forget_process()

    async def dispatch() -> None:
        await busy.on(SqliteBackend(URL, cipher=old())).dispatch_async("Go", execution_id="busy")

    asyncio.run(dispatch())
    worker = Child(work, os.getcwd())
    try:
        until(lambda: Catalog("runs.db", both()).execution("busy").execution.status.value == "COMPLETED", 120)
    finally:
        Path("stop").touch()
        worker.join()
    detail = Catalog("runs.db", new()).execution("busy")
    assert [step.state for step in detail.steps] == ["done", "done", "done"]
    assert f"{SECRET} rotated" in str(detail.steps[1].result)
    assert readable(Path.cwd()) == []


def test_c56_a_worker_that_lacks_the_new_key_leaves_its_execution_to_others() -> None:
    def owner() -> Any:
        with closing(sqlite3.connect("runs.db")) as connection:
            return connection.execute("SELECT owner FROM executions").fetchone()[0]

    async def work_with(cipher: Cipher, is_over: Callable[[], bool]) -> None:
        stop = asyncio.Event()
        working = asyncio.ensure_future(Worker(Path("runs.db").resolve(), cipher=cipher).run(stop))
        while not is_over():
            await asyncio.sleep(0.05)
        stop.set()
        await working

    async def dispatch() -> None:
        await busy.on(SqliteBackend(URL, cipher=old())).dispatch_async("Go", execution_id="busy")
        await asyncio.wait_for(work_with(old(), lambda: is_new() and owner() is None), 20)

    def is_new() -> bool:
        with closing(sqlite3.connect("runs.db")) as connection:
            return bool(connection.execute("SELECT 1 FROM data_keys WHERE key_id = '2026'").fetchall())

    asyncio.run(dispatch())
    forget_process()
    catalog = Catalog("runs.db", both())
    asyncio.run(work_with(both(), lambda: catalog.execution("busy").execution.status.value == "COMPLETED"))
    ended = [step.state for step in catalog.execution("busy").steps]
    assert (ended[0], ended[-1], owner()) == ("done", "done", None)


def convert(folder: str, how: str, point: str | None = None) -> Any:
    """Encrypt or decrypt the store of a folder; die at a point."""
    os.chdir(folder)
    points = CrashPoints()
    with points.recording() if point is None else points.crashing(point):
        done = asyncio.run(SqliteBackend(URL, cipher=old()).rekey(decrypt=how == "decrypt"))
    return done.outcome, points.reached


def copied(folder: Path) -> None:
    """Copy the store to a new folder, and go there."""
    folder.mkdir()
    with closing(sqlite3.connect("runs.db")) as here, closing(sqlite3.connect(folder / "runs.db")) as there:
        here.backup(there)
    os.chdir(folder)


@pytest.mark.parametrize(("how", "cipher", "after"), [("encrypt", None, old()), ("decrypt", old(), None)])
def test_c56_a_store_is_encrypted_and_decrypted_as_a_whole(
    how: str, cipher: Cipher | None, after: Cipher | None, tmp_path: Path
) -> None:
    results = inline(cipher), through_a_worker(cipher)
    before = shown(cipher)
    for point in ("before", "after"):
        os.chdir(tmp_path)
        copied(tmp_path / point)
        assert run(convert, os.getcwd(), how, f"rekey.convert:{point}@1").exitcode == -signal.SIGKILL
        assert shown(cipher if point == "before" else after) == before
        assert run(convert, os.getcwd(), how).checked()[0] == (f"{how}ed" if point == "before" else "unchanged")
        assert shown(after) == before
        assert bool(readable(Path.cwd())) == (how == "decrypt")
    assert (inline(after), through_a_worker(after)) == results


def test_c56_a_store_that_is_in_use_is_not_encrypted_under_its_users() -> None:
    inline(None)
    with closing(sqlite3.connect("runs.db")) as other:
        other.execute("SELECT * FROM steps").fetchone()
        with pytest.raises(BackendUnavailableError, match="cannot be encrypted while another process has it open"):
            rekeying.encrypt(Path("runs.db").resolve(), old(), busy_seconds=0.1)
    assert shown(None)


# C57: where keys come from


def keys(**given: bytes) -> str:
    return ",".join(f"{key_id}={base64.b64encode(key).decode()}" for key_id, key in given.items())


def test_c57_the_environment_names_keys_for_commands_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDS_DURABLE_CIPHER_KEYS", keys(k2025=OLD))
    inline(None)
    forget_process()
    assert readable(Path.cwd()) == []
    assert f"{SECRET} failed" in cli("show", "inline", "--backend", "runs.db").output
    monkeypatch.setenv("STRANDS_DURABLE_CIPHER_KEYS", keys(k2026=NEW, k2025=OLD))
    done = cli("rekey", "--backend", "runs.db", "--json")
    assert json.loads(done.output)["outcome"] == "rotated"
    forget_process()
    monkeypatch.setenv("STRANDS_DURABLE_CIPHER_KEYS", keys(k2025=OLD))
    failed = cli("ls", "--backend", "runs.db")
    assert failed.exit_code == 1
    assert "'k2026', which the cipher does not have" in failed.output


def test_c57_the_environment_names_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("our_keys_c57.py").write_text(
        "from strands_durable import Cipher\n\n\ndef cipher():\n    return Cipher({'2025': bytes(range(32))})\n"
    )
    monkeypatch.syspath_prepend(os.getcwd())
    monkeypatch.setenv("STRANDS_DURABLE_CIPHER", "our_keys_c57:cipher")
    inline(None)
    forget_process()
    monkeypatch.delenv("STRANDS_DURABLE_CIPHER")
    assert shown(old())
    monkeypatch.setenv("STRANDS_DURABLE_CIPHER", "our_keys_c57:missing")
    with pytest.raises(CipherError, match="has no object of the name"):
        connect(URL)


class Service:
    """A key management service: its key never leaves it."""

    current = "arn:key/1"

    def __init__(self) -> None:
        self._inside = Cipher({self.current: NEW})._service
        self.calls: list[str] = []

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        self.calls.append("wrap")
        return self._inside.wrap(key_id, data_key)

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        self.calls.append("unwrap")
        return self._inside.unwrap(key_id, wrapped)


def test_c57_a_key_service_is_asked_once_for_each_store_and_process() -> None:
    service = Service()
    cipher = Cipher(service)
    inline(cipher)
    forget_process()
    inline(cipher, "second")
    assert service.calls == ["wrap"]
    forget_process()
    other = Service()
    shown(Cipher(other))
    inline(Cipher(other), "third")
    assert set(other.calls) == {"unwrap"}


class _Broken(Service):
    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        raise ConnectionError("no route to the service")


def test_c57_a_key_service_that_fails_is_a_named_error() -> None:
    inline(Cipher(Service()))
    forget_process()
    with pytest.raises(CipherError, match="ConnectionError: no route"):
        shown(Cipher(_Broken()))


@pytest.mark.parametrize(
    ("given", "current", "why"),
    [
        ({"a": b"short"}, None, "is not 32 bytes"),
        ({"a": "not base64 !"}, None, "is not 32 bytes"),
        ({"a": OLD, "b": NEW}, None, "none is current"),
        ({"a": OLD}, "b", "has no key with the id"),
        ({}, None, "0 keys"),
        ({"": OLD}, None, "is empty"),
    ],
)
def test_c57_keys_that_are_none_are_refused(given: Any, current: str | None, why: str) -> None:
    with pytest.raises(CipherError, match=why) as raised:
        Cipher(given, current)
    assert "b'short'" not in repr(raised.value.args)


_ENGINES = {"dapr": "dapr://127.0.0.1:50001", "lambda": "lambda://planner:1", "memory": "memory://c57"}


@pytest.mark.parametrize("engine", _ENGINES)
def test_c57_an_engine_takes_a_cipher_from_code_and_from_the_environment(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def current(backend: Any) -> str | None:
        place = getattr(backend, "payload_store", None) or getattr(backend, "engine", None) or backend
        contents = place.log.contents if hasattr(place, "workers") else place.contents
        return None if contents.cipher is None else str(contents.cipher.current)

    url = _ENGINES[engine]
    assert current(connect(url)) is None
    assert current(connect(url, cipher=old())) == "2025"
    monkeypatch.setenv("STRANDS_DURABLE_CIPHER_KEYS", keys(k2026=NEW))
    assert current(connect(url)) == current(type(connect(url))(url)) == "k2026"  # type: ignore[call-arg]
    assert current(connect(url, cipher=old())) == "2025"
    with pytest.raises(TypeError, match=r"must be a strands_durable\.Cipher"):
        connect(url, cipher=OLD)  # type: ignore[arg-type]


def test_c57_an_engine_that_cannot_encrypt_refuses_a_cipher(monkeypatch: pytest.MonkeyPatch) -> None:
    from strands_durable._dispatch import connect as connecting

    class Plain:
        """A backend of another package, which knows no cipher."""

        def __init__(self, url: str) -> None:
            self.url = url

    monkeypatch.setattr(connecting, "_maker", lambda scheme: Plain)
    assert connect("plain://here").url == "plain://here"
    with pytest.raises(UnsupportedFeatureError, match="A cipher for a plain:// backend"):
        connect("plain://here", cipher=old())
    monkeypatch.setenv("STRANDS_DURABLE_CIPHER_KEYS", keys(k2025=OLD))
    with pytest.raises(UnsupportedFeatureError, match="A cipher for a plain:// backend"):
        connect("plain://here")


def test_c57_commands_that_need_no_key_do_not_load_cryptography() -> None:
    inline(None)
    forget_process()
    code = "import sys; from strands_durable._cli import main; sys.argv[1:] = ['ls', '--backend', 'runs.db']\n"
    code += "try: main()\nexcept SystemExit: pass\nprint([n for n in sys.modules if n.startswith('cryptography')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
