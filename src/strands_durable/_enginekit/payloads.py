"""Offloads what is above the size limit of an engine to external storage, addressed by SHA-256.

A URL names the storage, a shared folder or a bucket, which is accessed through `fsspec`. We never delete anything there: a
payload must exist for as long as the engine's history that refers to it. Does not depend on Strands or any engine.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._records.change_sets import ChangeSet, map_cells, pack, unpack
from .._records.cipher import Cipher, WrappedKey
from ..errors import BackendUnavailableError, CipherError, PayloadTooLargeError


@dataclass(frozen=True, kw_only=True)
class PayloadLimits:
    """The size limits of an engine. The defaults suit Temporal, which refuses a payload of 2 MB."""

    max_bytes: int = 1_800_000
    """How large a change set may be."""
    max_text: int = 1_500_000
    """How long one result may be without external storage."""
    plain_bytes: int = 200_000
    """Above this, change sets are packed, and no longer readable in the engine's views."""
    cell_bytes: int = 64_000
    """Above this, a cell is offloaded, if there is external storage."""


_SEALED = b"\x00strands-durable sealed payload\n"
"""What an encrypted payload begins with; one in plain text is JSON, base64 or text of ours, which never does."""
AWAY, PACKED = "o", "packed"
"""Used as a table's name, for offloaded and for packed rows."""


class PayloadStore:
    """External storage for payloads that are too large for the engine."""

    limits = PayloadLimits()

    def __init__(self, url: str | None, limits: PayloadLimits | None = None, *, cipher: Cipher | None = None) -> None:
        self._url, self._cipher = url, cipher
        self._key: WrappedKey | None = None
        if limits is not None:
            self.limits = limits

    @property
    def is_external(self) -> bool:
        """Whether payloads may be written to external storage, which takes time."""
        return self._url is not None

    @property
    def max_text(self) -> int | None:
        """How long the recorded form of a result may be; None for any length."""
        return self.limits.max_text if self._url is None else None

    def offload(
        self,
        rows: ChangeSet,
        what: str,
        *,
        plainly: bool = True,
        limit: int | None = None,
        put: Callable[[str], ChangeSet] | None = None,
        changed: Callable[[str], str] | None = None,
    ) -> ChangeSet:
        """Return rows in a form that the engine accepts.

        Args:
            rows: The rows.
            what: What they are, for an error.
            plainly: Whether small rows stay readable in the engine's views.
            limit: How many bytes the engine accepts here; its usual limit if None.
            put: Called with packed rows above the limit if there is no external storage; returns a reference to them.
            changed: Called with packed rows; returns what is recorded in their place.
        """
        if self._url is not None:
            rows = map_cells(rows, self._offload)
        if plainly and len(json.dumps(rows)) <= self.limits.plain_bytes:
            return rows
        packed, limit = pack(rows), self.limits.max_bytes if limit is None else limit
        packed = packed if changed is None else changed(packed)
        if len(packed) > limit:
            if self._url is not None:
                return {AWAY: self._put(packed.encode())}
            if put is None:
                raise PayloadTooLargeError(what, len(packed), limit)
            return put(packed)
        return {PACKED: packed}

    def load(self, rows: ChangeSet, unchanged: Callable[[str], str] | None = None) -> ChangeSet:
        """Return rows in their original form, with offloaded payloads loaded; ``unchanged`` undoes what `offload` changed."""
        if AWAY in rows:
            rows = {PACKED: self._get(rows[AWAY]).decode()}
        if PACKED in rows:
            rows = unpack(rows[PACKED] if unchanged is None else unchanged(rows[PACKED]))
        loaded: ChangeSet = map_cells(rows, self._load)
        return loaded

    def _offload(self, cell: Any) -> Any:
        if isinstance(cell, str) and len(cell) > self.limits.cell_bytes:
            return {AWAY: self._put(cell.encode("utf-8", "surrogatepass"))}
        if isinstance(cell, dict) and len(cell.get("b", "")) > self.limits.cell_bytes:
            return {AWAY: self._put(cell["b"].encode()), "as": "b"}
        return cell

    def _load(self, cell: Any) -> Any:
        if not isinstance(cell, dict) or AWAY not in cell:
            return cell
        text = self._get(cell[AWAY]).decode("utf-8", "surrogatepass")
        return {"b": text} if "as" in cell else text

    def _put(self, data: bytes) -> str:
        data = data if self._cipher is None else self._sealed(data, self._cipher)
        digest = hashlib.sha256(data).hexdigest()
        with self._translated():
            files, root = self._files()
            name = f"{root}/{digest}"
            if files.exists(name):
                return digest
            if "file" in files.protocol:
                _write_whole(Path(name), data)
            else:
                files.pipe_file(name, data)
        return digest

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Make any error of the storage one of ours: a caller may try again."""
        try:
            yield
        except BackendUnavailableError:
            raise
        except ImportError as error:
            raise BackendUnavailableError(self._place, str(error), "Install what fsspec needs for it.") from error
        except Exception as error:
            raise BackendUnavailableError(self._place, f"{type(error).__name__}: {error}") from error

    def _get(self, digest: str) -> bytes:
        if not digest.isalnum():
            raise BackendUnavailableError("payloads", f"{digest!r} is not a digest")
        with self._translated():
            files, root = self._files()
            try:
                data: bytes = files.cat_file(f"{root}/{digest}")
            except FileNotFoundError as error:
                raise BackendUnavailableError(self._place, f"payload {digest} is missing") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise BackendUnavailableError(self._place, f"payload {digest} does not match its digest")
        return self._opened(digest, data) if data.startswith(_SEALED) else data

    def _sealed(self, data: bytes, cipher: Cipher) -> bytes:
        """Return a payload encrypted, with its data key; it is named by what is stored, which no other payload equals."""
        key = self._key = self._key or cipher.new_data_key(self._place)
        head = json.dumps({"key_id": key.key_id, "key": base64.b64encode(key.wrapped).decode()}).encode()
        return _SEALED + head + b"\n" + key.key.seal(data, _SEALED)

    def _opened(self, digest: str, data: bytes) -> bytes:
        head, _, sealed = data[len(_SEALED) :].partition(b"\n")
        named = json.loads(head)
        if self._cipher is None:
            reason = f"payload {digest} is encrypted with the key {named['key_id']!r}, and no cipher was given"
            raise CipherError(self._place, reason, "", named["key_id"])
        key = self._cipher.data_key(named["key_id"], base64.b64decode(named["key"]), self._place)
        found = key.open(sealed, _SEALED)
        if found is None:
            raise CipherError(self._place, f"payload {digest} is not what was encrypted", "", named["key_id"])
        return found

    @property
    def _place(self) -> str:
        """Its URL, without any password."""
        scheme, found, rest = str(self._url).rpartition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}{found}{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"

    def _files(self) -> tuple[Any, str]:
        if self._url is None:
            hint = "Use the URL of the process that recorded it, including payloads=."
            raise BackendUnavailableError("payloads", "payloads were offloaded, but the URL names no store", hint)
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]

        files, root = url_to_fs(self._url)
        files.makedirs(root, exist_ok=True)
        return files, root


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
