"""The options in the URL of an engine."""

from __future__ import annotations

import os
from collections.abc import Collection
from urllib.parse import parse_qsl

PAYLOADS = "STRANDS_DURABLE_PAYLOADS"
"""The payload storage if the URL names none, so that a key in it appears on no command line."""


def options_of(query: str, takes: Collection[str]) -> dict[str, str]:
    """Return the options of a URL, ``payloads`` also from the environment; a `ValueError` for one that it does not take."""
    options = dict(parse_qsl(query, strict_parsing=bool(query)))
    unknown = sorted(set(options) - set(takes))
    if unknown:
        raise ValueError(f"unknown option {', '.join(unknown)}")
    payloads = options.get("payloads") or os.environ.get(PAYLOADS)
    return {**options, "payloads": payloads} if payloads else options
