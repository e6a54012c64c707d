"""Executions that cannot be read: each is named and put aside, and none keeps a process from the others. Knows no Strands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .._records.logs import safe_logger
from .._records.registered_types import known_names
from ..errors import BackendUnavailableError, DurableError, TypeNotRegisteredError, UnreadableError

if TYPE_CHECKING:
    from .sqlite.database import Store

logger = safe_logger(__name__)

DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
_AGAIN_SECONDS = 600.0


@contextmanager
def reading(execution_id: str | None = None) -> Iterator[None]:
    """Read rows of one execution: whatever is wrong with them becomes an `UnreadableError` that names it."""
    try:
        yield
    except UnreadableError as error:
        raise error.of(execution_id) from error.__cause__
    except BackendUnavailableError as error:
        if not _is_about_a_row(error):
            raise
        raise UnreadableError(f"a row of it is damaged ({error.reason})", "", execution_id) from error
    except DurableError:
        raise
    except DAMAGE as error:
        raise UnreadableError(f"a row of it is damaged ({type(error).__name__}: {error})", "", execution_id) from error


def _is_about_a_row(error: BackendUnavailableError) -> bool:
    """Return True if an error of the store is about the row that was read, and not about the store as a whole."""
    return error.reason.startswith("the file is damaged: ") or "decode to UTF-8" in str(error.__cause__)


@dataclass(frozen=True, kw_only=True)
class _Put:
    until: float
    """When to look at it again, on the monotonic clock: it may have been repaired."""
    names: frozenset[str] | None
    """The types that were registered, if it is one more that is missing: then nothing else will help."""

    def is_due(self, now: float, names: frozenset[str]) -> bool:
        return now >= self.until if self.names is None else names != self.names


class Aside:
    """The executions that this process could not read; a worker looks for others."""

    def __init__(self) -> None:
        self._put: WeakKeyDictionary[Store, dict[int, _Put]] = WeakKeyDictionary()
        """By the open store: a row of the same number in a file that took its place is another execution."""
        self._logged: dict[tuple[Path, str], str] = {}

    def put(self, store: Store, row_id: int, execution_id: str, error: UnreadableError) -> None:
        """Look at an execution no more for a while; say so once for each reason."""
        names = known_names() if isinstance(error, TypeNotRegisteredError) else None
        self._put.setdefault(store, {})[row_id] = _Put(until=time.monotonic() + _AGAIN_SECONDS, names=names)
        place = (store.path, execution_id)
        if self._logged.get(place) != error.reason:
            self._logged[place] = error.reason
            logger.error(
                "execution_id=<%s>, reason=<%s> | cannot be read, put aside. %s", execution_id, error.reason, error.hint
            )

    def ids(self, store: Store) -> list[int]:
        """Return the rows that are not looked at now."""
        now, names = time.monotonic(), known_names()
        return [row_id for row_id, put in list(self._put.get(store, {}).items()) if not put.is_due(now, names)]


aside = Aside()
