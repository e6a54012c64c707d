"""Put a `Durability` first in the plugins of every agent, graph and swarm that is built.

Nothing else of Strands is touched. What we refuse at attach time is built without us, and counted.
"""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strands import Agent
from strands.multiagent.graph import Graph
from strands.multiagent.swarm import Swarm

from strands_durable import Durability
from strands_durable.errors import UnsupportedFeatureError
from strands_durable.testing import forget_process


class Bench:
    """The store that the test under way writes to, and what was counted in it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The store of this test. Objects built outside of any test share one of their own."""
        if self._folder is None:
            self.begin()
        assert self._folder is not None
        return Path(self._folder.name) / "runs.db"

    def begin(self) -> None:
        """Start with nothing on record."""
        self.end()
        self.counts = Counter()
        self._folder = tempfile.TemporaryDirectory(prefix="strands-suite-")

    def end(self) -> None:
        """Close and remove the store."""
        forget_process()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def attach(bench: Bench, *, multi_agent: bool, then: Callable[[Any], None] = lambda built: None) -> None:
    """Have every object of these classes built with a `Durability` from now on, and ``then`` called with it."""
    for kind in (Agent, Graph, Swarm) if multi_agent else (Agent,):
        kind.__init__ = _durably(kind.__init__, bench, then)  # type: ignore[method-assign]


def _durably(init: Callable[..., None], bench: Bench, then: Callable[[Any], None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def durable_init(*args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(*args, **kwargs).arguments.get("plugins")
        except TypeError:
            init(*args, **kwargs)  # for Strands to refuse
            return
        try:
            init(*args, **{**kwargs, "plugins": [Durability(bench.path), *(given or ())]})
        except UnsupportedFeatureError:
            init(*args, **kwargs)
            bench.counts["refused"] += 1
            return
        bench.counts["attached"] += 1
        then(args[0])

    return durable_init
