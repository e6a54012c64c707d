"""Parses a ``lambda://`` URL. It contains no credentials: those come from AWS's own environment, files and roles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..._enginekit.urls import options_of
from ...errors import UnsupportedFeatureError

_TAKES = ("region", "endpoint", "payloads")
_FUNCTION = re.compile(r"([A-Za-z0-9_.:-]*[A-Za-z0-9_.-]):(\$LATEST|[A-Za-z0-9_-]+)")


@dataclass(frozen=True, kw_only=True)
class LambdaConfig:
    """A durable function."""

    function: str
    """Its name, or its ARN without the qualifier."""
    qualifier: str
    region: str | None
    endpoint: str | None
    payloads: str | None

    @classmethod
    def of(cls, url: str) -> LambdaConfig:
        """Read a URL."""
        place, _, query = url.removeprefix("lambda://").partition("?")
        try:
            options = options_of(query, _TAKES)
            found = _FUNCTION.fullmatch(place)
            if found is None or found[1].endswith(":function"):
                raise ValueError("it names no version or alias of a function")
        except ValueError as error:
            raise UnsupportedFeatureError(
                "This lambda:// URL",
                f"{error}; it is lambda://FUNCTION:QUALIFIER, with the options {', '.join(_TAKES)} after a question mark",
                "QUALIFIER is a version or an alias: AWS runs an execution to its end with the version it began with.",
            ) from error
        return cls(
            function=found[1],
            qualifier=found[2],
            region=options.get("region") or (found[1].split(":")[3] if found[1].startswith("arn:") else None),
            endpoint=options.get("endpoint"),
            payloads=options.get("payloads"),
        )

    @classmethod
    def running(cls, context: Any) -> LambdaConfig:
        """Return the version of the function that runs with a Lambda context: an alias may point to another one by now."""
        arn = str(context.invoked_function_arn).split(":")[:7]
        version = str(context.function_version)
        return cls(function=":".join(arn), qualifier=version, region=arn[3], endpoint=None, payloads=None)

    def __str__(self) -> str:
        return f"lambda://{self.function}:{self.qualifier}"
