"""The other two agents of `strands-durable demo --ui`: a refund that waits for a person, and a report that is a Graph."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, ToolContext, tool
from strands.multiagent import GraphBuilder
from strands.multiagent.graph import Graph

from ... import durable_agent
from ...testing import ScriptedModel, call
from ...testing._model import Turn


class _Model(ScriptedModel):
    """Answers as slowly as a model does, so that its text can be seen as it comes."""

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(0.3)
        async for chunk in super().stream(*args, **kwargs):
            yield chunk
            await asyncio.sleep(0.02)


@tool
def look_up_order(order: str) -> str:
    """Look up an order."""
    time.sleep(0.4)
    return f"Order {order}: one lamp, 89 EUR, delivered broken. The customer wrote: <b>please hurry</b>."


@tool(context=True)
def refund(order: str, euros: int, tool_context: ToolContext) -> str:
    """Pay money back, if a person agrees."""
    if tool_context.interrupt("approve refund", reason=f"Refund {euros} EUR for order {order}?") != "yes":
        return "Refused"
    return f"{euros} EUR were paid back"


@tool
def read_prices(market: str) -> str:
    """Read prices."""
    time.sleep(0.9)
    return f"{market}: up 3 %"


@tool
def read_news(topic: str) -> str:
    """Read the news."""
    time.sleep(0.5)
    return f"{topic}: a good season"


@durable_agent
def refund_desk() -> Agent:
    """Build the agent that asks before it pays."""
    script: list[Turn] = [
        call("look_up_order", order="A-1017"),
        call("refund", order="A-1017", euros=89),
        "The customer has got 89 EUR back for the broken lamp, and a note that we are sorry.",
    ]
    return Agent(model=_Model(script), tools=[look_up_order, refund], callback_handler=None)


@durable_agent
def market_report() -> Graph:
    """Build the graph: two nodes at the same time, then two in a row."""

    def node(name: str, *script: Any) -> Agent:
        return Agent(name=name, model=_Model(script), tools=[read_prices, read_news], callback_handler=None)

    builder = GraphBuilder()
    builder.add_node(node("prices", call("read_prices", market="Lamps"), "Prices are up."), "prices")
    builder.add_node(node("news", call("read_news", topic="Lamps"), "The news is good."), "news")
    builder.add_node(node("writer", "Lamps: prices are up, the news is good."), "writer")
    builder.add_node(node("editor", "The report is ready."), "editor")
    builder.add_edge("prices", "writer")
    builder.add_edge("news", "writer")
    builder.add_edge("writer", "editor")
    for name in ("prices", "news"):
        builder.set_entry_point(name)
    builder.set_max_node_executions(10)
    return builder.build()
