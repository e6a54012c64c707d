"""The tables of tools and plugins in docs/features.md, and what is not in a scenario, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "features.md"
SECTIONS = {
    "Tools of Strands": ("strands.vended_tools",),
    "Plugins, interventions and memory of Strands": (
        "strands",
        "strands.vended_interventions",
        "strands.vended_memory_stores",
        "strands.vended_plugins",
    ),
    "Tools of strands-agents-tools": ("strands_tools",),
}
"""The tables, with the packages that each is about."""
_HEAD = "| | killed at | the end | a call in doubt | |\n|---|---|---|---|---|\n"
_PART = re.compile(r"<!-- public tools -->\n(.*?)<!-- /public tools -->", re.DOTALL)
_AWS, _NETWORK = "needs an AWS account", "needs a network service"
NOT_RUN = {
    "strands.vended_memory_stores.bedrock_knowledge_base": _AWS,
    "strands_tools.agent_core_memory": _AWS,
    "strands_tools.bright_data": _NETWORK,
    "strands_tools.chat_video": _NETWORK,
    "strands_tools.code_interpreter": f"{_AWS}; only the process knows its sessions",
    "strands_tools.diagram": "needs the programs of Graphviz",
    "strands_tools.elasticsearch_memory": "needs an Elasticsearch server, and Amazon Bedrock",
    "strands_tools.exa": _NETWORK,
    "strands_tools.generate_image": _AWS,
    "strands_tools.generate_image_stability": _NETWORK,
    "strands_tools.mem0_memory": "needs a network service, or a model that embeds",
    "strands_tools.memory": _AWS,
    "strands_tools.mongodb_memory": "needs MongoDB Atlas, and Amazon Bedrock",
    "strands_tools.nova_reels": _AWS,
    "strands_tools.retrieve": _AWS,
    "strands_tools.search_video": _NETWORK,
    "strands_tools.slack": f"{_NETWORK}; the listener of `start_socket_mode` lives in the process, and a kill ends it",
    "strands_tools.tavily": _NETWORK,
    "strands_tools.use_computer": "needs a screen",
}
"""By module, why it is not run."""


def title(module: str, what: str = "") -> str:
    """Return the first cell of a line."""
    return f"`{module.rpartition('.')[2].removeprefix('_')}` {what}".strip()


def section_of(module: str) -> str:
    """Return the table that a module is in."""
    return next(name for name, packages in SECTIONS.items() if module.rpartition(".")[0] in packages)


def documented(section: str) -> list[str]:
    """Return the lines of a table of the page."""
    found = _PART.search(PAGE.read_text())
    assert found is not None, "docs/features.md has no place for the tables"
    _, _, part = found[1].partition(f"### {section}\n")
    return [line for line in part.partition("\n### ")[0].splitlines() if line.startswith("| `")]


def titles(section: str) -> list[str]:
    """Return the first cells of a table of the page."""
    return [line.split("|")[1].strip() for line in documented(section)]


def write(rows: Iterable[tuple[str, str]]) -> None:
    """Write the tables into the page; each row comes with its module."""
    found = {section: [] for section in SECTIONS}  # type: dict[str, list[str]]
    for module, row in rows:
        found[section_of(module)].append(row)
    for module, reason in NOT_RUN.items():
        found[section_of(module)].append(f"| {title(module)} | not run | | | {reason} |")
    texts = [f"### {section}\n\n{_HEAD}" + "\n".join(sorted(lines)) + "\n" for section, lines in found.items()]
    part = "<!-- public tools -->\n" + "\n".join(texts) + "<!-- /public tools -->"
    PAGE.write_text(_PART.sub(lambda _: part, PAGE.read_text()))
