"""Commands that decide how long executions are kept: prune, hold, release."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from .._records.printable import one_line
from .._records.retention import Pruned, Retention, RetentionRules
from .json_view import execution_json, print_json
from .options import BackendTarget, backend_option, execution_argument, json_option

VARIABLE = "STRANDS_DURABLE_RETENTION"


def retention_option(command: Any) -> Any:
    """Let a command take rules of retention."""
    return click.option(
        "--retention",
        "rules",
        multiple=True,
        metavar="[AGENT:]RULES",
        envvar=VARIABLE,
        show_envvar=True,
        callback=_rules,
        help="How long executions are kept: completed=30d,failed=90d,cancelled=7d,contents=7d. Can be repeated for agents.",
    )(command)


def _rules(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> RetentionRules | None:
    try:
        return RetentionRules.of(texts) if texts else None
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@retention_option
@click.option("--completed", metavar="SPAN", help="Remove executions that completed longer ago, such as 30d.")
@click.option("--failed", metavar="SPAN", help="Remove executions that failed longer ago.")
@click.option("--cancelled", metavar="SPAN", help="Remove executions that were cancelled longer ago.")
@click.option("--contents", metavar="SPAN", help="Remove the contents of executions that ended longer ago.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option(
    "--rebuild", is_flag=True, help="Rewrite the file afterwards: one made before format 8 shrinks only this way."
)
@backend_option
@json_option
def prune(
    rules: RetentionRules | None, is_dry: bool, rebuild: bool, place: BackendTarget, as_json: bool, **spans: str | None
) -> None:
    """Remove executions that have ended long ago, or only their contents.

    What has not ended, and what is held, stays. A removed id is unknown again. Contents are inputs, results, messages and
    state: without them an execution is still listed with its status, times, counts and tags, its result cannot be read, and it
    is neither resumed nor run again.

    A rule for an agent replaces the others for its executions. SQLite only: elsewhere the error says what does this. Workers do
    the same about once an hour if they have rules: strands-durable worker --retention. The file becomes smaller at the end, in
    small pieces; one that was made before format 8 only with --rebuild, during which writers wait.

    \b
    With --json: an object with
      dry_run     whether nothing was removed
      removed     how many executions
      emptied     of how many executions the contents
      held        how many were old enough and are held
      failed      how many could not be removed; the log says why
      freed_bytes bytes of free pages that were given back, without --rebuild
      removed_ids, emptied_ids   with --dry-run: lists of ids
    """
    retention, agents = _asked(rules, spans)
    found = asyncio.run(place.visited().prune(retention, agents=agents, dry_run=is_dry, rebuild=rebuild))
    if as_json:
        _print_json(found, is_dry)
    else:
        _print(found, is_dry)


def _asked(rules: RetentionRules | None, spans: dict[str, str | None]) -> tuple[Retention, dict[str, Retention]]:
    given = {name: span for name, span in spans.items() if span is not None}
    if given and rules is not None and not rules.default.is_empty:
        raise click.UsageError(
            "Pass rules either with --retention, or with --completed, --failed, --cancelled and --contents."
        )
    try:
        default = Retention(**given) if given else Retention() if rules is None else rules.default
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    agents = {} if rules is None else dict(rules.agents)
    if RetentionRules(default=default, agents=agents).is_empty:
        raise click.UsageError(
            f"Nothing says how long to keep what. Pass --completed 30d, --retention, or set {VARIABLE}."
        )
    return default, agents


def _print_json(found: Pruned, is_dry: bool) -> None:
    shown = {**vars(found), "removed_ids": list(found.removed_ids), "emptied_ids": list(found.emptied_ids)}
    if not is_dry:
        del shown["removed_ids"], shown["emptied_ids"]
    print_json({"dry_run": is_dry, **shown})


def _print(found: Pruned, is_dry: bool) -> None:
    for name in found.removed_ids:
        click.echo(f"would remove           {one_line(name)}")
    for name in found.emptied_ids:
        click.echo(f"would remove contents  {one_line(name)}")
    verb = "Would remove" if is_dry else "Removed"
    kept = f", {found.held} are held" if found.held else ""
    failed = f", {found.failed} could not be removed" if found.failed else ""
    freed = "" if is_dry else f"; {found.freed_bytes / (1 << 20):.1f} MB of free pages were given back"
    click.echo(f"{verb} {found.removed} executions, and the contents of {found.emptied}{kept}{failed}{freed}.")


@click.command()
@execution_argument
@backend_option
@json_option
def hold(execution_id: str, place: BackendTarget, as_json: bool) -> None:
    """Keep an execution: neither retention nor rm removes it.

    "release" takes this back. SQLite only.

    With --json: an object as in ls --json.
    """
    asyncio.run(_mark(place, execution_id, as_json, is_held=True))


@click.command()
@execution_argument
@backend_option
@json_option
def release(execution_id: str, place: BackendTarget, as_json: bool) -> None:
    """Take back hold: the execution can be removed again.

    With --json: an object as in ls --json.
    """
    asyncio.run(_mark(place, execution_id, as_json, is_held=False))


async def _mark(place: BackendTarget, execution_id: str, as_json: bool, *, is_held: bool) -> None:
    handle = await place.visited().get(execution_id)
    await (handle.hold() if is_held else handle.release())
    if as_json:
        print_json(execution_json((await handle.detail()).execution))
    else:
        click.echo(f"{one_line(execution_id)} is {'held' if is_held else 'no longer held'}.")
