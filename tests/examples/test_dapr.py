"""examples/dapr: a worker beside a sidecar is killed inside a booking and another goes on; the manifests fit together."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from strands_durable._cli import main
from strands_durable._dispatch.connect import VARIABLE, connect
from strands_durable.testing.dapr import DaprCluster
from tests.commands import COMMAND
from tests.examples.processes import EXAMPLES, entries, python
from tests.examples.test_temporal import killed, started
from tests.waiting import until

FOLDER = EXAMPLES / "dapr"
AGENTS = FOLDER / "agents.py"
README = (FOLDER / "README.md").read_text()
COMPONENT, DEPLOYMENT, BUDGET = yaml.safe_load_all((FOLDER / "workers.yaml").read_text())
POD = DEPLOYMENT["spec"]["template"]["spec"]
[WORKER] = POD["containers"]
ANNOTATIONS = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaprCluster]:
    with DaprCluster(components=FOLDER / "components" / "sqlite", folder=tmp_path) as cluster:
        yield cluster


def test_a_worker_is_killed_inside_a_booking_and_another_one_goes_on(cluster: DaprCluster) -> None:
    def command(*words: str, ends_with: int = 0) -> str:
        environment = {**os.environ, VARIABLE: cluster.url}
        ended = subprocess.run([*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=60)
        assert ended.returncode == ends_with, ended.stdout + ended.stderr
        return ended.stdout

    def worker(**environment: str) -> list[str]:
        return python("-m", "strands_durable", "worker", AGENTS, STRANDS_DURABLE_BACKEND=cluster.url, **environment)

    with started(worker(BOOKING_SECONDS="600")) as first:
        words = ["run", f"{AGENTS}:trip_planner", "Book a trip to Paris", "--id", "trip-1", "--detach"]
        assert command(*words) == "trip-1\n"
        until(lambda: entries("bookings.txt"), 60)
        killed(first)
    with started(worker()):
        asked = command("watch", "trip-1", ends_with=5)
        assert "1.0 book_flight        done        attempt 2  flight to Paris booked" in asked
        assert "approval: A hotel in Paris for 420 euros?" in asked
        command("respond", "trip-1", "--answer", '"yes"')
        assert command("watch", "trip-1").splitlines()[-1] == "trip-1 is COMPLETED."
    assert entries("bookings.txt") == ["flight to Paris", "hotel in Paris"]


def test_the_agents_are_those_of_the_script() -> None:
    ours, theirs = (path.read_text().splitlines()[1:] for path in (AGENTS, EXAMPLES / "script" / "agents.py"))
    assert ours == theirs


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_each_component_is_a_store_for_workflows_under_the_name_that_urls_assume(store: str) -> None:
    component = yaml.safe_load((FOLDER / "components" / store / "statestore.yaml").read_text())
    _is_a_store(component)
    assert store in component["spec"]["type"]


def _is_a_store(component: Any) -> None:
    assert (component["kind"], component["metadata"]["name"]) == ("Component", "statestore")
    settings = {setting["name"]: setting.get("value") for setting in component["spec"]["metadata"]}
    assert settings["actorStateStore"] == "true"


def test_replicas_share_an_app_id_and_a_store_and_keep_nothing() -> None:
    _is_a_store(COMPONENT)
    assert DEPLOYMENT["spec"]["replicas"] > 1
    assert ANNOTATIONS["dapr.io/enabled"] == "true"
    assert COMPONENT["scopes"] == [ANNOTATIONS["dapr.io/app-id"]]
    assert "dapr.io/app-port" not in ANNOTATIONS
    assert POD["volumes"] == [{"name": "tmp", "emptyDir": {}}]
    assert BUDGET["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]
    assert DEPLOYMENT["spec"]["template"]["metadata"]["labels"] == BUDGET["spec"]["selector"]["matchLabels"]


def test_a_worker_has_the_time_to_stop_and_its_sidecar_stops_last() -> None:
    words = WORKER["command"]
    drain = float(words[words.index("--drain-seconds") + 1])
    assert POD["terminationGracePeriodSeconds"] >= drain + float(ANNOTATIONS["dapr.io/graceful-shutdown-seconds"]) + 10
    assert ANNOTATIONS["dapr.io/enable-native-sidecar"] == "true"


def test_its_commands_and_its_url_are_ours(tmp_path: Path) -> None:
    (tmp_path / "agents.py").touch()  # the test runs there
    for program, name, *arguments in (WORKER["command"], WORKER["readinessProbe"]["exec"]["command"]):
        assert program == "strands-durable"
        main.commands[name].make_context(name, arguments, parent=Context(main, **main.context_settings))
    [variable] = WORKER["env"]
    assert variable["name"] == VARIABLE
    assert connect(variable["value"]) is not None
    assert connect(re.search(r"dapr://\S+\d", README)[0]) is not None  # type: ignore[index]
