"""A small MCP server: `python mcp_server.py stdio|http [TOOL ...]`, with a ledger of the calls that reached it.

Over HTTP it prints its port, and the client's header ``x-folder`` says where the ledger is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("shop", log_level="CRITICAL")


def note(context: Context[Any, Any], name: str) -> None:
    """Write a call to the ledger of the run that makes it."""
    folder = (context.headers or {}).get("x-folder", ".")
    file = os.open(f"{folder}/calls.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (json.dumps(name) + "\n").encode())
    os.close(file)


def price(item: str, context: Context[Any, Any]) -> dict[str, Any]:
    """Return a price, as structured content."""
    note(context, "price")
    return {"item": item, "price": 3}


def picture(item: str, context: Context[Any, Any]) -> Image:
    """Return a picture."""
    note(context, "picture")
    return Image(data=PIXEL, format="png")


def buy(item: str, context: Context[Any, Any]) -> str:
    """Fail: it is sold out."""
    note(context, "buy")
    raise ToolError(f"{item} is sold out")


def vanish(context: Context[Any, Any]) -> str:
    """Die in the middle of the call."""
    note(context, "vanish")
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def extra() -> str:
    """Be there only in a later version."""
    return ""


async def serve() -> None:
    """Serve over HTTP, on a port that the system chooses."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    for name in sys.argv[2:]:
        server.tool()(globals()[name])
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        asyncio.run(serve())
