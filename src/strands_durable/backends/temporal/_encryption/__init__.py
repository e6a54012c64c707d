"""Encrypts what is sent to Temporal: every payload and every text of a failure, by the codec of the client.

Ids, the names of workflows and activities, and times stay readable. The codec works outside of workflows, which never see an
encrypted value. Payloads that are not encrypted can be read: history cannot be changed, and what began before there was a
cipher has to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from ...._records.cipher import Cipher, WrappedKey
from ...._records.cipher_setting import cipher_or_default
from ....errors import CipherError, UnsupportedFeatureError

ENCODING = b"binary/strands-durable-sealed"
_ABOUT = b"a payload of Temporal"


class CipherCodec(PayloadCodec):
    """Encrypts payloads with a data key of this process, which travels with each of them, wrapped."""

    def __init__(self, cipher: Cipher, where: str) -> None:
        self._cipher, self._where = cipher, where
        self._key: WrappedKey | None = None

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return payloads encrypted."""
        key = self._key = self._key or self._cipher.new_data_key(self._where)
        metadata = {"encoding": ENCODING, "key_id": key.key_id.encode(), "key": key.wrapped}
        return [Payload(metadata=metadata, data=key.key.seal(each.SerializeToString(), _ABOUT)) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return payloads as they were; those that were never encrypted are as they are."""
        return [self._opened(each) if each.metadata.get("encoding") == ENCODING else each for each in payloads]

    def _opened(self, payload: Payload) -> Payload:
        key_id = payload.metadata["key_id"].decode()
        key = self._cipher.data_key(key_id, payload.metadata["key"], self._where)
        data = key.open(payload.data, _ABOUT)
        if data is None:
            raise CipherError(self._where, f"a payload is not what was encrypted (key {key_id!r})", "", key_id)
        return Payload.FromString(data)


def cipher_for(given: Cipher | None, client: Client | None, connect: Mapping[str, Any] | None) -> Cipher | None:
    """Return the cipher of a backend; refuse one beside a client or a data converter of the user's own."""
    cipher = cipher_or_default(given)
    if cipher is not None and (client is not None or "data_converter" in (connect or {})):
        raise UnsupportedFeatureError(
            "A cipher beside a client or data converter of your own",
            "their codec decides what Temporal stores",
            "Leave out the client, or leave out the cipher and give the client a codec.",
        )
    return cipher


def encrypting(cipher: Cipher | None, where: str) -> dict[str, Any]:
    """Return the arguments of a client that encrypts; none without a cipher."""
    if cipher is None:
        return {}
    converter = replace(DataConverter.default, payload_codec=CipherCodec(cipher, where))
    return {"data_converter": replace(converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)}
