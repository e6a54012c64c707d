"""A stream for people: a line for each committed step, and on a terminal the streamed text of the running step."""

from __future__ import annotations

import re
from typing import Any, TextIO

import click

from .._records.live_text import LiveText
from .._records.printable import one_line
from .._records.results import StreamEvent
from .._records.views import label_of, short

_PLACE = re.compile(r"(?P<scope>.*)#\d+/(?P<key>.*)", re.DOTALL)
_COLOURS = {
    "done": "green",
    "error": "red",
    "failed": "red",
    "interrupted": "magenta",
    "unstorable": "red",
    "discarded": None,
}
_NAME_WIDTH, _TEXT_LENGTH = 22, 80


class Lines:
    """Prints the events of a stream; what looks like a secret is masked."""

    def __init__(self, out: TextIO, *, is_live: bool) -> None:
        self._out, self._is_live, self._live_text = out, is_live, LiveText()
        self._streaming: tuple[str, int] | None = None

    def print(self, event: StreamEvent) -> None:
        """Print one event."""
        if event["recorded"]:
            self._break_off()
            self._print(line_of(event) + "\n")
        elif self._is_live and event.get("data"):
            self._print_chunk(event)

    def _print_chunk(self, event: StreamEvent) -> None:
        """Print a chunk of streamed text; another attempt, or another step that runs at the same time, starts a new line."""
        place = (event["step"], event["attempt"])
        if place != self._streaming:
            self._break_off()
        self._streaming = place
        self._print_dim(self._live_text.grown(*place, event["data"]))

    def _break_off(self) -> None:
        if self._streaming is not None:
            self._print_dim(self._live_text.rest())
            self._print("\n")
        self._streaming = None

    def _print_dim(self, text: str) -> None:
        if text:
            self._print(click.style(text, dim=True))

    def _print(self, text: str) -> None:
        click.echo(text, file=self._out, nl=False)


def line_of(event: StreamEvent) -> str:
    """Return the line of a committed step: number, step, status, outcome and tokens."""
    match = _PLACE.fullmatch(event["step"])
    scope, key = (match["scope"], match["key"]) if match else ("", event["step"])
    depth = len(re.findall(r"#\d+/", scope))
    label = "  " * depth + label_of(event["kind"], one_line(event["name"]), key)
    attempt = f"attempt {event['attempt']}  " if event["attempt"] > 1 else ""
    status = click.style(f"{one_line(event['status']):<11}", fg=_COLOURS.get(event["status"]))
    text = f"{event['number']:>5}  {label:<{_NAME_WIDTH}} {status} {attempt}{_outcome(event)}"
    return (text + _tokens(event)).rstrip()


def _outcome(event: StreamEvent) -> str:
    if event.get("error"):
        return short(event["error"], 2 * _TEXT_LENGTH)
    result = event.get("result")
    if event["kind"] in ("model", "tool") and isinstance(result, dict):
        message = result.get("message") if event["kind"] == "model" else result
        return short(_text_of((message or {}).get("content") or ()), _TEXT_LENGTH)
    return short(result, _TEXT_LENGTH)


def _text_of(content: Any) -> str:
    """Return the texts of content blocks, and the names of the tools that they call."""
    blocks = [block for block in content if isinstance(block, dict)]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    texts += [short(block["json"], _TEXT_LENGTH) for block in blocks if "json" in block]
    tools = [str(block["toolUse"].get("name")) for block in blocks if "toolUse" in block]
    return " ".join([*texts, *([f"→ {', '.join(tools)}"] if tools else [])])


def _tokens(event: StreamEvent) -> str:
    usage = event.get("usage")
    if not usage or event["kind"] != "model":
        return ""
    return click.style(f"  {usage.get('inputTokens', 0)}/{usage.get('outputTokens', 0)} tokens", dim=True)
