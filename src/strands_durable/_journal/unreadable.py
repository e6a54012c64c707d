"""Executions that cannot be read: what is wrong with their rows becomes an error that names them. Knows no Strands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import BackendUnavailableError, DurableError, UnreadableError

DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


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
