"""The agents of `tests.features.dispatched` as durable functions; each invocation is a process that forgets everything."""

from __future__ import annotations

from importlib import import_module

from strands_durable._dispatch import registry, runner
from strands_durable.backends.aws_lambda import lambda_handler

import_module("tests.features.dispatched")
runner._BACK_OFF_SECONDS = (0.01,)

handler = lambda_handler(*registry.agents.values(), stop_poll_seconds=0.2)
tight = lambda_handler(*registry.agents.values(), stop_poll_seconds=0.2, max_operations=6)
"""Continues in a further durable execution all the time."""
