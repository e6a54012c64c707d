"""A durable function in processes of its own, as its environment sets it up."""

from __future__ import annotations

import json
import os

from strands_durable.backends.aws_lambda import lambda_handler
from tests.aws_lambda import agents

handler = lambda_handler(agents.agent, **json.loads(os.environ.get("LAMBDA_SETTINGS", "{}")))
