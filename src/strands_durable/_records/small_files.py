"""Small files that people name, such as those that hold a secret: a device or pipe of that name may have no end."""

from __future__ import annotations

from pathlib import Path

_MOST_BYTES = 65_536


def text_in(path: Path) -> str:
    """Return the text of a small file; raise `ValueError` with the reason, which quotes none of it, if it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(error.strerror or type(error).__name__) from None
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8") from None
