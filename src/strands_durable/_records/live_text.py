"""The text that a model is writing, masked as it grows: a secret arrives in pieces, none of which looks like one."""

from __future__ import annotations

import re
from itertools import takewhile

from .printable import masked_text, printable

_LONGEST_WORD = 400
_UNFINISHED = re.compile(rf"[!-~]{{0,{_LONGEST_WORD}}}\Z")
"""A word that may still be growing. Scripts without spaces are shown at once."""
_PARAGRAPH, _WORD = "\n\n", "word"
_MOST = 8_000
_MORE = "… The rest is shown when the step has ended.\n"


class LiveText:
    """What one reader has seen of the text of the running step."""

    def __init__(self) -> None:
        self._place: tuple[str, int] | None = None
        self._written = self._shown = ""
        self._is_over = False

    def grown(self, step: str, attempt: int, piece: str) -> str:
        """Return what can be shown in addition after another piece; the last word is held back until it ends.

        Only the current paragraph is looked at again, with those before it if a secret continues in it, so that a long text
        does not cost more with each piece; one that is too long for that ends what is shown of its step.
        """
        if (step, attempt) != self._place:
            self._place, self._written, self._shown, self._is_over = (step, attempt), "", "", False
        if self._is_over:
            return ""
        self._written += piece
        if len(self._written) > _MOST:
            self._is_over = True
            return _MORE
        word = _UNFINISHED.search(self._written, max(0, len(self._written) - _LONGEST_WORD))
        return self._added(self._written[: word.start()])  # type: ignore[union-attr]

    def rest(self) -> str:
        """Return what was held back, when nothing more comes of the step."""
        return "" if self._is_over else self._added(self._written)

    def _added(self, finished: str) -> str:
        shown = printable(masked_text(f" {finished}"))[1:]  # never as JSON, which would be formatted again
        # not always what was shown: "BEGIN PRIVATE" is, until "KEY" follows, and then all of it is one secret
        same = len(self._shown) if shown.startswith(self._shown) else _same(shown, self._shown)
        added, self._shown = shown[same:], shown
        if finished.endswith(_PARAGRAPH) and _is_closed(finished):
            self._written, self._shown = self._written[len(finished) :], ""
        return added


def _is_closed(paragraph: str) -> bool:
    """Return whether no secret continues after a paragraph: the next word would be shown."""
    return masked_text(f" {paragraph}{_WORD}").endswith(_WORD)


def _same(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
