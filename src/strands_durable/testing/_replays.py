"""Check that an agent replays: a run of its own with a crash at any journal boundary, or a run that was exported."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, overload

from strands import Agent

from .._enginekit.replays.exported_runs import assert_replays_export
from .._plugin.durability import Durability
from ._crash import CrashPoints, SimulatedCrash, forget_process

Build = Callable[[Durability], Agent]


@overload
def assert_replays(run: Build, /, *prompts: Any, **options: Any) -> int: ...


@overload
def assert_replays(run: str | os.PathLike[str] | Mapping[str, Any], agent: Any, /, **given: Any) -> int: ...


def assert_replays(run: Any, /, *given: Any, **options: Any) -> int:
    """Check that an agent survives a crash at each journal boundary, or that it still does what an exported run did.

    With a function, ``assert_replays(build, "Book a hotel")``: run the prompts once, then with a crash at each journal
    boundary, and compare. ``build`` returns a new agent with the given `Durability`, as a new process would. Options are passed
    to `Durability`. Crashes are simulated in this process; for real ones, run your script in a child process and kill it.

    With an export, ``assert_replays("run.json", agent)``: give the agent the recorded inputs, with the recorded answers of its
    models, the recorded results of its tools and the recorded answers of people, and compare what it does. No model is called
    and no tool runs; hooks, conversation managers and structured output do. Options are passed to each call of the agent, such
    as ``invocation_state`` or ``structured_output_model``, which are not on record for an inline run.

    Args:
        run: A function that builds an agent; or an export: the path of its file, or what `ExecutionHandle.export` returned.
        given: The prompts; or, for an export, the agent: an Agent, Graph or Swarm, a `DurableAgent`, or a function that takes
            no arguments and returns one.
        options: For `Durability`; or, for an export, for each call of the agent.

    Returns:
        The number of journal boundaries; or, for an export, the number of steps that were played.

    Raises:
        AssertionError: A run ended differently. For an export, with a unified diff for each step, the first difference first.
        InvalidExportError: The export cannot be replayed: it is damaged, or has no contents.
        UnsupportedFeatureError: A step cannot be replayed, because what it did is not on record.
    """
    if isinstance(run, (str, os.PathLike, Mapping)):
        if len(given) != 1:
            raise TypeError("assert_replays(export, agent) takes an export and one agent")
        return assert_replays_export(run, given[0], options)
    return _assert_survives(run, given, options)


def _assert_survives(build: Build, prompts: tuple[Any, ...], options: dict[str, Any]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        points = CrashPoints()
        with points.recording():
            expected = _run(build, prompts, Path(folder) / "whole.db", options)
        boundaries = [point for point in points.reached if ":before@" in point or ":after@" in point]
        for number, boundary in enumerate(boundaries):
            path = Path(folder) / f"{number}.db"
            try:
                with CrashPoints().crashing(boundary, "raise"):
                    _run(build, prompts, path, options)
            except SimulatedCrash:
                pass
            resumed = _run(build, prompts, path, options)
            if resumed != expected:
                raise AssertionError(
                    f"The run ended differently after a crash at {boundary}.\nExpected: {expected}\nFound: {resumed}"
                )
            again = _run(build, prompts, path, options)
            if again != expected:
                raise AssertionError(
                    f"Running it again after it completed (crash at {boundary}) gave another result.\nFound: {again}"
                )
    return len(boundaries)


def _run(build: Build, prompts: tuple[Any, ...], path: Path, options: dict[str, Any]) -> list[Any]:
    forget_process()
    agent = build(Durability(path, execution_id="assert-replays", **options))
    try:
        return [_seen(agent, agent(prompt)) for prompt in prompts]
    finally:
        forget_process()


def _seen(agent: Agent, result: Any) -> dict[str, Any]:
    """Return what must be equal: everything except random ids and clocks."""
    messages = copy.deepcopy(agent.messages)
    for message in messages:
        message.pop("tracking_id", None)
        message.get("metadata", {}).pop("metrics", None)
    return {
        "stop_reason": result.stop_reason,
        "text": str(result),
        "messages": messages,
        "state": agent.state.get(),
        "usage": dict(result.metrics.accumulated_usage),
        "cycles": result.metrics.cycle_count,
    }
