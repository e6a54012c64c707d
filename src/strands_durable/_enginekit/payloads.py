"""ChangeSet on their way to an engine that takes only so much: what is too large is kept elsewhere, by its digest.

The place is named by a URL, and reached through `fsspec`: a shared folder, a bucket. Nothing is ever deleted there by us: what
an engine's history refers to must be there for as long as the history is. Knows no Strands and no engine.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BackendUnavailableError, PayloadTooLargeError
from .change_sets import ChangeSet, map_cells, pack, unpack


@dataclass(frozen=True, kw_only=True)
class PayloadLimits:
    """What an engine takes. The defaults suit Temporal, which refuses a payload of 2 MB."""

    max_bytes: int = 1_800_000
    """How large a change set may be."""
    max_text: int = 1_500_000
    """How long one result may be where there is no place outside."""
    plain_bytes: int = 200_000
    """Above this, change sets are packed; they are for machines then."""
    cell_bytes: int = 64_000
    """Above this, a cell goes outside, if there is a place for it."""


_AWAY = "o"
_PACKED = "packed"


class PayloadStore:
    """A place for what is too large."""

    limits = PayloadLimits()

    def __init__(self, url: str | None, limits: PayloadLimits | None = None) -> None:
        self._url = url
        if limits is not None:
            self.limits = limits

    @property
    def is_external(self) -> bool:
        """Whether something may have to be written elsewhere, which takes time."""
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
    ) -> ChangeSet:
        """Return rows in a form that an engine takes.

        Args:
            rows: The rows.
            what: What they are, for an error.
            plainly: Whether people look at them there.
            limit: How many bytes the engine takes with them, if not as many as ever.
            put: Takes packed rows that are larger, where there is no place outside; returns what stands for them.
        """
        if self._url is not None:
            rows = map_cells(rows, self._offload)
        if plainly and len(json.dumps(rows)) <= self.limits.plain_bytes:
            return rows
        packed, limit = pack(rows), self.limits.max_bytes if limit is None else limit
        if len(packed) > limit:
            if self._url is not None:
                return {_AWAY: self._put(packed.encode())}
            if put is None:
                raise PayloadTooLargeError(what, len(packed), limit)
            return put(packed)
        return {_PACKED: packed}

    def load(self, rows: ChangeSet) -> ChangeSet:
        """Return the rows that were sent."""
        if _AWAY in rows:
            rows = {_PACKED: self._get(rows[_AWAY]).decode()}
        if _PACKED in rows:
            rows = unpack(rows[_PACKED])
        loaded: ChangeSet = map_cells(rows, self._load)
        return loaded

    def _offload(self, cell: Any) -> Any:
        if isinstance(cell, str) and len(cell) > self.limits.cell_bytes:
            return {_AWAY: self._put(cell.encode("utf-8", "surrogatepass"))}
        if isinstance(cell, dict) and len(cell.get("b", "")) > self.limits.cell_bytes:
            return {_AWAY: self._put(cell["b"].encode()), "as": "b"}
        return cell

    def _load(self, cell: Any) -> Any:
        if not isinstance(cell, dict) or _AWAY not in cell:
            return cell
        text = self._get(cell[_AWAY]).decode("utf-8", "surrogatepass")
        return {"b": text} if "as" in cell else text

    def _put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        files, root = self._files()
        name = f"{root}/{digest}"
        if files.exists(name):
            return digest
        if "file" in files.protocol:
            _write_whole(Path(name), data)
        else:
            files.pipe_file(name, data)
        return digest

    def _get(self, digest: str) -> bytes:
        if not digest.isalnum():
            raise BackendUnavailableError("payloads", f"{digest!r} is not a digest")
        files, root = self._files()
        try:
            data: bytes = files.cat_file(f"{root}/{digest}")
        except FileNotFoundError as error:
            raise BackendUnavailableError(self._place, f"payload {digest} is missing") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise BackendUnavailableError(self._place, f"payload {digest} does not match its digest")
        return data

    @property
    def _place(self) -> str:
        """Its URL without the password that may be in it."""
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
    """Write a file that only its owner may read, whole or not at all."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
