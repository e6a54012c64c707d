"""The travel agent of the demo as a durable function, as AWS Lambda would load it."""

from __future__ import annotations

from ...backends.aws_lambda import lambda_handler
from .agents import travel_agent

handler = lambda_handler(travel_agent)
