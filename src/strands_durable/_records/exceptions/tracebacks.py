"""Where an exception came from, as text that can be recorded: bounded, masked, and without the values of variables.

It reads like Python's own traceback: causes and contexts first, the exceptions of a group below it. The frames of Strands, of
this package, of asyncio and of OpenTelemetry that led to the user's code are left out. Each part is cut before it is masked, so
that a long text costs no more than a short one. Does not import Strands.
"""

from __future__ import annotations

import asyncio
import concurrent
import functools
import itertools
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, ModuleType

from ..printable import masked_beginning, masked_text

MAX_LENGTH = 8_000
_MAX_LINKS, _MAX_MEMBERS, _MAX_DEPTH = 8, 4, 3
_FIRST_FRAMES, _LAST_FRAMES, _MAX_FRAMES = 6, 14, 100_000
_MAX_LINE, _MAX_TEXT = 300, 1_500
_PACKAGE = Path(__file__).parents[2]
_AGENTS = f"{_PACKAGE / 'testing'}{os.sep}"
"""Agents and models for tests: they stand in for the user's."""
_HEADING = "Traceback (most recent call last):"
_CAUSE = ["", "The above exception was the direct cause of the following exception:", ""]
_CONTEXT = ["", "During handling of the above exception, another exception occurred:", ""]


def traceback_of(error: BaseException) -> str | None:
    """Return where an exception, and what it was raised from, came from; None if it was never raised."""
    if error.__traceback__ is None and error.__cause__ is None and error.__context__ is None:
        return None
    try:
        return _joined(list(_chain(error, 0)))
    except Exception:  # what users raise may do anything when it is looked at, and must not break the step
        return None


def text_of(error: BaseException) -> str:
    """Return the text of an exception, or why it has none."""
    try:
        return str(error)
    except Exception as broken:
        return f"(no text: __str__ of {type(error).__name__} raised {type(broken).__name__})"


def _joined(lines: list[str]) -> str:
    """Return lines as one text: of too many, whole lines of the beginning and of the end."""
    if sum(map(len, lines)) + len(lines) <= MAX_LENGTH:
        return "\n".join(lines)
    first = _fitting(lines, MAX_LENGTH // 4)
    last = _fitting(reversed(lines[len(first) :]), MAX_LENGTH // 4 * 3 - 50)[::-1]
    return "\n".join([*first, f"  [{len(lines) - len(first) - len(last)} lines left out]", *last])


def _fitting(lines: Iterable[str], most: int) -> list[str]:
    """Return as many of the lines as fit."""
    found, left = [], most
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            break
        found.append(line)
    return found


def _chain(error: BaseException, depth: int) -> Iterator[str]:
    """Yield the lines of an exception, after those of the exceptions that led to it."""
    links, seen, current = [error], {id(error)}, _before(error)
    while current is not None and id(current) not in seen and len(links) < _MAX_LINKS:
        links.append(current)
        seen.add(id(current))
        current = _before(current)
    if current is not None and id(current) not in seen:
        yield "[earlier exceptions left out]"
    for index in reversed(range(len(links))):
        yield from _masked([*_frames(links[index]), *_said(links[index])])
        yield from _members(links[index], depth)
        if index:
            yield from _CONTEXT if links[index - 1].__cause__ is None else _CAUSE


def _before(error: BaseException) -> BaseException | None:
    """Return the exception that led to this one, as Python would print it."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _frames(error: BaseException) -> Iterator[str]:
    """Yield the lines of the frames, without those of the machinery around the user's code."""
    walked = itertools.islice(traceback.walk_tb(error.__traceback__), _MAX_FRAMES)
    found = [(frame, number) for frame, number in walked if number is not None]
    own = next((index for index, (frame, _) in enumerate(found) if not _is_machinery(frame)), 0)
    shown = found[own:]
    if found:
        yield _HEADING
    if len(shown) > _FIRST_FRAMES + _LAST_FRAMES:
        yield from _written(shown[:_FIRST_FRAMES])
        yield f"  [{len(shown) - _FIRST_FRAMES - _LAST_FRAMES} frames left out]"
        shown = shown[-_LAST_FRAMES:]
    yield from _written(shown)


def _written(frames: list[tuple[FrameType, int]]) -> Iterator[str]:
    """Yield two lines for each frame: the place, and the source there."""
    for entry in traceback.StackSummary.extract(iter(frames), capture_locals=False):
        yield f'  File "{entry.filename}", line {entry.lineno}, in {entry.name}'[:_MAX_LINE]
        if entry.line:
            yield f"    {masked_beginning(entry.line.strip(), _MAX_LINE)[0]}"


def _said(error: BaseException) -> Iterator[str]:
    """Yield the type and the text of an exception, and its notes."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = _cut(text_of(error))
    yield from (f"{name}: {text}" if text else name).split("\n")
    notes = getattr(error, "__notes__", ())
    for note in notes[:_MAX_MEMBERS] if isinstance(notes, list) else ():
        yield from _cut(note if isinstance(note, str) else "(a note that is no text)").split("\n")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{masked_beginning(text, _MAX_TEXT)[0]}…"


def _masked(lines: list[str]) -> list[str]:
    return masked_text("\n".join(lines)).split("\n")


def _members(error: BaseException, depth: int) -> Iterator[str]:
    """Yield the lines of the exceptions in a group, set in."""
    if not isinstance(error, BaseExceptionGroup):
        return
    members = error.exceptions if depth < _MAX_DEPTH else ()
    for number, member in enumerate(members[:_MAX_MEMBERS], 1):
        yield f"  +- {number} of {len(error.exceptions)}"
        yield from (f"  |  {line}" for line in _chain(member, depth + 1))
    if len(error.exceptions) > len(members[:_MAX_MEMBERS]):
        yield f"  +- [{len(error.exceptions) - len(members[:_MAX_MEMBERS])} of {len(error.exceptions)} left out]"


def _is_machinery(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_machinery()) and not name.startswith(_AGENTS)


@functools.cache
def _machinery() -> tuple[str, ...]:
    """Return the folders whose frames lead to the user's code and say nothing about it."""
    modules = [asyncio, concurrent, *map(sys.modules.get, ("strands", "opentelemetry"))]
    found = [path for module in modules if module is not None for path in _folders(module)]
    return tuple(f"{path}{os.sep}" for path in (*found, _PACKAGE))


def _folders(module: ModuleType) -> list[str]:
    return list(module.__path__)
