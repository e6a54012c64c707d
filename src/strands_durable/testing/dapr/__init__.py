"""Dapr on this machine, for tests, including your own: real placement, scheduler and sidecars, which stop with this process.

    with DaprCluster(sidecars=2) as dapr:
        backend = connect(dapr.url)

`python -m strands_durable.testing.dapr` finds or builds the programs beforehand. No worker runs here: yours connect to the
sidecars.
"""

from __future__ import annotations

from ._binaries import Binaries, build, find
from ._cluster import DaprCluster
from ._processes import DaprProcess, Sidecar

__all__ = ["Binaries", "DaprCluster", "DaprProcess", "Sidecar", "build", "find"]
