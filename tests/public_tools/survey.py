"""What a kill does to each tool of strands-agents-tools: the survey, and the table of it in docs/features.md.

`python -m tests.public_tools.survey` writes the table; a test compares it with what it finds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image

from tests.public_tools.uses import NOT_RUN, USES
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "features.md"
MADE_AGAIN = "finished calls are repeated"
_TABLE = re.compile(r"<!-- public tools -->\n.*?<!-- /public tools -->", re.DOTALL)
_LOADED = '''from strands import tool


@tool
def loaded(city: str) -> str:
    """Greet a city."""
    return f"Hello, {city}"
'''


def survey(folder: Path) -> dict[str, str]:
    """Use every tool, kill the process, resume in others; return what the kill does to each tool."""
    (folder / "killed").mkdir()
    with _web() as url:
        _prepare(folder / "killed")
        killed = _start(folder / "killed", "killed", url)
        until(lambda: (folder / "killed" / "ready").exists() or killed.poll() is not None, 120)
        assert killed.poll() is None, _said(folder / "killed")
        killed.kill()
        killed.wait()
        for how in ("reuse", "default"):
            shutil.copytree(folder / "killed", folder / how)
        resumed = [(how, _start(folder / how, how, url)) for how in ("reuse", "default")]
        for how, process in resumed:
            assert process.wait(120) == 0, _said(folder / how)
    plain, reuse, default = (
        json.loads((folder / place / f"{name}.json").read_text())
        for place, name in (("killed", "plain"), ("reuse", "reuse"), ("default", "default"))
    )
    return {use.tool: _verdict(plain[use.tool], reuse[use.tool], default[use.tool]) for use in USES}


def _verdict(plain: Any, reuse: Any, default: Any) -> str:
    if reuse == plain:
        return "nothing is lost" if default == plain else "breaks when repeated"
    return MADE_AGAIN if default == plain else "**lost**"


def table(found: dict[str, str]) -> str:
    """Return the table."""
    rows = [f"| `{use.tool}` | {found[use.tool]} | {use.note} |" for use in USES]
    rows += [f"| `{name}` | not run | {reason} |" for name, reason in NOT_RUN.items()]
    return "| tool | after a kill | |\n|---|---|---|\n" + "\n".join(sorted(rows)) + "\n"


def documented() -> str:
    """Return the table that the page has."""
    found = _TABLE.search(PAGE.read_text())
    assert found is not None
    return found[0].split("\n", 1)[1].rsplit("<!--", 1)[0]


def _prepare(folder: Path) -> None:
    (folder / "given.txt").write_text("Rome\n")
    (folder / "loaded.py").write_text(_LOADED)
    Image.new("RGB", (1, 1)).save(folder / "given.png")


def _start(folder: Path, how: str, url: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GATE": "closed" if how == "killed" else "open",
        "BYPASS_TOOL_CONSENT": "true",
        "STRANDS_NON_INTERACTIVE": "true",
        "STRANDS_WORKFLOW_DIR": str(folder / "workflows"),
    }
    command = [sys.executable, "-W", "ignore", "-m", "tests.public_tools.program", how, url]
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )


def _said(folder: Path) -> str:
    return (folder / "output").read_text(errors="replace")[-6000:]


class _Handler(BaseHTTPRequestHandler):
    """Gives a cookie, and says which one it is given."""

    def do_GET(self) -> None:
        text = f"cookie: {self.headers.get('Cookie')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        if self.path == "/set":
            self.send_header("Set-Cookie", "city=Rome")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def _web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        text = table(survey(Path(name)))
    PAGE.write_text(_TABLE.sub(lambda _: f"<!-- public tools -->\n{text}<!-- /public tools -->", PAGE.read_text()))
