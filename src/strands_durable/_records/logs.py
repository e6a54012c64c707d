"""Loggers whose lines nobody can forge: ids, names and errors in them come from users, models and tools."""

from __future__ import annotations

import logging
from typing import Any

from .printable import masked_text, one_line

_LENGTH = 4_000


def safe_logger(name: str) -> logging.Logger:
    """Return the logger of a module. What its calls are given is one line each, without control characters and secrets."""
    logger = logging.getLogger(name)
    if _clean not in logger.filters:
        logger.addFilter(_clean)
    return logger


def _clean(record: logging.LogRecord) -> bool:
    """Clean the arguments, and leave the template: handlers group records by it."""
    if isinstance(record.args, tuple):
        record.args = tuple(found if isinstance(found, (int, float)) else _Line(found) for found in record.args)
    return True


class _Line:
    """An argument of a log call, as one line; what is not logged after all is not rendered."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __str__(self) -> str:
        return _safe(str(self._found))

    def __repr__(self) -> str:
        return _safe(repr(self._found))


def _safe(text: str) -> str:
    return one_line(masked_text(text[:_LENGTH]))
