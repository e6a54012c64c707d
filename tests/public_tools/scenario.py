"""A scenario of the survey: an agent that uses one tool or plugin, in a folder and a process of its own."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strands import Agent

from strands_durable import Durability, ToolPolicy
from strands_durable.testing import ScriptedModel
from tests.crash.scenarios import pay
from tests.public_tools.tables import title

__all__ = ["Place", "Scenario", "agent_of", "by_prompt", "pay", "scenario", "scenarios"]

STRIKE = Path(__file__).parent / "strike.py"
SERVER = Path(__file__).parent / "server.py"
PROGRAMS = Path(__file__).parent / "programs"
"""Programs that stand in for those of the system."""


@dataclass(frozen=True)
class Place:
    """Where a run is: its folder, which is also its process's, and servers that outlive the process."""

    folder: Path
    web: str
    """A web server; it notes requests in the folder."""
    remote: str
    """A remote agent; it notes requests in the folder that their text names."""
    aws: str
    """A server that stands in for AWS."""
    policies: dict[str, ToolPolicy] = field(default_factory=dict)

    def durability(self) -> Durability:
        """Return the plugin."""
        return Durability("runs.db", execution_id="trip", tool_policies=self.policies, on_drift="warn")

    def command(self, *commands: str) -> str:
        """Return a shell command that has an effect, and dies of it if this is the point of the run."""
        strike = shlex.join([sys.executable, "-IS", str(STRIKE), str(self.folder)])
        return "; ".join([*commands, strike])


@dataclass(frozen=True)
class Scenario:
    """One tool or plugin, or one of the ways to use it."""

    module: str
    """The module that it is about."""
    what: str
    build: Callable[[Place], Agent]
    note: str = ""
    """For readers of the table."""
    answer: Any = None
    """Given to every question."""
    points: str = ""
    """Where it is killed, as a pattern, if not everywhere: that may take too long, or have another end each time."""
    may_fail: bool = False
    """True if tools are expected to give errors in the run that is not killed."""

    @property
    def title(self) -> str:
        """The name in the table."""
        return title(self.module, self.what)


scenarios: dict[str, Scenario] = {}


def scenario(module: str, what: str = "", **options: Any) -> Callable[[Callable[[Place], Agent]], Any]:
    """Add a scenario; options are those of `Scenario`."""

    def add(build: Callable[[Place], Agent]) -> Callable[[Place], Agent]:
        name = f"{module} {what}".strip()
        assert name not in scenarios, name
        scenarios[name] = Scenario(module, what, build, **options)
        return build

    return add


def agent_of(place: Place, script: Any, tools: Any = (), *, plugins: Any = (), **options: Any) -> Agent:
    """Return an agent with Durability and a scripted model."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    plugins = [place.durability(), *plugins]
    return Agent(model=model, tools=list(tools), plugins=plugins, callback_handler=None, **options)


def by_prompt(**scripts: Any) -> Callable[[int, list[Any]], Any]:
    """Return a script for several agents with one model: each is recognized by a word in the first message that it is given."""

    def next_turn(turn: int, messages: list[Any]) -> Any:
        asked = " ".join(block.get("text", "") for block in messages[0]["content"])
        found = [turns for word, turns in scripts.items() if word in asked]
        turns = found[0] if found else ["Something."]
        return turns(turn, messages) if callable(turns) else turns[turn]

    return next_turn


def environment(place: Place) -> None:
    """Set the environment variables that tools read."""
    os.environ.update(
        AWS_ACCESS_KEY_ID="none",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL=place.aws,
        AWS_SECRET_ACCESS_KEY="none",
        BYPASS_TOOL_CONSENT="true",
        HOME=str(place.folder),
        PATH=f"{PROGRAMS}:{os.environ['PATH']}",
        STRANDS_BROWSER_HEADLESS="true",
        STRANDS_NON_INTERACTIVE="true",
        STRANDS_RSS_STORAGE_PATH=str(place.folder / "feeds"),
        STRANDS_WORKFLOW_DIR=str(place.folder / "workflows"),
    )
