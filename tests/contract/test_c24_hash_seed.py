"""The order of a fan-in does not depend on the hash seed of the process that builds its prompt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
from strands import Agent
from strands.multiagent import GraphBuilder
from strands_durable import Durability
from strands_durable.testing import CrashPoints, ScriptedModel

def echo(turn, messages):
    return "|".join(block["text"] for block in messages[-1]["content"])

builder = GraphBuilder()
names = ["delta", "alpha", "charlie", "bravo", "echo"]
for name in names:
    builder.add_node(Agent(model=ScriptedModel([name.upper()]), callback_handler=None), name)
builder.add_node(Agent(model=ScriptedModel(echo), callback_handler=None), "join")
for name in names:
    builder.add_edge(name, "join")
builder.set_plugins([Durability("runs.db", execution_id="trip")])
graph = builder.build()
points = CrashPoints()
with points.crashing(sys.argv[1]) if sys.argv[1:] else points.recording():
    result = graph("Go")
print(json.dumps([str(result.results["join"].result), [node.node_id for node in result.entry_points]]))
"""


def run(folder: Path, seed: int, *args: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", PROGRAM, *args]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("point", ["node.start:after@6", "model.start:after@6"])
def test_c24_a_fan_in_is_the_same_under_every_hash_seed(point: str, tmp_path: Path) -> None:
    whole = [json.loads(run(tmp_path / f"whole{seed}", seed).stdout) for seed in (1, 2)]
    assert whole[0] == whole[1]
    assert run(tmp_path / "killed", 1, point).returncode == -9
    resumed = run(tmp_path / "killed", 2)
    assert json.loads(resumed.stdout) == whole[0], resumed.stderr[-500:]
