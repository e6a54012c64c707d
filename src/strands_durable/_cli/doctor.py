"""The command doctor: what is wrong with a backend, with the agents of a worker and with what is installed, and what to do."""

from __future__ import annotations

import asyncio
import json
import platform
import re
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import click

from .._dispatch.connect import connect
from .._records.findings import Finding, FindingLevel
from .._records.printable import masked_text, printable, url_for_people
from ..errors import DurableError
from .exit_codes import ERROR, leave
from .options import BackendTarget, backend_option, json_option

_REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[[^]]*\])?([^;]*)(?:;.*extra == ['"]([\w-]+)['"])?""")
_BOUND = re.compile(r"(>=|<)(\d+(?:\.\d+)*)")
_MARKS: dict[FindingLevel, str] = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM", "unknown": "?"}


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1)
@backend_option
@json_option
def doctor(place: BackendTarget, files: tuple[str, ...], as_json: bool) -> None:
    """Check a backend, the agents in FILE, and what is installed.

    Prints what is wrong and what to do. With FILE, as for worker: whether its agents can be imported and built and, on SQLite,
    whether they are the versions that waiting executions need. What cannot be checked is printed with "?". No execution is
    changed.

    The exit code is 1 if there is a problem; warnings do not change it.

    \b
    With --json: an object with
      backend     the URL
      level       the worst: ok, warning or problem
      findings    a list of {check, level, text, remedy}; level may also be unknown
    """
    findings = [*installed(place.url), *_of_agents(files), *_of_backend(place.url)]
    found = {finding.level for finding in findings}
    worst = "problem" if "problem" in found else "warning" if "warning" in found else "ok"
    if as_json:
        items = [{name: masked_text(value) for name, value in vars(finding).items()} for finding in findings]
        click.echo(json.dumps({"backend": url_for_people(place.url), "level": worst, "findings": items}, indent=2))
    else:
        for line in _lines(findings):
            click.echo(line)
    leave(ERROR if worst == "problem" else 0)


def _lines(findings: list[Finding]) -> Iterable[str]:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        text, *more = printable(masked_text(finding.text)).splitlines() or [""]
        yield f"{_MARKS[finding.level]:8} {finding.check:{width}}  {text}"
        remedy = printable(masked_text(finding.remedy)).splitlines()
        yield from (f"{'':8} {'':{width}}  {line}" for line in [*more, *remedy])


def _of_backend(url: str) -> list[Finding]:
    async def examined() -> tuple[Finding, ...]:
        backend = connect(url).working("off")
        try:
            return await backend.examine()
        finally:
            await backend.close()

    try:
        return list(asyncio.run(examined()))
    except DurableError as error:
        return [Finding(check="backend", level="problem", text=str(error))]


def _of_agents(files: tuple[str, ...]) -> list[Finding]:
    """Import files as a worker does, and build each of their agents."""
    if not files:
        return [
            Finding(check="agents", level="unknown", text="no FILE was given", remedy="Pass the files of a worker.")
        ]
    from .._dispatch.agent_files import agents_of
    from .._strands.patches import silence_printing

    with silence_printing():
        try:
            agents = agents_of(list(files))
        except DurableError as error:
            return [Finding(check="agents", level="problem", text=str(error))]
        return [_built(agent) for agent in agents]


def _built(agent: Any) -> Finding:
    try:
        spec = agent.spec
    except Exception as error:
        text = f"agent {agent.name!r} cannot be built: {type(error).__name__}: {error}"
        remedy = "If its function has arguments without a default, this is not a problem: they come with a dispatch."
        return Finding(check="agents", level="warning", text=text, remedy=remedy)
    return Finding(check="agents", level="ok", text=f"agent {agent.name!r}, version {spec.shown_version}")


# What is installed


def installed(url: str) -> list[Finding]:
    """Return whether this package, and what it needs for this backend, is installed in a version that it supports."""
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    text = f"Python {platform.python_version()}, strands-durable {metadata.version('strands-durable')}"
    findings = [Finding(check="installed", level="ok", text=text)]
    for requirement in metadata.requires("strands-durable") or []:
        match = _REQUIREMENT.match(requirement)
        if match is not None and match[3] in (None, scheme):
            findings.append(_installed(match[1], match[2], scheme if match[3] else None))
    return findings


def _installed(name: str, bounds: str, extra: str | None) -> Finding:
    what = f"strands-durable[{extra}]" if extra else "strands-durable"
    remedy = f"Run: pip install --upgrade '{what}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(check="installed", level="problem", text=f"{name} is not installed", remedy=remedy)
    if all(_holds(version, relation, bound) for relation, bound in _BOUND.findall(bounds)):
        return Finding(check="installed", level="ok", text=f"{name} {version}")
    text = f"{name} {version} is not supported, it must be {bounds.strip()}"
    return Finding(check="installed", level="problem", text=text, remedy=remedy)


def _holds(version: str, relation: str, bound: str) -> bool:
    numbers = [int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part]  # type: ignore[index]
    limit = [int(part) for part in bound.split(".")]
    return numbers >= limit if relation == ">=" else numbers < limit
