"""What every backend must do, as tests: subclass `BackendContract`, give it your backend, and run pytest.

    from strands_durable.testing.contract import BackendContract

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend(self, run, tmp_path):
            backend = MyBackend(...)
            with a_worker_that_imports("strands_durable.testing.agents"):
                yield backend
            run(backend.close())

The fixture returns a connected `DurableBackend`, with nothing in it, whose worker runs in this process or elsewhere on this
machine. Workers must have imported `strands_durable.testing.agents`, and see the same files. ``run`` runs a coroutine on the
loop of the test: connect in it, if a connection belongs to a loop.

Tests are numbered like the rules that they hold, in docs/guarantees.md. Needs pytest; nothing else of this package does.
"""

import pytest

_PARTS = ("_bench", "_calls", "_answers", "_results", "_specs")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from ._answers import AnswersContract  # noqa: E402
from ._bench import Bench, Contract  # noqa: E402
from ._calls import CallsContract  # noqa: E402
from ._results import ResultsContract  # noqa: E402
from ._specs import SpecsContract  # noqa: E402

__all__ = ["BackendContract", "Bench"]


class BackendContract(CallsContract, AnswersContract, ResultsContract, SpecsContract, Contract):
    """All that a backend must do. Override the fixture ``backend``; ``folder`` and ``patience_seconds`` where you must."""
