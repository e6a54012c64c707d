"""Retention in workers: which rules this process has for a store, and a pass over it from time to time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from .._records.cipher import Cipher
from .._records.logs import safe_logger
from .._records.retention import Retention, RetentionRules
from .._sqlite.open_files import stores
from .._sqlite.upkeep.retention import Pruner
from . import registry

logger = safe_logger(__name__)

EVERY_SECONDS = 3_600.0
"""How often one of the workers of a store makes a pass."""
_LOOK_SECONDS = 60.0
"""How often a worker looks whether a pass is due; the first pass is due at once."""


class Retentions:
    """The rules that this process has been given, by store."""

    def __init__(self) -> None:
        self._rules: dict[Path, RetentionRules] = {}

    def set(self, path: Path, rules: RetentionRules) -> None:
        """Replace the rules of a store."""
        self._rules[path] = rules

    def of(self, path: Path) -> RetentionRules:
        """Return the rules of a store, with those that agents of this process have themselves."""
        return with_agents(self._rules.get(path, RetentionRules()))


retentions = Retentions()


def with_agents(rules: RetentionRules) -> RetentionRules:
    """Return rules with those of the agents that are registered here; a rule that was given for an agent by name wins."""
    own = {name: agent.retention for name, agent in registry.agents.items() if agent.retention is not None}
    return RetentionRules(default=rules.default, agents={**own, **rules.agents})


def rules_of(retention: Retention | None, agents: Mapping[str, Retention] | None) -> RetentionRules:
    """Return the rules that a caller has given, checked."""
    for given in (retention, *(agents or {}).values()):
        if given is not None and not isinstance(given, Retention):
            raise TypeError(f"{given!r} is not a Retention: pass Retention(completed='30d')")
    return RetentionRules(default=retention or Retention(), agents=dict(agents or {}))


@asynccontextmanager
async def pruning(path: Path, cipher: Cipher | None = None) -> AsyncIterator[None]:
    """Apply the rules of a store as long as the block runs; a pass that is being made then ends after its next piece."""
    stop = threading.Event()
    task = asyncio.ensure_future(_prune_now_and_then(path, stop, cipher))
    try:
        yield
    finally:
        stop.set()  # the thread of a pass is not cancelled with the task, and the process waits for it
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _prune_now_and_then(path: Path, stop: threading.Event, cipher: Cipher | None) -> None:
    while True:
        rules = retentions.of(path)
        began = time.monotonic()
        if not rules.is_empty:
            try:
                pruner = Pruner(stores.open(path, cipher=cipher)[0], rules, is_stopped=stop.is_set)
                await asyncio.to_thread(pruner.run, EVERY_SECONDS)
            except Exception as error:  # the next pass removes what this one has not
                logger.warning("store=<%s>, error=<%s> | retention not applied, retrying", path, error)
        await asyncio.sleep(max(_LOOK_SECONDS, time.monotonic() - began))
