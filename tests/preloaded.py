"""What a process of a test has behind it when it is forked, so that not each of some five thousand imports it anew."""

from __future__ import annotations

import gc
from importlib import import_module

from tests.features.harness import load

_NEEDED = (
    "boto3",
    "mcp.client.stdio",
    "openai.resources.chat",
    "psutil",
    "pytest",
    "strands.agent._agent_delegation",
    "strands.models.openai",
    "strands.multiagent",
    "strands.tools.mcp",
    "strands_durable._plugin.durability",
    "strands_durable.backends.sqlite",
    "strands_durable.testing",
    "tests.crash.fleet",
)

for _name in _NEEDED:
    import_module(_name)
load()
gc.freeze()  # a collection in a child would copy every page that it looks at
