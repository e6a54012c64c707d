"""What the function and its clients have in common: limits, and the names of durable executions."""

from __future__ import annotations

import hashlib
import re

from ..._enginekit.payloads import PayloadLimits
from ..._records.keys import checked_id

WHERE = "AWS Lambda"
"""The engine, for errors of a function about what it records."""
SUB_TYPE = "strands-durable"
"""Marks the steps of ours among those of a handler that has others."""
SEGMENT = "segment "
"""Begins the names of the invocations by which further durable executions continue one."""
LIMITS = PayloadLimits(max_bytes=200_000, max_text=4_000_000, plain_bytes=120_000, cell_bytes=64_000)
"""AWS refuses a step's result above 256 KB; what is larger is sent in pieces, each a step."""
CHAINED_BYTES = 900_000
"""AWS refuses the input of a chained invocation, or of an asynchronous one, above 1 MiB."""


_PLAIN = re.compile(r"(?!.*--)[A-Za-z0-9_-]{1,56}")


def execution_name(execution_id: str, attempt: int) -> str:
    """Return the name of a durable execution: the id, in an encoded form if AWS does not allow it, and the attempt."""
    if _PLAIN.fullmatch(checked_id(execution_id)):
        return f"{execution_id}--{attempt}"
    slug = re.sub(r"[^A-Za-z0-9_]+", "-", execution_id)[:28].strip("-") or "x"
    return f"{slug}--{hashlib.sha256(execution_id.encode()).hexdigest()[:24]}--{attempt}"


def attempt_of(name: str) -> tuple[str, int] | None:
    """Return the encoded id and the attempt in the name of a durable execution; None if it is not one of ours."""
    found = re.fullmatch(r"(.+)--([1-9][0-9]{0,3})", name)
    return (found[1], int(found[2])) if found else None
