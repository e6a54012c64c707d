"""The contract that every backend fulfils, on ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_durable import DurableBackend, connect, errors
from strands_durable.testing.contract import BackendContract
from strands_durable.testing.contract._bench import Run
from tests.contract.test_c47_everywhere import BulkContract


class TestSqlite(BulkContract, BackendContract):
    """A worker in a thread of the process that dispatches."""

    @pytest.fixture
    def backend(self, run: Run, tmp_path: Path) -> Iterator[DurableBackend]:
        backend = connect(f"sqlite:///{tmp_path}/runs.db")
        yield backend
        run(backend.close())


TOY = '''
from strands_durable import DurableBackend
from strands_durable.backends.sqlite import SqliteBackend


class ToyBackend(DurableBackend):
    """A third-party backend that delegates everything."""

    def __init__(self, url, *, cipher=None):
        self.url = url
        self._inner = SqliteBackend("sqlite:///" + url.removeprefix("toy://"), cipher=cipher)

    async def dispatch(self, spec, prompt, **given):
        return await self._inner.dispatch(spec, prompt, **given)

    async def get(self, execution_id):
        return await self._inner.get(execution_id)

    async def listed(self, asked):
        return await self._inner.listed(asked)

    async def work(self, **options):
        await self._inner.work(**options)

    async def close(self):
        await self._inner.close()
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package that offers a backend, as pip would."""
    site = tmp_path / "site"
    info = site / "toy_backend-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "toy_backend.py").write_text(TOY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[strands_durable.backends]\ntoy = toy_backend:ToyBackend\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "toy_backend", raising=False)
    return site


class TestToy(BackendContract):
    """A backend of another package, found by its entry point."""

    @pytest.fixture
    def backend(self, run: Run, tmp_path: Path, installed: Path) -> Iterator[DurableBackend]:
        backend = connect(f"toy://{tmp_path}/toy.db")
        assert type(backend).__module__ == "toy_backend"
        yield backend
        run(backend.close())


def test_c31_an_unknown_scheme_names_the_backends_that_are_installed(installed: Path) -> None:
    with pytest.raises(errors.UnsupportedFeatureError, match=r"sqlite://, temporal://, toy://"):
        connect("nowhere://x")
