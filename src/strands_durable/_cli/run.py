"""The command run: load an agent from a file, run one execution and print its result."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from .._dispatch.connect import connect
from .._dispatch.handles import ExecutionHandle
from .._dispatch.ports import DurableBackend
from .._records.deadline import limited
from .._records.executions import ExecutionStatus
from .._records.keys import checked_id
from .._records.printable import masked_text, printable
from .._records.results import ExecutionResult
from ..errors import ExecutionCancelledError, ExecutionFailedError, InvalidIdError
from .control import asked, warn_unattended
from .exit_codes import INTERRUPTED, code_of, code_of_status, leave, leave_at_once, print_error
from .log_format import LogFormat, configure, log_format_option
from .numbers import Seconds
from .options import BackendTarget, backend_option, json_option, not_json, strict_json, tags_option
from .prompts import is_terminal, listed

if TYPE_CHECKING:
    from .._dispatch.registry import DurableAgent

S = ExecutionStatus
_CLOSE_SECONDS = 2.0
_LATE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """The arguments of ``run``."""

    target: str
    prompt: str | None
    execution_id: str
    arguments: dict[str, Any]
    state: dict[str, Any]
    tags: dict[str, str]
    timeout: float | None
    as_json: bool
    place: BackendTarget

    @property
    def again(self) -> str:
        """The command that resumes it."""
        return self.place.command(f"run {self.target} --id {self.execution_id}")


def _arguments(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    arguments = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} has no value. Use NAME=JSON.", ctx, param)
        try:
            arguments[name] = strict_json(value)
        except ValueError:
            raise click.BadParameter(f"{name}: {not_json(value)}", ctx, param) from None
    return arguments


def _execution_id(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else checked_id(text)
    except InvalidIdError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _state(ctx: click.Context, param: click.Parameter, text: str) -> dict[str, Any]:
    try:
        state = strict_json(text)
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise click.BadParameter(f"{text!r} is not a JSON object.", ctx, param)
    return state


@click.command()
@click.argument("target", metavar="FILE:AGENT")
@click.argument("prompt", required=False)
@click.option(
    "--id",
    "execution_id",
    metavar="ID",
    callback=_execution_id,
    help="Id of the execution. If it exists, that execution is resumed.",
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=JSON",
    callback=_arguments,
    help="Argument of the function that builds the agent. Can be repeated.",
)
@click.option(
    "--state",
    metavar="JSON",
    default="{}",
    callback=_state,
    help="Invocation state for the agent's tools and hooks, a JSON object.",
)
@tags_option("Tag by which ls finds the execution. Can be repeated. An execution that exists keeps its own.")
@click.option("--detach", is_flag=True, help="Let a worker run it: print the id and return at once.")
@click.option(
    "--timeout",
    type=Seconds(),
    metavar="SECONDS",
    help="Exit after this time with code 7; the execution is not cancelled.",
)
@log_format_option
@backend_option
@json_option
def run(detach: bool, log_format: LogFormat, **options: Any) -> None:
    """Run an agent and print its answer.

    FILE is a Python file that defines the agent with @durable_agent, or the name of a module. AGENT can be omitted if FILE
    defines only one. PROMPT can be omitted with the --id of an existing execution, and is read from stdin if it is "-".

    If the agent asks a person, the question is asked on the terminal; without a terminal, it is printed with the command that
    answers it. On a terminal, each committed step is printed on stderr. What the agent itself prints goes to stderr too.

    To resume a run that was stopped or killed, run the same command with its --id.

    \b
    With --json: an object with
      execution_id, status, stop_reason
      message             the last message; null for a Graph or Swarm
      state, request_state, usage, structured_output
      interrupts          open questions: a list of {interrupt_id, name, reason}
      nodes               by node id: {status, result, text, usage}
    or, if it is FAILED, CANCELLED or still running: {execution_id, status, error}.
    With --detach: an object {execution_id, status}.
    """
    from .._dispatch.agent_files import agent_of
    from .._strands.patches import silence_printing

    if options["prompt"] is None and options["execution_id"] is None:
        raise click.UsageError("Pass a PROMPT to start an execution, or --id to resume one.")
    request = Run(**{**options, "execution_id": options["execution_id"] or uuid.uuid4().hex})
    if request.prompt == "-":
        request = replace(request, prompt=sys.stdin.read())
    with contextlib.redirect_stdout(sys.stderr), silence_printing():  # stdout has only the result
        agent = agent_of(request.target)
        if log_format == "json":
            configure(log_format, logging.INFO)
        backend = connect(request.place.url) if request.place.is_said else agent.backend
        backend = backend.working("off" if detach else "own")
        work = _detached(request, agent, backend) if detach else _attached(request, agent, backend)
        code, output, is_over = _awaited(work, request)
    output = printable(output)
    click.echo(output, nl=bool(output) and not output.endswith("\n"))
    if not is_over:
        leave_at_once(code)
    leave(code)


Outcome = tuple[int, str, bool]
"""The exit code, what to print, and whether nothing runs in this process any more."""


def _awaited(work: Coroutine[Any, Any, Outcome], request: Run) -> Outcome:
    """Run to the end, or until Ctrl-C; unlike `asyncio.run`, without waiting for tools in threads, which cannot be stopped."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def stop() -> None:
        click.echo(f"\nStopped. To resume: {request.again}", err=True)
        task.cancel()

    # An exception raised at any point could be lost where Python ignores one, or leave a lock that another thread waits for.
    def interrupted(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the next Ctrl-C ends the process at once
        loop.call_soon_threadsafe(stop)

    is_ours = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # else it is ignored, or another library handles it
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


async def _dispatched(request: Run, agent: DurableAgent, backend: DurableBackend) -> ExecutionHandle:
    if request.prompt is None:
        return await backend.get(request.execution_id)
    return await agent.on(backend).dispatch_async(
        request.prompt,
        execution_id=request.execution_id,
        invocation_state=request.state,
        tags=request.tags,
        **request.arguments,
    )


async def _detached(request: Run, agent: DurableAgent, backend: DurableBackend) -> Outcome:
    handle = await _dispatched(request, agent, backend)
    status = await handle.status()
    if status in (S.PENDING, S.RUNNING):
        await warn_unattended(backend)
    started = {"execution_id": handle.execution_id, "status": status.value}
    return 0, json.dumps(started, indent=2) if request.as_json else handle.execution_id, True


async def _attached(request: Run, agent: DurableAgent, backend: DurableBackend) -> Outcome:
    handle = await _dispatched(request, agent, backend)
    if sys.stderr.isatty():
        click.echo(f"Execution {request.execution_id}", err=True)
    is_over = True
    try:
        result = await _ended(request, handle)
        return code_of_status(result.status), await _output(request, handle, result), True
    except (ExecutionFailedError, ExecutionCancelledError, TimeoutError) as error:
        is_over = not isinstance(error, TimeoutError)
        return _report_error(request, error), await _error_json(request, handle, error), is_over
    finally:
        with contextlib.suppress(TimeoutError):
            await limited(backend.close(), _CLOSE_SECONDS)


async def _ended(request: Run, handle: ExecutionHandle) -> ExecutionResult:
    """Wait for the end; ask open questions if there is a terminal."""
    shown = [0]
    while True:
        async with _reported(handle, shown):
            result = await handle.result(request.timeout)
        questions = await handle.interrupts()
        if result.status is not S.SUSPENDED or not questions or request.as_json or not is_terminal():
            return result
        try:
            await asked(handle, questions)
        except click.Abort:
            click.echo(err=True)
            return result


@contextlib.asynccontextmanager
async def _reported(handle: ExecutionHandle, shown: list[int]) -> AsyncIterator[None]:
    """Meanwhile, print each committed step on the terminal."""
    if not sys.stderr.isatty():
        yield
        return
    printing = asyncio.ensure_future(_print_steps(handle, shown))
    try:
        yield
        await asyncio.wait({printing}, timeout=_LATE_SECONDS)  # the stream ends by itself once there is a result
    finally:
        printing.cancel()


async def _print_steps(handle: ExecutionHandle, shown: list[int]) -> None:
    from .stream_view import Lines

    lines = Lines(sys.stderr, is_live=False)
    async for event in handle.stream(shown[0]):
        lines.print(event)
        if event["recorded"]:
            shown[0] = event["number"]


async def _output(request: Run, handle: ExecutionHandle, result: ExecutionResult) -> str:
    if request.as_json:
        return json.dumps(result.to_json(), indent=2)
    if result.status is not S.SUSPENDED:
        return str(result)
    questions = await handle.interrupts()
    click.echo(f"{handle.execution_id} waits for an answer:\n{listed(questions)}", err=True)
    click.echo(f"Answer: {request.place.command(f'respond {handle.execution_id}')}", err=True)
    click.echo(f"Resume: {request.again}", err=True)
    return ""


def _report_error(request: Run, error: Exception) -> int:
    if not isinstance(error, TimeoutError):
        print_error(error)
    else:
        text = f"Execution {request.execution_id!r} has not ended after {request.timeout:g} s"
        click.echo(f"Error: {text}. A worker can continue it, or resume it with: {request.again}", err=True)
    return code_of(error)


async def _error_json(request: Run, handle: ExecutionHandle, error: Exception) -> str:
    if not request.as_json:
        return ""
    status = (await handle.status()).value
    return json.dumps(
        {"execution_id": handle.execution_id, "status": status, "error": masked_text(str(error))}, indent=2
    )
