"""User types that have a recorded form because the user has registered one.

A record holds the name of such a type and what ``to_json`` returned for the value. The name alone connects the two: reading a
record imports nothing, so a process that has not registered the name cannot read the value, and raises.

Left out on purpose: subclasses. A value is recorded under its own class, never under one that it extends.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any, TypeVar

from ..errors import TypeNotRegisteredError, UnreadableError

T = TypeVar("T")
_MAX_NAME = 200


@dataclass(frozen=True, kw_only=True)
class RegisteredType:
    """How the values of one class are recorded and restored."""

    cls: type
    name: str
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


by_class: dict[type, RegisteredType] = {}
_by_name: dict[str, RegisteredType] = {}


def register_type(
    cls: type[T],
    *,
    name: str | None = None,
    to_json: Callable[[T], Any] | None = None,
    from_json: Callable[[Any], T] | None = None,
) -> type[T]:
    """Let values of ``cls`` be recorded and restored; return ``cls``, so that this can be used as a decorator.

    Register a type where it is defined, so that every process that reads the execution has registered it: the script, each
    worker, and the process that asks a handle for the result. Enums, dataclasses, named tuples and pydantic models need
    only the class.

    Args:
        cls: The class. Its subclasses are other types.
        name: Its name in the record; by default the name of the class. A recorded name must stay registered, even after the
            class is renamed or moved.
        to_json: Return what to record: JSON data, or anything else that can be recorded.
        from_json: Return the value for what ``to_json`` returned. Also called whenever a value is recorded: a value that is
            not restored with the same recorded form is refused at once.

    Raises:
        ValueError: Another class has this name, or the class already has a recorded form.
        TypeError: Only one of the functions is given, or none for a class that needs them.
    """
    from .value_forms import is_built_in

    if not isinstance(cls, type):
        raise TypeError(f"register_type takes a class, not {cls!r}")
    if is_built_in(cls):
        raise ValueError(f"{cls.__qualname__} can already be recorded and need not be registered")
    if (to_json is None) != (from_json is None):
        raise TypeError("register_type takes both to_json and from_json, or neither")
    known = cls.__qualname__ if name is None else name
    if not isinstance(known, str) or not 0 < len(known) <= _MAX_NAME or not known.isprintable():
        raise ValueError(f"the name of a type must have 1 to {_MAX_NAME} printable characters, not {known!r}")
    write, read = (to_json, from_json) if to_json and from_json else _functions_for(cls)
    _add(RegisteredType(cls=cls, name=known, to_json=write, from_json=read))
    return cls


def _add(new: RegisteredType) -> None:
    """Register a type; a class that was defined again, as in a notebook or after a reload, replaces the old one."""
    old = _by_name.get(new.name)
    if old is not None and _origin(old.cls) != _origin(new.cls):
        raise ValueError(
            f"{_full_name(old.cls)} is registered as {new.name!r}; give {_full_name(new.cls)} another name: "
            f"register_type({new.cls.__name__}, name=...)"
        )
    if old is not None:
        by_class.pop(old.cls, None)
    by_class[new.cls] = new
    _by_name[new.name] = new


def _origin(cls: type) -> tuple[str, str]:
    """Return what identifies a class definition even if it ran twice: a script may also be imported as a module."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return cls.__module__ if file is None else os.path.realpath(file), cls.__qualname__


def restore(name: str, form: Any) -> Any:
    """Return the value of a registered type for its recorded form."""
    registered = _by_name.get(name)
    if registered is None:
        raise TypeNotRegisteredError(name, sorted(_by_name))
    try:
        value = registered.from_json(form)
    except Exception as error:
        raise UnreadableError(f"from_json of the registered type {name!r} raised {_described(error)}") from error
    if type(value) is not registered.cls:
        raise UnreadableError(f"from_json of the registered type {name!r} returned a {_full_name(type(value))}")
    return value


def known_names() -> frozenset[str]:
    """Return the names that are registered in this process."""
    return frozenset(_by_name)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# Classes that describe themselves


def _functions_for(cls: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if issubclass(cls, Flag):
        return lambda value: value.value, cls
    if issubclass(cls, Enum):
        return lambda value: value.name, lambda form: cls[form]
    if dataclasses.is_dataclass(cls):
        return _dataclass_fields, lambda form: _made_dataclass(cls, form)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return list, lambda form: _made_tuple(cls, form)
    if hasattr(cls, "model_validate") and hasattr(cls, "model_dump"):
        return _dumped_model, cls.model_validate
    raise TypeError(
        f"register_type handles Enums, dataclasses, named tuples and pydantic models; for {_full_name(cls)}, "
        f"pass to_json and from_json"
    )


def _dataclass_fields(value: Any) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)]
    more = sorted(set(getattr(value, "__dict__", ())) - set(names))
    if more:
        raise ValueError(f"it has attributes that are not fields: {', '.join(more)}")
    return {name: getattr(value, name) for name in names}


def _made_dataclass(cls: Any, form: dict[str, Any]) -> Any:
    """Create a value as `copy.copy` does, without its constructor; a field that is newer than the record gets its default."""
    value = object.__new__(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if unknown := sorted(set(form) - set(fields)):
        raise ValueError(f"{cls.__qualname__} has no field {', '.join(unknown)}")
    for name, field in fields.items():
        object.__setattr__(value, name, form[name] if name in form else _default_of(cls, field))
    return value


def _default_of(cls: type, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise ValueError(f"field {field.name} of {cls.__qualname__} is not recorded and has no default")


def _made_tuple(cls: Any, form: list[Any]) -> Any:
    if len(form) != len(cls._fields):
        raise ValueError(f"{cls.__qualname__} has {len(cls._fields)} fields, but {len(form)} are recorded")
    return tuple.__new__(cls, form)


def _dumped_model(value: Any) -> Any:
    """Return data that a pydantic model validates from; refuse a model that validates to another value."""
    dump = value.model_dump(round_trip=True, by_alias=True)
    form = _with_plain_leaves(dump)
    back = type(value).model_validate(form)
    if back != value or not _is_same(back.model_dump(round_trip=True, by_alias=True), dump):
        raise ValueError("it differs from the model that its own dump validates to")
    return form


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two dumps are equal down to their types: a member of a ``str`` Enum equals its plain value."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return _is_same(list(one), list(other)) and all(_is_same(item, other[key]) for key, item in one.items())
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if type(one) in (set, frozenset):
        return bool(one == other) and {type(item) for item in one} == {type(item) for item in other}
    return bool(one == other)


def _with_plain_leaves(value: Any) -> Any:
    """Return a dump with JSON data in place of values without a recorded form: the model can read it back."""
    from pydantic_core import to_jsonable_python

    from .value_forms import is_built_in

    kind = type(value)
    if kind is dict:
        return {_with_plain_leaves(key): _with_plain_leaves(item) for key, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(map(_with_plain_leaves, value))
    return value if is_built_in(kind) or kind in by_class else to_jsonable_python(value)
