"""The crew of the crash tests as a durable function, whose processes die where they are told to; see `tests.crash.mined`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from strands_durable import Notification, Webhook
from strands_durable._records import crash_points
from strands_durable.backends.aws_lambda import lambda_handler
from tests import reported
from tests.crash import crew
from tests.crash.mined import pass_point

_agents = (crew.traveller, crew.scripted, crew.deadly, reported.planner, reported.asker, reported.broken)
_webhooks = [Webhook(os.environ["WEBHOOK"], os.environ["WEBHOOK_SECRET"])] if "WEBHOOK" in os.environ else []


def _die(notification: Notification) -> None:
    """Kill the process, as long as there is a file that says so."""
    crew.ledger().write(what="hook", notification_id=notification.notification_id)
    if crew.sign("deadly hook").exists():
        os.kill(os.getpid(), signal.SIGKILL)


_hooks = {"on_completed": _die} if "DEADLY_HOOK" in os.environ else {}
_serve = lambda_handler(*_agents, stop_poll_seconds=0.2, webhooks=_webhooks, **_hooks)


def handler(event: Any, context: Any) -> Any:
    """Serve one invocation: of one execution, in a process of its own."""
    folder = Path(os.environ["LEDGER"]).parent
    given = json.loads(event["InitialExecutionState"]["Operations"][0]["ExecutionDetails"]["InputPayload"])
    crash_points.listen(lambda name: pass_point(folder, given["execution_id"], name))
    return _serve(event, context)
