"""The command run: one execution of an agent, from a file to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from .._dispatch.connect import connect
from .._dispatch.ports import DurableBackend, ExecutionHandle
from .._records.executions import ExecutionStatus
from .._records.keys import checked_id
from .._records.printable import printable
from .._records.results import ExecutionResult
from ..errors import ExecutionCancelledError, ExecutionFailedError, InvalidIdError
from .control import asked, warn_unattended
from .exit_codes import INTERRUPTED, code_of, code_of_status, leave, leave_at_once, tell
from .options import BackendTarget, backend_option, json_option, not_json, strict_json
from .prompts import is_terminal, listed

if TYPE_CHECKING:
    from .._dispatch.registry import DurableAgent

S = ExecutionStatus
_CLOSE_SECONDS = 2.0
_LATE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """What ``run`` was asked for."""

    target: str
    prompt: str | None
    execution_id: str
    arguments: dict[str, Any]
    state: dict[str, Any]
    timeout: float | None
    as_json: bool
    place: BackendTarget

    @property
    def again(self) -> str:
        """The command that goes on with it."""
        return self.place.command(f"run {self.target} --id {self.execution_id}")


def _arguments(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} has no value. Write NAME=JSON.", ctx, param)
        try:
            found[name] = strict_json(value)
        except ValueError:
            raise click.BadParameter(f"{name}: {not_json(value)}", ctx, param) from None
    return found


def _execution_id(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    try:
        return None if given is None else checked_id(given)
    except InvalidIdError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _state(ctx: click.Context, param: click.Parameter, given: str) -> dict[str, Any]:
    try:
        found = strict_json(given)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{given!r} is not a JSON object.", ctx, param)
    return found


@click.command()
@click.argument("target", metavar="FILE:AGENT")
@click.argument("prompt", required=False)
@click.option(
    "--id",
    "execution_id",
    metavar="ID",
    callback=_execution_id,
    help="The execution's id. If it exists, that execution is resumed.",
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=JSON",
    callback=_arguments,
    help="An argument for the agent's factory.",
)
@click.option("--state", metavar="JSON", default="{}", callback=_state, help="The invocation state, a JSON object.")
@click.option("--detach", is_flag=True, help="Leave it to a worker, and print the id.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="How long to wait for the end.")
@backend_option
@json_option
def run(detach: bool, **given: Any) -> None:
    """Run an agent and print what it says.

    FILE is a Python file that defines the agent with @durable_agent, or a module's name; AGENT may be left out if there is one.
    PROMPT may be left out with the --id of an execution that is there, and is read from standard input if it is "-".

    If the agent asks a person, the question is asked on the terminal; without a terminal it is printed, with the command that
    answers it. On a terminal, steps are told on stderr as they are committed. What the agent itself prints goes to stderr, too.

    A run that was stopped or killed goes on with the same command and its --id.

    \b
    With --json: an object with
      execution_id, status, stop_reason
      message             the last message; null for a Graph or Swarm
      state, request_state, usage, structured_output
      interrupts          what it waits for: a list of {interrupt_id, name, reason}
      nodes               by node id: {status, result, text, usage}
    or, of one that is FAILED, CANCELLED or still at work: {execution_id, status, error}.
    With --detach: an object {execution_id, status}.
    """
    from .._dispatch.agent_files import agent_of
    from .._strands.patches import silence_printing

    if given["prompt"] is None and given["execution_id"] is None:
        raise click.UsageError("A new execution needs a PROMPT; one that is there, its --id.")
    asking = Run(**{**given, "execution_id": given["execution_id"] or uuid.uuid4().hex})
    if asking.prompt == "-":
        asking = replace(asking, prompt=sys.stdin.read())
    with contextlib.redirect_stdout(sys.stderr), silence_printing():  # stdout is for the result alone
        agent = agent_of(asking.target)
        backend = connect(asking.place.url) if asking.place.is_said else agent.backend
        backend = backend.working("off" if detach else "own")
        work = _detached(asking, agent, backend) if detach else _carried(asking, agent, backend)
        code, said, is_over = _awaited(work, asking)
    said = printable(said)
    click.echo(said, nl=bool(said) and not said.endswith("\n"))
    if not is_over:
        leave_at_once(code)
    leave(code)


Outcome = tuple[int, str, bool]
"""The exit code, what to print, and whether nothing runs here any more."""


def _awaited(work: Coroutine[Any, Any, Outcome], asking: Run) -> Outcome:
    """Run to the end, or until Ctrl-C; unlike `asyncio.run`, without waiting for tools in threads that nobody can stop."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def stop() -> None:
        click.echo(f"\nStopped. It goes on with: {asking.again}", err=True)
        task.cancel()

    # An exception out of nowhere could be lost where Python ignores one, or leave a lock that somebody waits for.
    def interrupted(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the next Ctrl-C is not for us to handle
        loop.call_soon_threadsafe(stop)

    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, or somebody else's
    if is_ours:
        signal.signal(signal.SIGINT, interrupted)
    try:
        return loop.run_until_complete(task)
    except asyncio.CancelledError:
        return INTERRUPTED, "", False
    except KeyboardInterrupt:
        stop()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        return INTERRUPTED, "", False
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.close()


async def _dispatched(asking: Run, agent: DurableAgent, backend: DurableBackend) -> ExecutionHandle:
    if asking.prompt is None:
        return await backend.get(asking.execution_id)
    return await agent.on(backend).dispatch_async(
        asking.prompt, execution_id=asking.execution_id, invocation_state=asking.state, **asking.arguments
    )


async def _detached(asking: Run, agent: DurableAgent, backend: DurableBackend) -> Outcome:
    handle = await _dispatched(asking, agent, backend)
    status = await handle.status()
    if status in (S.PENDING, S.RUNNING):
        await warn_unattended(backend)
    found = {"execution_id": handle.execution_id, "status": status.value}
    return 0, json.dumps(found, indent=2) if asking.as_json else handle.execution_id, True


async def _carried(asking: Run, agent: DurableAgent, backend: DurableBackend) -> Outcome:
    handle = await _dispatched(asking, agent, backend)
    if sys.stderr.isatty():
        click.echo(f"Execution {asking.execution_id}", err=True)
    is_over = True
    try:
        result = await _ended(asking, handle)
        return code_of_status(result.status), await _said(asking, handle, result), True
    except (ExecutionFailedError, ExecutionCancelledError, TimeoutError) as error:
        is_over = not isinstance(error, TimeoutError)
        return _report_error(asking, error), await _error_json(asking, handle, error), is_over
    finally:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(backend.close(), _CLOSE_SECONDS)


async def _ended(asking: Run, handle: ExecutionHandle) -> ExecutionResult:
    """Wait for the end; ask what is to be asked, if somebody is there."""
    shown = [0]
    while True:
        async with _reported(handle, shown):
            result = await handle.result(asking.timeout)
        questions = await handle.interrupts()
        if result.status is not S.SUSPENDED or not questions or asking.as_json or not is_terminal():
            return result
        try:
            await asked(handle, questions)
        except click.Abort:
            click.echo(err=True)
            return result


@contextlib.asynccontextmanager
async def _reported(handle: ExecutionHandle, shown: list[int]) -> AsyncIterator[None]:
    """Tell each committed step on the terminal, meanwhile."""
    if not sys.stderr.isatty():
        yield
        return
    telling = asyncio.ensure_future(_tell_steps(handle, shown))
    try:
        yield
        await asyncio.wait({telling}, timeout=_LATE_SECONDS)  # the stream ends by itself where the result is there
    finally:
        telling.cancel()


async def _tell_steps(handle: ExecutionHandle, shown: list[int]) -> None:
    from .stream_view import Lines

    lines = Lines(sys.stderr, is_live=False)
    async for event in handle.stream(shown[0]):
        lines.print(event)
        if event["recorded"]:
            shown[0] = event["number"]


async def _said(asking: Run, handle: ExecutionHandle, result: ExecutionResult) -> str:
    if asking.as_json:
        return json.dumps(result.to_json(), indent=2)
    if result.status is not S.SUSPENDED:
        return str(result)
    questions = await handle.interrupts()
    click.echo(f"{handle.execution_id} waits for an answer:\n{listed(questions)}", err=True)
    click.echo(f"Answer: {asking.place.command(f'respond {handle.execution_id}')}", err=True)
    click.echo(f"Go on:  {asking.again}", err=True)
    return ""


def _report_error(asking: Run, error: Exception) -> int:
    if not isinstance(error, TimeoutError):
        tell(error)
    else:
        text = f"Execution {asking.execution_id!r} is not over after {asking.timeout:g} s"
        click.echo(f"Error: {text}. A worker goes on with it, or: {asking.again}", err=True)
    return code_of(error)


async def _error_json(asking: Run, handle: ExecutionHandle, error: Exception) -> str:
    if not asking.as_json:
        return ""
    status = (await handle.status()).value
    return json.dumps({"execution_id": handle.execution_id, "status": status, "error": str(error)}, indent=2)
