"""A PostgreSQL server for one test: Debian's package, started by an unprivileged user in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.examples.processes import free_port
from tests.waiting import until


class Postgres:
    """A server with the defaults of its package: a commit is on disk when it returns."""

    def __init__(self) -> None:
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._port = free_port()

    @property
    def url(self) -> str:
        """The URL for a state store of Dapr."""
        return f"postgresql://dapr@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Postgres:
        if os.geteuid() == 0:
            shutil.chown(self._folder, self._user)
        data = str(self._folder / "data")
        self._run("initdb", "--auth=trust", "--username=dapr", "--pgdata", data).wait(120)
        options = ["-D", data, "-h", "127.0.0.1", "-p", str(self._port), "-k", str(self._folder)]
        self._server = self._run("postgres", *options)
        until(lambda: self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self._port)).wait() == 0, 60)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.send_signal(signal.SIGINT)  # it ends its connections, and then itself
        self._server.wait(60)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        log = (self._folder / "log").open("ab")
        user = self._user if os.geteuid() == 0 else None
        with log:
            return subprocess.Popen(
                [_find(program), *options], stdout=log, stderr=log, cwd=self._folder, user=user, start_new_session=True
            )


def _find(program: str) -> str:
    """Return the path of a program: Debian's package leaves most of them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    path = str(found[-1]) if found else shutil.which(program)
    assert path is not None, f"{program} is not installed: apt-get install postgresql"
    return path
