"""Dapr as an engine: `DaprBackend` dispatches and works, `DaprDurability` runs agents inside a Dapr workflow of your own."""

from ._backend import DaprBackend
from ._inside_workflow import DaprDurability

__all__ = ["DaprBackend", "DaprDurability"]
