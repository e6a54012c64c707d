"""Keys of steps: pure functions of a step's position in the call, never of when it ran.

A step is named by the number of the model answer it belongs to, its index in that answer, and its retry count. Answers are
numbered from 1: ``model 3`` is the third model call, and its tools have the same number. Number 0 is reserved for the tools
of a message that was in the agent before the call began. Zero padding makes keys sort in the order of the conversation.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from ..errors import InvalidIdError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,199}")
_MODEL = re.compile(r"\d{6,}/model~\d+")


def checked_id(execution_id: Any) -> str:
    """Return ``execution_id`` if it is valid."""
    if not isinstance(execution_id, str) or not _ID.fullmatch(execution_id):
        raise InvalidIdError(execution_id)
    return execution_id


def model_key(ordinal: int, retry: int) -> str:
    """Name the model call number ``ordinal``; ``retry`` counts answers that a hook sent back."""
    return f"{ordinal:06d}/model~{retry}"


def is_model_key(key: str) -> bool:
    """Return True if a key names a model call of the loop."""
    return _MODEL.fullmatch(key) is not None


def tool_key(ordinal: int, index: int, tool_use_id: str, retry: int) -> str:
    """Name the tool call at ``index`` of model answer ``ordinal``; ids alone repeat, even within one answer."""
    is_plain = tool_use_id.isascii()
    printable = tool_use_id if is_plain else tool_use_id.encode("utf-8", "backslashreplace").decode()
    return f"{ordinal:06d}/{index:03d}:{printable}~{retry}"


def place_of(key: str) -> tuple[int, int]:
    """Return the model answer and the index in it that a tool's key names."""
    return int(key[:6]), int(key.split("/", 1)[1].split(":", 1)[0])


def tools_key(ordinal: int) -> str:
    """Name all tools of model answer ``ordinal`` together, for the hooks before and after them."""
    return f"{ordinal:06d}/tools"


def node_key(node_id: str, visit: int) -> str:
    """Name a visit of a node."""
    return f"node/{node_id}#{visit}"


def visit_of(key: str) -> int:
    """Return the number of the visit that a node's key names."""
    return int(key.rpartition("#")[2])


def call_key(leg: int, number: int) -> str:
    """Name one pass over the loop, for the hooks around it; an answered interrupt begins a new leg."""
    return f"call.{leg}.{number}"


def effect_key(enclosing: str, phase: str, name: str, occurrence: int) -> str:
    """Name a `durable.step` by its enclosing step, its name, and how often that name occurred there."""
    return f"{enclosing}/{phase}:{name}#{occurrence}"


def path(scope: str, position: int, key: str) -> str:
    """Name a step within its execution."""
    return f"{scope}#{position}/{key}"


def idempotency_key(execution_id: str, run: int, step_path: str) -> str:
    """Return the key that a tool may pass to other systems: the same for every attempt of one step, and for no other step."""
    return hashlib.blake2b(f"{execution_id}\n{run}\n{step_path}".encode(), digest_size=16).hexdigest()
