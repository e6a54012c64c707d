"""Messages and results as blocks that a template can draw: text, a tool call, a picture, a value. Nothing in them is HTML."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from .._records.stored_bytes import StoredBytes
from .._records.views import CallSummary, StepSummary
from ._timeline import grouped, step_place
from ._wording import MORE, MOST_CHARACTERS, line, text, written

_PICTURES = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""Formats that browsers draw without running anything, and how such files begin. SVG is a program, and is not one of them."""


_LEAST = 100
"""What a block takes of the room of a page in any case."""
_MOST_SAID = 1_000_000
"""How many characters of a conversation are looked at, unless all of it is asked for."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a message."""

    kind: Literal["text", "reasoning", "call", "picture", "value"]
    text: str
    name: str = ""
    source: str = ""
    """Of a small picture: a data URL that was made here."""
    digest: str = ""
    """Of a large one: what its bytes are read by."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """One message of a conversation."""

    role: str
    title: str
    blocks: tuple[Block, ...]
    place: str = ""
    """The step that it comes from, if it comes from one."""
    is_error: bool = False


def blocks_of(content: Any) -> tuple[Block, ...]:
    """Return the blocks of a prompt, of a message's content, or of any value."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Block(kind="text", text=text(content)),)
    if isinstance(content, list) and all(isinstance(block, dict) for block in content):
        if any("role" in block and "content" in block for block in content):  # a prompt of several messages
            return _beginning(found for message in content for found in blocks_of(message.get("content")))
        return _beginning(found for block in content for found in _blocks(block))
    return (Block(kind="value", text=written(content)),)


def _beginning(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return blocks up to the limit of what a browser can show, and whether there are more."""
    found, room = list[Block](), MOST_CHARACTERS
    for block in blocks:
        if room <= 0:
            return (*found, Block(kind="text", text=MORE))
        found.append(block)
        room -= len(block.text) + _LEAST
    return tuple(found)


def picture_format(data: bytes) -> str | None:
    """Return the format of a picture that a browser can only draw; None if it is something else."""
    return next((form for form, beginning in _PICTURES.items() if beginning.match(data)), None)


def result_blocks(step: StepSummary) -> tuple[Block, ...]:
    """Return the result of a step: the message of a model, the content of a tool's result, or a value."""
    result = step.result
    if step.kind == "model" and isinstance(result, dict):
        result = result.get("message", result)
    if isinstance(result, dict) and isinstance(result.get("content"), list) and step.kind in ("model", "tool"):
        return blocks_of(result["content"])
    return () if result is None else (Block(kind="value", text=written(result)),)


def conversation_of(call: CallSummary, last: int | None = None) -> tuple[list[Said], int]:
    """Return what was said in a call, its input, the answers of the model and the results of tools, and how much is left out.

    With ``last``, only the last messages, and fewer if they are large: a long conversation is not looked at as a whole.
    """
    steps, found, kept = _in_order(call), list[Said](), 0
    most, room = (inf, inf) if last is None else (last, _MOST_SAID)
    while kept < min(most, len(steps)) and room > 0:
        kept += 1
        said = list(_said(call, steps[-kept][-1]))
        found += reversed(said)
        room -= sum(len(block.text) for each in said for block in each.blocks)
    left_out = 1 + len(steps) - kept
    if left_out == 1 and kept < most and room > 0:
        given = "This input was redacted." if call.is_redacted else call.input
        found.append(Said(role="user", title="Input", blocks=blocks_of(given)))
        left_out = 0
    return found[::-1], left_out


def _in_order(call: CallSummary) -> list[list[StepSummary]]:
    """Return steps by their place in the conversation: keys sort so, whenever parallel tools have ended."""
    if call.kind != "agent":
        return []
    steps = [each for each in grouped(call).values() if each[0].kind in ("model", "tool")]
    return sorted(
        steps, key=lambda attempts: (attempts[0].key.partition("/")[0], attempts[0].kind != "model", attempts[0].key)
    )


def _said(call: CallSummary, step: StepSummary) -> Iterator[Said]:
    blocks = result_blocks(step)
    place = step_place(call, step)
    if step.kind == "model":
        title = "Model" if step.state in ("done", "error") else f"Model, {step.state}"
        if blocks or step.state != "done":
            yield Said(role="assistant", title=title, blocks=blocks or _nothing(step), place=place)
        return
    is_bad = step.state in ("error", "failed", "not storable", "in doubt")
    state = "" if step.state == "done" else f", {step.state}"
    yield Said(
        role="tool", title=f"{line(step.name)}{state}", blocks=blocks or _nothing(step), place=place, is_error=is_bad
    )


def _nothing(step: StepSummary) -> tuple[Block, ...]:
    return (Block(kind="text", text=text(step.error)),) if step.error else ()


def _blocks(block: dict[str, Any]) -> Iterator[Block]:
    if isinstance(block.get("text"), str):
        yield Block(kind="text", text=text(block["text"]))
    elif isinstance(use := block.get("toolUse"), dict):
        yield Block(kind="call", name=line(use.get("name")), text=written(use.get("input")))
    elif isinstance(result := block.get("toolResult"), dict):
        yield from blocks_of(result.get("content"))
    elif isinstance(thought := block.get("reasoningContent"), dict):
        said = _part(thought, "reasoningText").get("text")
        yield Block(kind="reasoning", text=text(said) if isinstance(said, str) else written(thought))
    elif isinstance(image := block.get("image"), dict):
        yield _picture(image)
    else:
        yield Block(kind="value", text=written(block["json"] if set(block) == {"json"} else block))


def _picture(image: dict[str, Any]) -> Block:
    """Return an image if it is one that a browser can only draw, a small one as a data URL; otherwise a note about it."""
    form, data = str(image.get("format")), _bytes(_part(image, "source").get("bytes"))
    if isinstance(data, StoredBytes) and form in _PICTURES:
        return Block(kind="picture", text=f"An image, {form}, {data.strip('<>')}", digest=data.digest)
    if isinstance(data, bytes) and form in _PICTURES and picture_format(data) == form:
        url = f"data:image/{form};base64,{base64.b64encode(data).decode()}"
        return Block(kind="picture", text=f"An image, {form}, {len(data)} bytes", source=url)
    size = f"{len(data)} bytes" if isinstance(data, bytes) else line(data or "")
    return Block(kind="value", text=f"An image, {line(form)} {size}".strip())


def _part(block: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a block; an empty one if a tool has sent something else there."""
    found = block.get(name)
    return found if isinstance(found, dict) else {}


def _bytes(recorded: Any) -> bytes | str | None:
    """Return recorded bytes; large ones are stored apart."""
    if (
        isinstance(recorded, dict)
        and recorded.get("$") in ("bytes", "bytearray")
        and isinstance(recorded.get("v"), str)
    ):
        try:
            return base64.b64decode(recorded["v"], validate=True)
        except binascii.Error:
            return None
    return recorded if isinstance(recorded, str) else None
