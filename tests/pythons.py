"""`make test-pythons`: the tests that another version of Python may break, on each supported version that this machine has.

Interpreters are looked for on PATH and among those of pyenv; each gets a virtualenv of its own, without the optional engines.
The version of `.venv` is left out: `make test` runs everything on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIRED = ("openai<3", "pytest", "pytest-timeout", "pytest-xdist", "strands-agents[a2a]")
"""With all that `tests.preloaded` imports: otherwise each process of a test would import Strands itself."""
TESTS = (
    "unit/test_codec.py", "unit/test_codec_values.py", "unit/test_deadline.py", "unit/test_processes.py",
    "unit/test_types.py",
    "contract/test_backend_contract.py", "contract/test_c01_one_process.py", "contract/test_c03_cancel.py",
    "contract/test_c08_forks.py", "contract/test_c08_owners.py", "contract/test_c08_tool_threads.py",
    "contract/test_c08_turns.py", "contract/test_c09_to_c13_steps.py", "contract/test_c12_retries.py",
    "contract/test_c20_to_c24_nesting.py", "contract/test_formats.py", "contract/test_keyboard.py",
    "contract/test_strands_private.py", "contract/test_strands_private_orchestrators.py", "contract/test_streaming.py",
    "contract/test_sync_handles.py",
)  # fmt: skip
"""What depends on asyncio, on processes and threads, on the codec, and on names that Strands marks private."""


def main() -> int:
    """Run the tests on each version; return 1 if some fail."""
    failed = [version for version in supported() if not is_good(version)]
    if failed:
        print(f"Failed on Python {', '.join(failed)}.")
    return 1 if failed else 0


def supported() -> list[str]:
    """Return the versions that the package names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]
    return sorted(versions, key=lambda version: int(version.partition(".")[2]))


def is_good(version: str) -> bool:
    """Run the tests on one version, if it is there."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        print(f"Python {version}: the one of {Path(sys.prefix).name}, left to `make test`", flush=True)
        return True
    found = next((python for python in candidates(version) if is_usable(python)), None)
    if found is None:
        print(f"Python {version}: not found", flush=True)
        return True
    print(f"Python {version}: {found}", flush=True)
    began = time.monotonic()
    tests = [f"tests/{name}" for name in TESTS]
    command = [str(prepared(found, version)), "-m", "pytest", "-q", "-n", "4", "--dist", "worksteal", *tests]
    passed = subprocess.run(command, cwd=ROOT).returncode == 0
    print(f"Python {version}: {time.monotonic() - began:.0f} s", flush=True)
    return passed


def candidates(version: str) -> Iterator[str]:
    """Return what may be an interpreter of a version."""
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, pyenv.glob(f"versions/{version}.*/bin/python"))


def is_usable(python: str) -> bool:
    """Say whether an interpreter starts, and can make a virtualenv; a shim of pyenv may do neither."""
    return subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0


def prepared(python: str, version: str) -> Path:
    """Return the interpreter of a virtualenv with what the tests need."""
    folder = ROOT / f".venv-{version}"
    inner, ready, project = folder / "bin" / "python", folder / ".ready", ROOT / "pyproject.toml"
    if not ready.exists() or ready.stat().st_mtime < project.stat().st_mtime:
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(inner), "-m", "pip", "install", "--quiet", "--editable", ".", *REQUIRED]
        subprocess.run(install, cwd=ROOT, check=True)
        ready.touch()
    return inner


if __name__ == "__main__":
    sys.exit(main())
