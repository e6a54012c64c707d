"""examples/kubernetes: the manifests say what their README promises, and their commands are commands of ours."""

from __future__ import annotations

import http.client
import inspect
from typing import Any

import pytest
import yaml
from click import BadParameter, Context

from strands_durable import DurableBackend
from strands_durable._cli import main
from strands_durable._cli.health import STUCK_SECONDS, Health, HealthServer
from strands_durable._dispatch.connect import VARIABLE
from strands_durable.backends.temporal._url import TemporalConfig
from tests.examples.processes import EXAMPLES

FOLDER = EXAMPLES / "kubernetes"
CLAIM, DEPLOYMENT = yaml.safe_load_all((FOLDER / "workers.yaml").read_text())
ON_TEMPORAL, BUDGET = yaml.safe_load_all((FOLDER / "workers-temporal.yaml").read_text())
POD, POD_ON_TEMPORAL = (deployment["spec"]["template"]["spec"] for deployment in (DEPLOYMENT, ON_TEMPORAL))
DRAIN_SECONDS = inspect.signature(DurableBackend.work).parameters["drain_seconds"].default

PROBES = {"/live": "livenessProbe", "/ready": "readinessProbe"}
pods = pytest.mark.parametrize("pod", [POD, POD_ON_TEMPORAL], ids=["sqlite", "temporal"])


def test_it_is_one_machine() -> None:
    assert (CLAIM["kind"], CLAIM["spec"]["accessModes"]) == ("PersistentVolumeClaim", ["ReadWriteOnce"])
    assert (DEPLOYMENT["apiVersion"], DEPLOYMENT["kind"]) == ("apps/v1", "Deployment")
    assert DEPLOYMENT["spec"]["replicas"] == 1
    assert DEPLOYMENT["spec"]["strategy"] == {"type": "Recreate"}
    assert "SQLite is one machine" in (FOLDER / "README.md").read_text()


def test_its_parts_fit_together() -> None:
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]
    names = [container["name"] for container in POD["containers"]]
    assert len(names) == len(set(names)) == 2
    for container in POD["containers"]:
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts == {"data": "/data", "tmp": "/tmp"}
        assert "sqlite:////data/runs.db" in container["command"]


@pytest.mark.parametrize("deployment", [DEPLOYMENT, ON_TEMPORAL, BUDGET], ids=["sqlite", "temporal", "budget"])
def test_it_selects_its_own_pods(deployment: Any) -> None:
    labels = ON_TEMPORAL["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels


def test_on_temporal_there_are_many_and_they_keep_nothing() -> None:
    assert (ON_TEMPORAL["apiVersion"], ON_TEMPORAL["kind"]) == ("apps/v1", "Deployment")
    assert ON_TEMPORAL["spec"]["replicas"] > 1
    assert ON_TEMPORAL["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert POD_ON_TEMPORAL["volumes"] == [{"name": "tmp", "emptyDir": {}}]
    [worker] = POD_ON_TEMPORAL["containers"]
    [variable] = worker["env"]
    assert variable["name"] == VARIABLE
    place = TemporalConfig.of(variable["value"])
    assert (place.namespace, place.task_queue, place.worker) == ("default", "travel", "on")
    assert (BUDGET["apiVersion"], BUDGET["kind"]) == ("policy/v1", "PodDisruptionBudget")
    assert "type: temporal" in (FOLDER / "README.md").read_text()


@pods
def test_a_worker_has_the_time_to_stop(pod: Any) -> None:
    for container in pod["containers"]:
        words = container["command"]
        drain = float(words[words.index("--drain-seconds") + 1]) if "--drain-seconds" in words else DRAIN_SECONDS
        assert pod["terminationGracePeriodSeconds"] >= drain + 10


def test_a_worker_is_seen_when_it_is_dead() -> None:
    assert POD["shareProcessNamespace"] is True


@pods
def test_nothing_runs_as_root_or_writes_outside_of_its_volumes(pod: Any) -> None:
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} == set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize(
    "container", [*POD["containers"], *POD_ON_TEMPORAL["containers"]], ids=lambda container: container["name"]
)
def test_its_commands_are_commands_of_ours(container: Any, tmp_path: Any) -> None:
    (tmp_path / "agents.py").touch()  # the test runs there
    program, name, *arguments = container["command"]
    assert program == "strands-durable"
    try:
        main.commands[name].make_context(name, arguments, parent=Context(main, **main.context_settings))
    except BadParameter as error:
        raise AssertionError(f"{name} {arguments}: {error}") from error


@pods
def test_each_worker_is_asked_at_the_address_where_it_answers(pod: Any) -> None:
    ports = []
    for container in pod["containers"]:
        words = container["command"]
        host, _, port = words[words.index("--health") + 1].rpartition(":")
        assert host == "0.0.0.0", "Kubernetes asks at the address of the pod"
        asked = {path: container[probe]["httpGet"] for path, probe in PROBES.items()}
        assert asked == {path: {"path": path, "port": int(port)} for path in PROBES}
        ports.append(port)
    assert len(set(ports)) == len(ports), "the containers of a pod share its address"


def test_the_paths_that_are_asked_are_those_that_a_worker_answers() -> None:
    server, codes = HealthServer(("127.0.0.1", 0), Health()), []
    for path in [*PROBES, "/other"]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", path)
        codes.append(connection.getresponse().status)
        connection.close()
    server.close()
    assert codes == [200, 503, 404], "a worker that has just started is live and not ready"


@pods
def test_a_worker_is_restarted_only_after_it_had_the_time_to_answer(pod: Any) -> None:
    for container in pod["containers"]:
        assert container["livenessProbe"]["timeoutSeconds"] >= 1
        assert container["livenessProbe"]["periodSeconds"] * 3 > STUCK_SECONDS
