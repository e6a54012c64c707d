"""AWS Lambda Durable Functions as an engine: `LambdaBackend` dispatches, `lambda_handler` is the function that runs agents."""

from ._backend import LambdaBackend
from ._durability import LambdaDurability
from ._handler import lambda_handler

__all__ = ["LambdaBackend", "LambdaDurability", "lambda_handler"]
