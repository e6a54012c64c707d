"""One finished tool call, repeated for its effect on this process; `reruns` decides which, and when."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

from strands import Agent
from strands.middleware import ToolResultEvent

from .._calls.context import StepContext, StepPhase, current_context, enclosing
from .._calls.durable_call import CallContext, DurableCall, UnwindLoop
from .._records import keys
from .._records.calls import CallProgress, CallRecord
from .._records.deadline import limited
from .._records.logs import safe_logger
from .._records.outcomes import ToolOutcome
from .._records.policy import ToolPolicy
from .._records.printable import masked_beginning
from .._records.steps import StepRecord
from .._strands.agents import InterruptException, ToolInterruptEvent
from ..errors import DurableError, RerunError

logger = safe_logger(__name__)

StepName = tuple[str, int, str]
"""Execution, run, and the path of a step."""

_MAX_REMEMBERED = 10_000
_ERROR_LENGTH = 500
_made: set[StepName] = set()
"""Calls made in this process: if repeating one fails, its effect is here already."""
_made_on: weakref.WeakKeyDictionary[Agent, set[StepName]] = weakref.WeakKeyDictionary()
"""Calls made on each agent, by the loop or as a repetition."""


def step_name(execution_id: str, record: CallRecord, key: str) -> StepName:
    """Return the name of a step of a call."""
    return execution_id, record.run, keys.path(record.scope, record.position, key)


def note_made(agent: Agent, name: StepName) -> None:
    """Remember that a call was made here."""
    if len(_made) >= _MAX_REMEMBERED:
        _made.clear()
    _made.add(name)
    _made_on.setdefault(agent, set()).add(name)


def is_made_on(agent: Agent, name: StepName) -> bool:
    """Return True if a call was made on this object."""
    return name in _made_on.get(agent, ())


def forget_made() -> None:
    """Forget everything, as a new process would."""
    _made.clear()
    _made_on.clear()


class FinishedCall(DurableCall):
    """The recorded call whose tool calls are repeated: it returns what is on record, and records nothing."""

    def __init__(self, context: CallContext, record: CallRecord) -> None:
        super().__init__(context, record, CallProgress(), record.member)
        self.is_open = True

    def context_of_call(self, phase: StepPhase) -> StepContext:
        """Return the context of the call as a whole."""
        return replace(super().context_of_call(phase), look=lambda: (1, True))


class Repetition:
    """One finished call that is repeated."""

    def __init__(
        self, agent: Agent, tool: Any, policy: ToolPolicy, call: FinishedCall, step: StepRecord, given: Any
    ) -> None:
        self._agent, self._tool, self._policy = agent, tool, policy
        self._call, self._step, self._given = call, step, given
        self._name = step_name(call.execution_id, call.record, step.key)

    async def run(self, invocation_state: dict[str, Any]) -> None:
        """Make the call, undo what it changed in the agent, and compare its result with the recorded one."""
        recorded = ToolOutcome.from_json(self._step.result).result
        tool_use = {"toolUseId": recorded["toolUseId"], "name": self._step.name, "input": self._given}
        agent, messages = self._agent, list(self._agent.messages)
        state = agent.state.get()
        try:
            result = await self._result(tool_use, invocation_state)
        finally:
            _put_back(agent, messages, state)
        if result.get("status") == "error" and self._name not in _made:
            texts = [block["text"] for block in result.get("content", ()) if "text" in block]
            raise self.error(f"it returned an error: {masked_beginning(' '.join(texts), _ERROR_LENGTH)[0]}")
        note_made(agent, self._name)
        self._log(result.get("status") == "error" or result.get("content") == recorded.get("content"))

    async def _result(self, tool_use: dict[str, Any], invocation_state: dict[str, Any]) -> Any:
        look = (self._step.attempt, True)
        step_context = StepContext(self._call, "tool", self._step.name, "running", self._step.key, lambda: look)
        given = {**invocation_state, **_for_a_tool(self._agent), "request_state": {}}
        outer, step = enclosing.set(self._call), current_context.set(step_context)
        try:
            return await limited(_run(self._tool, tool_use, given), self._policy.timeout)
        except TimeoutError:
            raise self.error(f"it did not answer within {self._policy.timeout} s") from None
        except InterruptException:
            raise self.error("it asked a person, who had answered in the process that exited") from None
        except UnwindLoop:
            assert self._call.error is not None
            raise self._call.error from None
        finally:
            current_context.reset(step)
            enclosing.reset(outer)

    def error(self, reason: str) -> RerunError:
        """Return the error for a call that cannot be repeated."""
        execution_id, _, path = self._name
        return RerunError(execution_id, self._step.name, path, reason)

    def _log(self, is_same: bool) -> None:
        execution_id, _, path = self._name
        fields = (execution_id, self._step.name, path)
        if is_same:
            logger.info("execution_id=<%s>, tool=<%s>, step=<%s> | finished call repeated for its effect", *fields)
        else:
            logger.warning(
                "execution_id=<%s>, tool=<%s>, step=<%s> | repeated call gave another result, the recorded one stays",
                *fields,
            )


def _for_a_tool(agent: Agent) -> dict[str, Any]:
    """Return what Strands puts into the invocation state for a tool."""
    specs = [{"toolSpec": spec} for spec in agent.tool_registry.get_all_tool_specs()]
    return {
        "agent": agent,
        "model": agent.model,
        "messages": agent.messages,
        "system_prompt": agent.system_prompt,
        "tool_config": {"tools": specs, "toolChoice": {"auto": {}}},
    }


async def _run(tool: Any, tool_use: dict[str, Any], invocation_state: dict[str, Any]) -> Any:
    """Return the result of a tool in Strands' form; raise its interrupt."""
    events, last = tool.stream(tool_use, invocation_state), None
    try:
        async for event in events:
            if isinstance(event, ToolInterruptEvent):
                raise InterruptException(event.interrupts[0])
            if isinstance(event, ToolResultEvent):
                return event.tool_result
            last = event
    except (InterruptException, DurableError):
        raise
    except Exception as error:
        return {"status": "error", "content": [{"text": f"{type(error).__name__}: {error}"}]}
    finally:
        await events.aclose()
    return last or {}


def _put_back(agent: Agent, messages: list[Any], state: dict[str, Any]) -> None:
    if list(map(id, agent.messages)) != list(map(id, messages)):
        agent.messages[:] = messages
    now = agent.state.get()
    if now != state:
        for key in set(now) - set(state):
            agent.state.delete(key)
        for key, value in state.items():
            agent.state.set(key, value)
