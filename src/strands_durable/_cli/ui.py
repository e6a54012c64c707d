"""The command ui: serves the web page over a backend."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .options import BackendTarget, backend_option


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=8321,
    show_default=True,
    help="Port to listen on; 0 chooses a free one.",
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Ask for the password in this file, instead of a token in the URL.",
)
@click.option(
    "--user-header",
    metavar="NAME",
    help="Take the user's name from this header, which a proxy in front sets for people whom it has authenticated.",
)
@backend_option
def ui(place: BackendTarget, **options: Any) -> None:
    """Show executions in a browser.

    Serves a web page with the list of executions, a timeline of each one, live, and an inbox with the questions that wait for a
    person. Executions can be answered, resumed, cancelled and removed there. No agent runs in this process. Ctrl-C stops it.

    It listens on this machine only, and prints a URL with a random token: only a browser that opens this URL gets in. To serve
    it to others, pass --host with --password-file, or with --user-header behind a proxy that authenticates people; without one
    of them, another address is refused. Passwords and pages are not encrypted: put a proxy with TLS in front.

    Needs the extra "ui": pip install 'strands-durable[ui]'
    """
    from ..ui import missing_extra

    try:
        from ..ui._server import Place, serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("strands_durable"):
            raise
        raise missing_extra(error) from error
    serve(place.visited(), Place(**options), _announce)


def _announce(url: str) -> None:
    click.echo(f"Open {url}\nPress Ctrl-C to stop.")
    sys.stdout.flush()
