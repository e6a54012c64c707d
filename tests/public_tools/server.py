"""The smallest MCP server: one tool, over stdio, without imports that take seconds; a client starts it for every call."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
from strike import strike

TOOL = {
    "name": "price",
    "description": "Return a price.",
    "inputSchema": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
}


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None if there is no such method."""
    given = request.get("params") or {}
    if request["method"] == "initialize":
        version = given["protocolVersion"]
        return {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "shop", "version": "1"},
        }
    if request["method"] == "tools/list":
        return {"tools": [TOOL]}
    if request["method"] == "tools/call":
        with open("prices", "a") as file:
            file.write(f"{given['arguments']['item']}\n")
        strike(os.getcwd())
        return {"content": [{"type": "text", "text": f"{given['arguments']['item']} costs 3"}]}
    return {} if request["method"] == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request)
        end = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **end}), flush=True)
