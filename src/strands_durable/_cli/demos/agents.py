"""The travel agent of the demo as workers load it; this one asks for approval before it sends a mail."""

from __future__ import annotations

import os
from pathlib import Path

from strands import Agent, ToolContext, tool

from ... import durable_agent
from .trip import FOLDER, model, note, tools


def _folder() -> Path:
    return Path(os.environ[FOLDER])


@tool(context=True)
def send_mail(to: str, subject: str, tool_context: ToolContext) -> str:
    """Send a mail, if the customer agrees."""
    if tool_context.interrupt("approval", reason=f"Send {subject!r} to {to}?") != "yes":
        return "Not sent"
    note(_folder(), "send_mail")
    return f"Sent to {to}"


@durable_agent
def travel_agent() -> Agent:
    """Build the agent."""
    folder = _folder()
    others = [each for each in tools(folder) if each.tool_name != "send_mail"]
    return Agent(model=model(folder), tools=[*others, send_mail], callback_handler=None)
