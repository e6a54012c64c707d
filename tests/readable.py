"""Where a word is readable in stored bytes: as it is, or in any of the forms in which the package and engines write text."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from strands_durable._enginekit.key_value.packing import unpack

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_DEPTH = 3


def is_readable(word: str, data: bytes, depth: int = _DEPTH) -> bool:
    """Return whether a word is in data, also if it is compressed, packed, or in base64, one in the other."""
    if word.encode() in data or word.encode("utf-16-le") in data:
        return True
    return depth > 0 and any(is_readable(word, each, depth - 1) for each in _inside(data))


def files_with(word: str, folder: Path) -> list[str]:
    """Return the files of a folder that contain a word as it is, or in base64."""
    forms = [word.encode(), *(base64.b64encode(b"x" * shift + word.encode())[4:-4] for shift in range(3))]
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(form in path.read_bytes() for form in forms)
    ]


def _inside(data: bytes) -> Iterator[bytes]:
    try:
        yield str(unpack(data)).encode("utf-8", "surrogatepass")
    except (KeyError, ValueError, zlib.error):
        pass
    for found in _ZLIB.finditer(data):
        try:
            yield zlib.decompressobj().decompress(data[found.start() :])
        except zlib.error:
            continue
    for text in _BASE64.findall(data):
        try:
            yield base64.b64decode(text + b"=" * (-len(text) % 4))
        except binascii.Error:
            continue
