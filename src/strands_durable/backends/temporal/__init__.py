"""Executions on a Temporal cluster. Needs the extra: ``pip install 'strands-durable[temporal]'``."""

from ._backend import TemporalBackend
from ._durability import StrandsDurablePlugin, TemporalDurability
from ._handle import TemporalHandle

__all__ = ["StrandsDurablePlugin", "TemporalBackend", "TemporalDurability", "TemporalHandle"]
