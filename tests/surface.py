"""The public surface as data: every public name with its signature. Run as a module to write it down.

A test compares with `surface.json`. A difference is a change for users, and comes with a line in CHANGELOG.md.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
from pathlib import Path
from typing import Any, ForwardRef, is_typeddict

FILE = Path(__file__).with_name("surface.json")
MODULES = (
    "strands_durable",
    "strands_durable.backends.aws_lambda",
    "strands_durable.backends.dapr",
    "strands_durable.backends.sqlite",
    "strands_durable.backends.temporal",
    "strands_durable.durable",
    "strands_durable.errors",
    "strands_durable.testing",
    "strands_durable.testing.aws_lambda",
    "strands_durable.testing.contract",
    "strands_durable.testing.dapr",
    "strands_durable.testing.temporal",
    "strands_durable.ui",
)


def surface() -> dict[str, dict[str, Any]]:
    """Return what a user may rely on, by module and name."""
    return {name: _names(importlib.import_module(name)) for name in MODULES}


def _names(module: Any) -> dict[str, Any]:
    listed = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__ and callable(value)
    ]
    return {name: _shape(getattr(module, name)) for name in sorted(listed)}


def _shape(value: Any) -> Any:
    if inspect.ismodule(value):
        return "module"
    if inspect.isclass(value):
        return _class(value)
    return _signature(value)


def _class(cls: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"bases": [base.__qualname__ for base in cls.__mro__[1:] if base is not object]}
    if issubclass(cls, enum.Enum):
        return {**found, "members": {member.name: member.value for member in cls}}
    if is_typeddict(cls):
        return {**found, "keys": {name: _text(hint) for name, hint in cls.__annotations__.items()}}
    own = {name: vars(base)[name] for base in reversed(cls.__mro__) if _is_ours(base) for name in vars(base)}
    if "__init__" in own:
        found["call"] = _signature(cls)
    fields = getattr(cls, "__dataclass_fields__", {})  # they are in the call
    found["members"] = {
        name: _member(own[name]) for name in own if not name.startswith(("_", "test_")) and name not in fields
    }
    return found


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "strands_durable"


def _member(value: Any) -> str:
    if isinstance(value, property):
        return (
            f"property -> {_text(inspect.get_annotations(value.fget).get('return', ''))}" if value.fget else "property"
        )
    value = getattr(value, "__func__", value)
    return _signature(value) if callable(value) else "attribute"


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "callable"
    given = [
        each.replace(annotation=_Text(each.annotation), default=_plain(each.default))
        for each in found.parameters.values()
    ]
    text = str(found.replace(parameters=given, return_annotation=_Text(found.return_annotation)))
    return f"async {text}" if inspect.iscoroutinefunction(value) else text


class _Text:
    """An annotation or default that is shown as it is written."""

    def __new__(cls, value: Any) -> Any:
        """Leave out what is not there."""
        return value if value is inspect.Parameter.empty else super().__new__(cls)

    def __init__(self, value: Any) -> None:
        self._shown = _text(value)

    def __repr__(self) -> str:
        return self._shown


def _plain(value: Any) -> Any:
    """Return a default that is shown the same in every process."""
    return _Text("...") if " at 0x" in repr(value) else value


def _text(value: Any) -> str:
    if isinstance(value, ForwardRef):
        return value.__forward_arg__
    return value if isinstance(value, str) else inspect.formatannotation(value)


if __name__ == "__main__":
    FILE.write_text(json.dumps(surface(), indent=1, sort_keys=True) + "\n")
