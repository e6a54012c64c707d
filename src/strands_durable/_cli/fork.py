"""The command that forks an execution. It records the fork; a worker or a script runs it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from .._records.codec import decode, encode, refusal
from .._records.origins import ForkChanges
from ..errors import UnreadableError
from .control import print_next, warn_unattended
from .json_view import execution_json, print_json
from .numbers import Count
from .options import BackendTarget, backend_option, execution_argument, json_option, strict_json


@click.command()
@execution_argument
@click.option(
    "--at",
    type=Count(),
    metavar="N",
    help="The number of a finished step, as show and watch print it; 0 is the beginning.  [default: the last one]",
)
@click.option("--id", "fork_id", metavar="ID", help="The id of the fork.  [default: ID-fork- and random characters]")
@click.option("--prompt", metavar="TEXT", help="With --at 0, the new input; at the end of a turn, another turn.")
@click.option("--edit", is_flag=True, help="Edit the conversation and the state as they were then in $EDITOR, as JSON.")
@backend_option
@json_option
def fork(
    execution_id: str,
    at: int | None,
    fork_id: str | None,
    prompt: str | None,
    edit: bool,
    place: BackendTarget,
    as_json: bool,
) -> None:
    """Start a new execution from a finished step of another.

    The fork has everything up to that step, by reference; nothing of it runs again. What had begun by then without a result
    begins again, with new idempotency keys. The original is not changed, and may have any status. A worker runs the fork with
    today's version of its agent; "show" lists how that differs from the version that ran the steps before. The fork of an
    execution that was started inline waits for a run of its script with the new id.

    With --edit, what the step's agent had said and stored is opened in an editor: another conversation must end with a message
    of the user, and have a result for every tool call. If nothing is changed, the fork is one without changes.

    With --json: an object as in ls --json, for the fork.
    """
    asyncio.run(_fork(place, execution_id, at, fork_id, prompt, edit, as_json))


async def _fork(
    place: BackendTarget,
    execution_id: str,
    at: int | None,
    fork_id: str | None,
    prompt: str | None,
    edit: bool,
    as_json: bool,
) -> None:
    backend = place.visited()
    handle = await backend.get(execution_id)
    changes = ForkChanges(prompt=prompt)
    if edit:
        point = await handle.fork_point(at)
        at, changes = point.step, edited(point.messages, point.state, prompt)
    found = await handle.fork(
        at=at, execution_id=fork_id, state=changes.state, messages=changes.messages, prompt=changes.prompt
    )
    detail = await found.detail()
    if as_json:
        print_json(execution_json(detail.execution))
        return
    step = "" if detail.origin is None else f" at step {detail.origin.step}"
    print_next(f"Forked {execution_id}{step} as {found.execution_id}.", detail, place)
    await warn_unattended(backend, detail.execution)


def edited(messages: list[Any], state: dict[str, Any], prompt: str | None) -> ForkChanges:
    """Return what a person makes of a conversation and a state in an editor."""
    before = {"messages": json.loads(encode(messages)), "state": json.loads(encode(state))}
    try:
        text = click.edit(json.dumps(before, indent=2, ensure_ascii=False) + "\n", extension=".json")
        changed = {} if text is None else _changed(text, before)
    except (ValueError, KeyError, TypeError, OSError, RecursionError, UnreadableError) as error:
        reason = error.reason if isinstance(error, UnreadableError) else str(error) or type(error).__name__
        raise click.UsageError(
            f"This is not a JSON object with messages and state ({reason}). Nothing was forked."
        ) from None
    return ForkChanges(state=changed.get("state"), messages=changed.get("messages"), prompt=prompt)


def _changed(text: str, before: dict[str, Any]) -> dict[str, Any]:
    """Return what differs, as it was before it was written as JSON."""
    after = strict_json(text)
    found = {name: after[name] for name in before}
    for name, kind in (("messages", list), ("state", dict)):
        if not isinstance(found[name], kind):
            raise TypeError(f"{name} must be {'a list' if kind is list else 'an object'}")
    changed = {name: decode(json.dumps(found[name])) for name in before if found[name] != before[name]}
    if refused := refusal(changed, "What you wrote"):
        raise ValueError(f"{refused.path} is a {refused.type_name}{refused.detail}")
    if not isinstance(changed.get("messages", []), list) or not isinstance(changed.get("state", {}), dict):
        raise TypeError("messages must be a list, and state an object")
    return changed
