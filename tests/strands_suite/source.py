"""Strands' tests, from the source distribution of the version that is installed. They are fetched, never copied into ours."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "strands-suite"


def strands_version() -> str:
    """Return the version of Strands that is installed."""
    return version("strands-agents")


def fetched() -> Path:
    """Return the folder of Strands' sources, fetched once per version."""
    folder = CACHE / strands_version()
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / ".gitignore").write_text("*\n")
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            _unpacked(_download(Path(scratch)), Path(scratch)).rename(folder)
    return folder


def _download(folder: Path) -> Path:
    # pip builds the metadata of what it downloads. What that needs is in "dev"; if it is not, pip may fetch it.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "strands-agents"]
    command += ["--dest", str(folder), f"strands-agents=={strands_version()}"]
    if subprocess.run([*command, "--no-build-isolation"], capture_output=True).returncode != 0:
        subprocess.run(command, check=True)
    (found,) = folder.glob("*.tar.gz")
    return found


def _unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (found,) = (path.parent for path in folder.glob("*/pyproject.toml"))
    return found
