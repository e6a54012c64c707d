"""C3 on dispatched executions: a cancel from another process, wherever the run stands."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from strands_durable import errors
from tests.dispatched import (
    OFF,
    ask_to_stop,
    backend,
    dispatch,
    failing,
    kill,
    pair,
    result,
    slow_to_build,
    status,
    stop,
    worker,
)
from tests.processes import Child
from tests.script import ledger
from tests.waiting import until


def cancel_elsewhere(folder: str, execution_id: str) -> None:
    from strands_durable import connect

    os.chdir(folder)
    asyncio.run(asyncio.run(connect(OFF).get(execution_id)).cancel())


def cancel(execution_id: str = "run") -> None:
    """Cancel from a process of its own."""
    Child(cancel_elsewhere, os.getcwd(), execution_id).join().checked()


def effects(name: str) -> int:
    return sum(entry.get("name") == name for entry in ledger.read())


def is_cancelled(handle: Any) -> bool:
    with pytest.raises(errors.ExecutionCancelledError):
        result(handle)
    return status(handle.execution_id) == "CANCELLED"


def test_c03_a_tool_in_a_worker_sees_a_cancel_from_another_process() -> None:
    handle = dispatch([{"tool": "obey"}, {"tool": "book", "city": "Rome"}, "Done."], "run")
    current = worker()
    until(lambda: effects("obey"))
    cancel()
    assert is_cancelled(handle)
    assert effects("book") == 0
    assert str(result(dispatch(["Hi."], "other"))) == "Hi.\n"
    stop(current)


def test_c03_a_tool_sees_a_cancel_that_a_commit_has_met_before_its_worker() -> None:
    handle = dispatch([{"tool": "commit_and_obey"}, "Done."], "run")
    current = worker()
    until(Path("obeyed").exists)
    assert is_cancelled(handle)
    stop(current)


def test_c03_a_tool_in_a_worker_that_is_being_stopped_sees_it() -> None:
    handle = dispatch([{"tool": "obey"}, {"tool": "book", "city": "Rome"}, "Done."], "run")
    current = worker()
    until(lambda: effects("obey"))
    ask_to_stop(current)
    cancel()
    current.join().checked()
    assert Path("obeyed").exists()
    assert is_cancelled(handle)
    assert effects("book") == 0


def test_c03_a_tool_behind_an_agent_behind_a_tool_sees_it() -> None:
    handle = dispatch([{"tool": "assistant", "input": "Go"}, "Done."], "run")
    current = worker()
    until(lambda: effects("obey"))
    cancel()
    assert is_cancelled(handle)
    stop(current)


def test_c03_a_neighbour_that_ends_later_does_not_make_a_failure_of_it() -> None:
    handle = asyncio.run(backend().dispatch(pair.spec, "Go", execution_id="run"))
    current = worker()
    until(lambda: effects("obey") and effects("linger"))
    cancel()
    until(Path("obeyed").exists)
    until(lambda: [step for step in asyncio.run(handle.steps()) if step.name == "obey" and step.status == "done"])
    Path("go").touch()
    assert is_cancelled(handle)
    stop(current)
    assert effects("book") == 0


def test_c03_a_run_whose_worker_is_dead_is_cancelled_at_once() -> None:
    handle = dispatch([{"tool": "obey"}, "Done."], "run")
    current = worker()
    until(lambda: effects("obey"))
    kill(current)
    cancel()
    assert status("run") == "CANCELLED"
    second = worker()
    assert str(result(dispatch(["Hi."], "other"))) == "Hi.\n"
    stop(second)
    assert is_cancelled(handle)
    assert effects("obey") == 1


def test_c03_a_run_that_is_cancelled_while_its_agent_is_built_asks_no_model() -> None:
    spec = slow_to_build.spec
    handle = asyncio.run(backend().dispatch(spec, "Go", execution_id="run"))
    current = worker()
    until(Path("building").exists)
    cancel()
    Path("go").touch()
    assert is_cancelled(handle)
    stop(current)
    assert ledger.read() == []


def test_c03_a_run_that_fails_after_it_was_cancelled_is_cancelled() -> None:
    """A failure in the running step must not hide the cancel: resume() would resume a cancelled execution."""
    handle = asyncio.run(backend().dispatch(failing.spec, "Go", execution_id="run"))
    current = worker()
    until(lambda: effects("model fails"))
    cancel()
    Path("go").touch()
    assert is_cancelled(handle)
    stop(current)
    with pytest.raises(errors.ExecutionCancelledError):
        asyncio.run(handle.resume())
