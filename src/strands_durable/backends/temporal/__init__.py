"""Executions on a Temporal cluster. Needs the extra: ``pip install 'strands-durable[temporal]'``."""

from ._backend import TemporalBackend
from ._handle import TemporalHandle
from ._inside_workflow import StrandsDurablePlugin, TemporalDurability

__all__ = ["StrandsDurablePlugin", "TemporalBackend", "TemporalDurability", "TemporalHandle"]
