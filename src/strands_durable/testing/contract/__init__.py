"""What every backend must do, as tests: subclass `BackendContract`, add a fixture with your backend, and run pytest.

    from strands_durable.testing.contract import BackendContract

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend(self, run, tmp_path):
            backend = MyBackend(...)
            with a_worker_that_imports("strands_durable.testing.agents"):
                yield backend
            run(backend.close())

The fixture returns a connected, empty `DurableBackend` whose worker runs in this process or elsewhere on this machine. Workers
must have imported `strands_durable.testing.agents`, and must see the same files. ``run`` runs a coroutine on the event loop of
the test: use it to connect if a connection is bound to a loop.

Tests are numbered like the rules that they check in docs/guarantees.md. Only this module of the package needs pytest.
"""

import pytest

_PARTS = (
    "_bench",
    "_calls",
    "_answers",
    "_results",
    "_specs",
    "_lists",
    "_deadlines",
    "_exports",
    "_forks",
    "_encryption",
    "_failures",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from ._answers import AnswersContract  # noqa: E402
from ._bench import Bench, Contract  # noqa: E402
from ._calls import CallsContract  # noqa: E402
from ._deadlines import DeadlinesContract  # noqa: E402
from ._encryption import EncryptionContract  # noqa: E402
from ._exports import ExportsContract  # noqa: E402
from ._failures import FailuresContract  # noqa: E402
from ._forks import ForksContract  # noqa: E402
from ._lists import ListsContract  # noqa: E402
from ._results import ResultsContract  # noqa: E402
from ._specs import SpecsContract  # noqa: E402

__all__ = ["BackendContract", "Bench"]


class BackendContract(
    CallsContract,
    AnswersContract,
    ResultsContract,
    SpecsContract,
    ListsContract,
    DeadlinesContract,
    ExportsContract,
    ForksContract,
    EncryptionContract,
    FailuresContract,
    Contract,
):
    """Everything a backend must do. Override the fixture ``backend``, and ``folder`` and ``patience_seconds`` if needed."""
