"""``python -m bench.aws_lambda``: our Lambda engine and pydantic-ai's, side by side on AWS's local runner."""
