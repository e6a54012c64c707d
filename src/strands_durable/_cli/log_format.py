"""Logs of commands that run agents: lines for people, or one JSON object a line for a log collector."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import click

from .._records.printable import masked_text, printable

F = TypeVar("F", bound=Callable[..., Any])

LogFormat = Literal["text", "json"]
VARIABLE = "STRANDS_DURABLE_LOG_FORMAT"
_TEXT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
_FIELD = re.compile(r"(%s|(?<!\w)\w++)=<(%[^<>]+)>(?:, |$)")
_OWN = ("time", "level", "logger", "message", "exception")


def log_format_option(command: F) -> F:
    """Let a command choose how it logs."""
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        envvar=VARIABLE,
        show_envvar=True,
        help="How to log to stderr: lines for people, or one JSON object a line.",
    )(command)


def configure(log_format: LogFormat, level: int) -> None:
    """Log to stderr, unless a file has configured logging itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler])
    logging.getLogger("strands_durable").setLevel(level)


class _Masking(logging.Formatter):
    """Masks the tracebacks of every logger: exceptions quote the values that they are about."""

    def formatException(self, ei: Any) -> str:
        """Return a traceback without secrets and control characters."""
        return printable(masked_text(super().formatException(ei)))


class TextLines(_Masking):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__(_TEXT)


class JsonLines(_Masking):
    """One JSON object a line: time, level, logger and message; and ``execution_id``, ``step`` and the like as fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. What the logger has masked stays masked; a traceback is masked here."""
        fields, message = _parts(record)
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **{f"{name}_" if name in _OWN else name: value for name, value in fields.items()},
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            found["exception"] = record.exc_text
        return json.dumps(found)


def _parts(record: logging.LogRecord) -> tuple[dict[str, Any], str]:
    """Split a record of Strands' form, ``name=<%s>, other=<%d> | text``, into its fields and its text."""
    head, bar, text = str(record.msg).partition(" | ")
    arguments = list(record.args) if isinstance(record.args, tuple) else []
    entries = _FIELD.findall(head)
    used = sum(1 + (name == "%s") for name, _ in entries)
    is_ours = bar and _FIELD.sub("", head) == "" and used <= len(arguments)
    if not is_ours:
        return {}, record.getMessage()
    fields: dict[str, Any] = {}
    for name, form in entries:
        named = str(arguments.pop(0)) if name == "%s" else name
        value = arguments.pop(0)
        fields[named] = value if isinstance(value, (int, float)) else form % (value,)
    return fields, text % tuple(arguments) if arguments else text
