"""The stores that this process has open: each once, with the heartbeat that renews its leases. Knows no Strands."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from .._records.cipher import Cipher
from ..errors import BackendUnavailableError
from .database import Store
from .heartbeat import LeaseRenewer
from .os_fork import REST_SECONDS

BUSY_SECONDS = 10.0
REPLICA = "replica:"
"""The prefix of the paths of stores in memory: no file has such a name."""


class Stores:
    """Every open store of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open: dict[Path, tuple[Store, LeaseRenewer]] = {}
        self._is_resting = False

    def open(
        self, path: Path, busy_seconds: float = BUSY_SECONDS, cipher: Cipher | None = None
    ) -> tuple[Store, LeaseRenewer]:
        """Return the store at ``path``, opened once; raise `CipherError` if ``cipher`` is not one for it."""
        with self._lock:
            self._forget_after_fork()
            found = self._open.get(path)
            if found is not None and not found[0].is_current:
                if not found[0].is_replaced:
                    found[0].refuse_other()  # to make another would be to lose this one without a word
                found = None
            if path.name.startswith(REPLICA):
                raise BackendUnavailableError(str(path), "this process released the execution to another worker")
            if found is None:
                store = Store(path, busy_seconds=busy_seconds, cipher=cipher)
                found = self._open[path] = (store, LeaseRenewer(store))
            found[0].refuse_cipher(cipher)
            return found

    def _forget_after_fork(self) -> None:
        """A SQLite connection must not be used across a fork."""
        if self._pid != os.getpid():
            self._pid, self._open = os.getpid(), {}

    def before_fork(self) -> None:
        """Before a fork: wait until no store is being opened or closed."""
        self._is_resting = self._lock.acquire(timeout=REST_SECONDS)

    def after_fork(self) -> None:
        """After a fork, in parent and child."""
        if self._is_resting:
            self._lock.release()
        elif self._pid != os.getpid():
            self._lock = threading.Lock()  # the thread that held it is not here

    def drop(self, path: Path) -> None:
        """Forget a store that failed: the next call opens the file again."""
        with self._lock:
            found = self._open.get(path)
            if found is not None and not (found[0].is_abandoned and not found[0].is_replaced):
                del self._open[path]

    def close(self) -> None:
        """Close all stores; the last connection to close one leaves one file, without a WAL beside it."""
        with self._lock:
            if self._pid == os.getpid():
                for store, renewer in self._open.values():
                    renewer.stop()
                    store.close()
            self._open = {}


stores = Stores()
atexit.register(stores.close)
if hasattr(
    os, "register_at_fork"
):  # after those of the connections: what is registered last is asked first before a fork
    os.register_at_fork(before=stores.before_fork, after_in_parent=stores.after_fork, after_in_child=stores.after_fork)
