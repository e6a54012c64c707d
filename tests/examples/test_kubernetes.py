"""examples/kubernetes: the manifest says what its README promises, and its commands are commands of ours."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import yaml
from click import BadParameter

from strands_durable import DurableBackend
from strands_durable._cli import main
from tests.examples.processes import EXAMPLES

CLAIM, DEPLOYMENT = yaml.safe_load_all((EXAMPLES / "kubernetes" / "workers.yaml").read_text())
POD = DEPLOYMENT["spec"]["template"]["spec"]
DRAIN_SECONDS = inspect.signature(DurableBackend.work).parameters["drain_seconds"].default


def test_it_is_one_machine() -> None:
    assert (CLAIM["kind"], CLAIM["spec"]["accessModes"]) == ("PersistentVolumeClaim", ["ReadWriteOnce"])
    assert (DEPLOYMENT["apiVersion"], DEPLOYMENT["kind"]) == ("apps/v1", "Deployment")
    assert DEPLOYMENT["spec"]["replicas"] == 1
    assert DEPLOYMENT["spec"]["strategy"] == {"type": "Recreate"}
    assert "SQLite is one machine" in (EXAMPLES / "kubernetes" / "README.md").read_text()


def test_its_parts_fit_together() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]
    names = [container["name"] for container in POD["containers"]]
    assert len(names) == len(set(names)) == 2
    for container in POD["containers"]:
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts == {"data": "/data", "tmp": "/tmp"}
        assert "sqlite:////data/runs.db" in container["command"]


def test_a_worker_has_the_time_to_stop_and_is_seen_when_it_is_dead() -> None:
    assert POD["terminationGracePeriodSeconds"] > DRAIN_SECONDS
    assert POD["shareProcessNamespace"] is True


def test_nothing_runs_as_root_or_writes_outside_of_its_volumes() -> None:
    context = POD["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False
    for container in POD["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} == set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("container", POD["containers"], ids=lambda container: container["name"])
def test_its_commands_are_commands_of_ours(container: Any, tmp_path: Any) -> None:
    (tmp_path / "agents.py").touch()  # the test runs there
    for program, name, *arguments in (container["command"], container["readinessProbe"]["exec"]["command"]):
        assert program == "strands-durable"
        try:
            main.commands[name].make_context(name, arguments)
        except BadParameter as error:
            raise AssertionError(f"{name} {arguments}: {error}") from error
