"""The public surface: what it has, and that looking at it costs nothing."""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys

import pytest

import strands_durable
from strands_durable import errors
from strands_durable._records.exceptions import RENAMED, RecordedError, describe, revive
from strands_durable._records.phases import MOVES, STATUS, PhaseError, move
from tests.surface import FILE, surface


def test_every_public_name_is_there_and_no_other() -> None:
    for name in strands_durable.__all__:
        assert getattr(strands_durable, name) is not None
    assert set(strands_durable.__all__) <= set(dir(strands_durable))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        strands_durable.nonsense  # noqa: B018


def test_the_public_surface_is_what_it_was() -> None:
    assert surface() == json.loads(FILE.read_text()), "if users are to see this change, run `python -m tests.surface`"


def test_importing_the_package_imports_no_strands() -> None:
    code = "import sys, strands_durable, strands_durable.errors; print('strands' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


ERRORS = [
    errors.InputMismatchError("trip", 0, "RUNNING", "'a'", "'b'"),
    errors.DriftError("trip", "step 'model 3'", ["tool 'x' is new"]),
    errors.ExecutionBusyError("trip", "process 7 on here"),
    errors.ExecutionFailedError("trip", "ValueError: no"),
    errors.ExecutionCancelledError("trip"),
    errors.ExecutionNotFoundError("trip", "runs.db"),
    errors.BytesNotFoundError("trip", "0" * 64),
    errors.InDoubtError("trip", "1/0:x", "nobody knows"),
    errors.NotSerializableError("The result of tool 'x'", "result['a']", "object"),
    errors.UnreadableError("it is cut off", execution_id="trip"),
    errors.TypeNotRegisteredError("Color", ["Price"]),
    errors.FormatVersionError("runs.db", "format 9", "format 1"),
    errors.LeaseLostError("trip", "process 7 on here"),
    errors.AgentNotRegisteredError("planner", ["other"]),
    errors.UnknownToolError("agent 'planner'", "payy", "pay", ["look", "pay"]),
    errors.UnknownToolError("agent 'planner'", "payy", None, []),
    errors.RerunError("trip", "load_tool", "1/0:x", "it returned an error: no such file"),
    errors.WorkerLostError("trip", 3, "process 7 on here"),
    errors.StepTooLongError("trip", "search", 900),
    errors.BackendUnavailableError("runs.db", "the disk is full"),
    errors.UnsupportedFeatureError("This", "that", "Do so."),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_are_sentences_and_survive_pickling_and_recording(error: errors.DurableError) -> None:
    text = str(error)
    assert text.endswith((".", '"', "started."))
    assert isinstance(error, errors.DurableError)
    for back in (pickle.loads(pickle.dumps(error)), revive(describe(error))):
        assert type(back) is type(error)
        assert str(back) == text
        assert vars(back) == vars(error)


def test_an_exception_whose_class_is_gone_keeps_its_text() -> None:
    record = describe(ValueError("no"))
    record["type"] = "nowhere:Gone"
    back = revive(record)
    assert isinstance(back, RecordedError)
    assert str(back) == "no"


@pytest.mark.parametrize("recorded", RENAMED)
def test_every_class_that_an_earlier_version_recorded_is_still_there(recorded: str) -> None:
    module, _, name = RENAMED[recorded].partition(":")
    assert issubclass(getattr(importlib.import_module(module), name), Exception)


def test_an_exception_that_an_earlier_version_recorded_is_of_its_class() -> None:
    record = describe(RecordedError("x.Y", "no"))
    record["type"] = "strands_durable._failure:RecordedError"
    assert type(revive(record)) is RecordedError
    assert vars(revive(record)) == {"type_name": "x.Y", "text": "no"}


def test_a_recorded_exception_keeps_its_causes_and_attributes() -> None:
    class Odd(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}")
            self.code, self.handle = code, object()

    sys.modules[__name__].Odd = Odd  # type: ignore[attr-defined]
    Odd.__qualname__ = "Odd"
    error = Odd(7)
    error.__cause__ = KeyError("x")
    back = revive(describe(error))
    assert type(back) is Odd
    assert (str(back), back.code) == ("code 7", 7)
    assert isinstance(back.__cause__, KeyError)


def test_every_phase_has_its_moves_and_a_status() -> None:
    assert set(MOVES) == set(STATUS)
    assert move("trip", "ready", "model") == "model"
    with pytest.raises(PhaseError, match="cannot move to 'model'"):
        move("trip", "done", "model")
