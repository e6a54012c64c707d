"""Agents that run elsewhere: an A2A agent is a node, and one opaque step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strands import Agent
from strands.agent.a2a_agent import A2AAgent
from strands.multiagent import GraphBuilder

from tests.crash.scenarios import Ledger
from tests.features.harness import BriefModel, LedgerModel, durability, feature
from tests.processes import served

SERVER = str(Path(__file__).parent / "remote_agent.py")


@contextmanager
def elsewhere(folder: Path) -> Iterator[None]:
    """Run the remote agent; it outlives the killed processes."""
    with served(SERVER, str(folder / "asked.jsonl")) as (port, _):
        (folder / "url").write_text(f"http://127.0.0.1:{port}")
        yield


def asked_once(whole: Path, killed: Path, point: str) -> None:
    """The remote agent is called once, and again only if the process died before it recorded the answer."""
    asked = [entry["asked"] for entry in Ledger(whole.parent / "asked.jsonl").read()]
    mine = [text for text in asked if f"task of {killed.name} " in text]
    assert len(mine) == (2 if point == "node.done:before@2" else 1), (point, mine)


@feature(7, "a graph with an A2A agent", around=elsewhere, check=asked_once, points="node")
def a_graph_with_an_a2a_agent() -> Any:
    builder = GraphBuilder()
    builder.add_node(Agent(model=BriefModel(["ready"]), callback_handler=None), "first")
    builder.add_node(A2AAgent(endpoint=Path("../url").read_text(), name="far"), "far")
    builder.add_node(Agent(model=LedgerModel(["done"]), callback_handler=None), "last")
    builder.add_edge("first", "far")
    builder.add_edge("far", "last")
    builder.set_execution_timeout(60)
    builder.set_plugins([durability()])
    result = builder.build()(f"The task of {Path.cwd().name} is this")
    text = str(result.results["far"].result).strip()
    return [result.status.value, text.endswith("words"), [node.node_id for node in result.execution_order]]
