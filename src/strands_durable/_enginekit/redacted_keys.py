"""Keys of steps and places of calls without what a model, a user or Strands has put into them.

The key of a tool call has the id that a model gave to it, that of a side effect the name that its code made, which may be that
of a customer. Ids are numbered: the same id has the same number everywhere. Of a name, the length is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .._records.keys import is_model_key

Row = dict[str, Any]
_TOOL = re.compile(r"(\d{6,}/\d{3,}):(.*)~(\d+)", re.DOTALL)
_EFFECT = re.compile(r"(.*)/(before|running|after):(.*)#(\d+)", re.DOTALL)
_AUXILIARY = re.compile(r"aux\.[0-9a-f]+")
_OURS = re.compile(r"\d{6,}/tools|call\.\d+\.\d+")
_NODE = re.compile(r"node/(.*)#\d+", re.DOTALL)


def length(text: str) -> str:
    """Return what is known of a text without its contents."""
    return f"<{len(text)} characters>"


@dataclass
class Known:
    """The names that come from code, and the numbers of ids."""

    names: frozenset[str]
    """Of nodes, and of the tools that agents have."""
    nodes: frozenset[str]
    ids: dict[str, str] = field(default_factory=dict)
    scopes: dict[int, str] = field(default_factory=dict)
    """By call: what is left of the path to its steps."""

    @classmethod
    def of(cls, rows: dict[str, list[Row]]) -> Known:
        """Return what is known of the rows of an execution."""
        nodes = frozenset(row["name"] for row in rows.get("steps", ()) if row.get("kind") == "node")
        found = cls(names=nodes | _tools(rows), nodes=nodes)
        for row in rows.get("steps", ()):
            tool = _TOOL.fullmatch(row["key"]) if row.get("kind") == "tool" else None
            if tool is not None:
                found.ids.setdefault(tool[2], f"id-{len(found.ids) + 1}")
        for table in ("answers", "replies"):
            for row in rows.get(table, ()):
                found.ids.setdefault(row["interrupt_id"], f"id-{len(found.ids) + 1}")
        for row in rows.get("calls", ()):
            found.scope(row)
        return found

    def name_of(self, row: Row) -> str:
        """Return the name of a step."""
        is_known = row["kind"] in ("model", "node") or (row["kind"] == "tool" and row["name"] in self.names)
        return str(row["name"]) if is_known else length(row["name"])

    def key_of(self, row: Row) -> str:
        """Return the key of a step."""
        key, name = row["key"], row["name"]
        if row["kind"] == "effect":
            return self._effect(key, name)
        if row["kind"] == "model" and not is_model_key(key):
            found = _EFFECT.fullmatch(key)
            return length(key) if found is None else self._effect(key, found[3])
        return self.place(key)

    def _effect(self, key: str, name: str) -> str:
        """Return the key of a side effect: of its name, the length."""
        head, _, occurrence = key.rpartition("#")
        enclosing, _, phase = head.removesuffix(f":{name}").rpartition("/")
        if not head.endswith(f":{name}") or phase not in ("before", "running", "after") or not occurrence.isdecimal():
            return length(key)
        said = "aux" if _AUXILIARY.fullmatch(name) else length(name)
        return f"{self.place(enclosing)}/{phase}:{said}#{occurrence}"

    def place(self, key: str) -> str:
        """Return the key of a step that is not a side effect, or a place inside of one."""
        if not key or is_model_key(key) or _OURS.fullmatch(key):
            return key
        node, tool = _NODE.fullmatch(key), _TOOL.fullmatch(key)
        if node is not None and node[1] in self.nodes:
            return key
        if tool is not None and tool[2] in self.ids:
            return f"{tool[1]}:{self.ids[tool[2]]}~{tool[3]}"
        before, slash, tail = key.rpartition("/")
        return f"{self.place(before)}/{length(tail)}" if slash else length(key)

    def scope(self, row: Row) -> str:
        """Return the scope of a call: that of the call around it, and its place there."""
        around = self.scopes.get(row["parent"])
        found = row["scope"] if row["parent"] == 0 else self.place(row["place"])
        if around is not None:
            found = f"{around}/{found}"
        self.scopes[row["id"]] = f"{found}#{row['position']}"
        return str(found)


def _tools(rows: dict[str, list[Row]]) -> frozenset[str]:
    """Return the names of the tools that agents have: a model may have asked for others."""
    found: set[str] = set()
    for row in rows.get("configs", ()):
        tools = row["data"].get("tools") if isinstance(row["data"], dict) else None
        found.update(tools if isinstance(tools, dict) else ())
    return frozenset(found)
