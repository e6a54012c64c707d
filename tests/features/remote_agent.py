"""A Strands agent behind A2A, as a server of its own: prints its port, and writes each request to a ledger."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from strands import Agent
from strands.multiagent.a2a import A2AServer

from strands_durable.testing import ScriptedModel


def main(ledger: Path) -> None:
    """Answer every request with its number of words."""

    def script(turn: int, messages: list[Any]) -> str:
        text = " ".join(block.get("text", "") for block in messages[-1]["content"])
        with ledger.open("a") as file:
            file.write(json.dumps({"asked": text}) + "\n")
        return f"{len(text.split())} words"

    agent = Agent(model=ScriptedModel(script), name="counter", description="Counts words.", callback_handler=None)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = A2AServer(agent=agent, host="127.0.0.1", port=port, enable_a2a_compliant_streaming=True).to_starlette_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    listening.listen()
    print(port, flush=True)
    server.run(sockets=[listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
