"""Everything that is stored of an engine on a key-value store, as workers and clients use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..._records.change_sets import ChangeSet
from ..._records.cipher import Cipher
from ..encryption import Contents
from .heartbeat import Workers
from .log import KeyValueLog
from .notices import Notices
from .open_executions import OpenExecutions
from .shared_map import SharedMap
from .store import KeyValueStore


@dataclass(frozen=True, kw_only=True)
class KeyValueEngine:
    """What is in one store."""

    store: KeyValueStore
    log: KeyValueLog
    index: SharedMap
    """All executions, with the times at which they were dispatched."""
    open: OpenExecutions
    workers: Workers
    notices: Notices

    @classmethod
    def at(
        cls,
        store: KeyValueStore,
        on_append: Callable[[str, ChangeSet], None] | None = None,
        cipher: Cipher | None = None,
    ) -> KeyValueEngine:
        """Return what is in a store."""
        contents = Contents(cipher, store.where)
        notices, index, workers = Notices(store, contents), SharedMap(store, "executions"), Workers(store)
        log = KeyValueLog(store, on_append, notices, contents)
        open_ = OpenExecutions(store, log)
        return cls(store=store, log=log, index=index, open=open_, workers=workers, notices=notices)
