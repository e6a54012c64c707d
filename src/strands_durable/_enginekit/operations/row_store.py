"""Rows and texts as operations record them: small ones as they are, large ones packed or offloaded; encrypted with a cipher.

What decides which operation comes next is never encrypted, so that a function without the key makes the same operations. What
is in plain text can be read: no record can be changed, and people give prompts and answers with the engine's own tools.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ..._records.change_sets import ChangeSet
from ..._records.cipher import Cipher
from ..._records.cipher_setting import cipher_or_default
from ...errors import CipherError
from ..encryption import Contents
from ..payloads import PayloadLimits, PayloadStore

_SEALED = "AAE"
"""How the base64 of encrypted rows begins; that of compressed ones does not."""


class RowStore(PayloadStore):
    """Records rows in operations.

    Args:
        url: External storage for what is large, if any.
        limits: The limits of the engine.
        cipher: Encrypts them. If None, the cipher that the environment names, if any.
        where: Where they are recorded, for errors.
    """

    def __init__(self, url: str | None, limits: PayloadLimits, *, cipher: Cipher | None, where: str) -> None:
        cipher = cipher_or_default(cipher)
        super().__init__(url, limits, cipher=cipher)
        self.contents = Contents(cipher, where, reads_plain=True)

    def record(
        self,
        rows: ChangeSet,
        what: str,
        about: str,
        *,
        plainly: bool = True,
        limit: int | None = None,
        put: Callable[[str], ChangeSet] | None = None,
    ) -> ChangeSet:
        """Return rows in the form in which they are recorded, as `offload` does; ``about`` says which they are."""
        if not rows or not self.contents.is_sealing:
            return self.offload(rows, what, plainly=plainly, limit=limit, put=put)
        return self.offload(rows, what, plainly=False, limit=limit, put=put, changed=partial(self._sealed_text, about))

    def recorded(self, rows: ChangeSet, about: str) -> tuple[ChangeSet, str | None]:
        """Return rows as they were, and the key that they were encrypted with; raise `CipherError` without the key."""
        key_id = None

        def opened(packed: str) -> str:
            nonlocal key_id
            if not packed.startswith(_SEALED):
                return packed
            data = base64.b64decode(packed)
            key_id = self.contents.key_id(data)
            return base64.b64encode(self.contents.open(data, about)).decode()

        try:
            return self.load(rows, opened), key_id
        except (zlib.error, ValueError) as error:
            if not self.contents.is_sealing:
                raise
            hint = "Remove the execution, if it does not go away."
            raise CipherError(self.contents.where, f"{about} is neither encrypted nor readable", hint) from error

    def _sealed_text(self, about: str, packed: str) -> str:
        return base64.b64encode(self.contents.seal(base64.b64decode(packed), about)).decode()

    def readable(self, value: Any, about: str) -> str | None:
        """Return a recorded text for people; why it cannot be read, if so."""
        try:
            found = self.contents.open_value(value, about)
        except CipherError as error:
            return error.reason
        return None if found is None else str(found)


def start_of(execution_id: str) -> str:
    """Return what the rows are that a log begins with."""
    return f"the beginning of execution {execution_id!r}"


def batch_of(execution_id: str, number: int) -> str:
    """Return what the rows of a message are."""
    return f"batch {number} of execution {execution_id!r}"


def text_of(execution_id: str, what: str) -> str:
    """Return what a text is that is recorded beside rows."""
    return f"{what} of execution {execution_id!r}"
