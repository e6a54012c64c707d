"""The crew of the crash tests as a durable function, whose processes die where they are told to; see `tests.crash.mined`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from strands_durable._records import crash_points
from strands_durable.backends.aws_lambda import lambda_handler
from tests.crash import crew
from tests.crash.mined import pass_point

_serve = lambda_handler(crew.traveller, crew.scripted, crew.deadly, stop_poll_seconds=0.2)


def handler(event: Any, context: Any) -> Any:
    """Serve one invocation: of one execution, in a process of its own."""
    folder = Path(os.environ["LEDGER"]).parent
    given = json.loads(event["InitialExecutionState"]["Operations"][0]["ExecutionDetails"]["InputPayload"])
    crash_points.listen(lambda name: pass_point(folder, given["execution_id"], name))
    return _serve(event, context)
