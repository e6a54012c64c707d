"""A worker file whose workflows are stuck in their thread, as one is that Temporal's deadlock detector has hit."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from strands import Agent
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from strands_durable import durable_agent
from strands_durable.backends.temporal import TemporalBackend
from strands_durable.testing import ScriptedModel


class _Runner(UnsandboxedWorkflowRunner):
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        instance.activate = _stuck  # type: ignore[method-assign]
        return instance


def _stuck(act: Any) -> Any:
    Path("stuck").touch()
    while True:
        with suppress(BaseException):  # the detector raises an error in this thread
            time.sleep(0.1)


backend = TemporalBackend(
    os.environ["STUCK_URL"], plugins=[SimplePlugin("stuck", workflow_runner=lambda given: given and _Runner())]
)


@durable_agent(name="scripted", durable_backend=backend)
def scripted(script: list[Any]) -> Agent:
    return Agent(model=ScriptedModel(script), callback_handler=None)
