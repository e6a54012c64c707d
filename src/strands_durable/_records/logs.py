"""Loggers with protection against forged lines: the ids, names and errors in them come from users, models and tools."""

from __future__ import annotations

import logging
from typing import Any

from .printable import masked_beginning, one_line, printable

_LENGTH = 4_000


def safe_logger(name: str) -> logging.Logger:
    """Return a module's logger. Each argument of a log call becomes one line without control characters and secrets."""
    logger = logging.getLogger(name)
    if _clean not in logger.filters:
        logger.addFilter(_clean)
    return logger


def _clean(record: logging.LogRecord) -> bool:
    """Clean the arguments and keep the template: handlers group records by it.

    A recorded traceback, given as ``extra={"traceback": text}``, is printed as one of Python's would be; it has no secrets.
    """
    if (traceback := getattr(record, "traceback", None)) is not None:
        record.exc_text = printable(traceback)
    if isinstance(record.args, tuple):
        record.args = tuple(value if isinstance(value, (int, float)) else _Line(value) for value in record.args)
    return True


class _Line:
    """An argument of a log call, as one line; rendered only if the record is emitted."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return _safe(str(self._value))

    def __repr__(self) -> str:
        return _safe(repr(self._value))


def _safe(text: str) -> str:
    return one_line(masked_beginning(text, _LENGTH)[0])
