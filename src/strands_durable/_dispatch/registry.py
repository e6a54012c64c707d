"""Agents that a backend can run: the decorated factory is the agent, and every process that imports its file can build it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .._calls.context import current_context, current_step
from .._records.codec import digest, encode
from .._records.keys import checked_id
from .._records.options import OnDrift, Options, check
from .._records.policy import ModelInDoubt, ToolPolicy, checked_policies
from .._records.questions import answers_in
from .._records.results import ExecutionResult
from .._records.retention import Retention
from .._records.spec import AgentSpec
from ..errors import AgentNotRegisteredError, UnsupportedFeatureError
from .factories import checked_retention, checked_version, in_time
from .ports import DurableBackend, ExecutionHandle

if TYPE_CHECKING:
    from strands import Agent
    from strands.multiagent.graph import Graph
    from strands.multiagent.swarm import Swarm
    from strands.tools import ToolProvider

    from .sync import SyncHandle

T = TypeVar("T")
Factory = Callable[..., "Agent | Graph | Swarm"]
_KEPT_SPECS = 256
BUILD_SECONDS = 30.0
"""How long a factory may take, unless its `durable_agent` sets ``build_timeout``."""
_OURS = ("prompt", "execution_id", "invocation_state", "limits", "tags")

agents: dict[str, DurableAgent] = {}
"""By name, the agents that this process can build."""


@dataclass(frozen=True, kw_only=True)
class PolicyOverrides:
    """What a worker does with steps in doubt and with a changed agent; None: as the factory's own Durability is set."""

    on_drift: OnDrift | None = None
    model_in_doubt: ModelInDoubt | None = None
    tool_policies: dict[str, ToolPolicy] = field(default_factory=dict)
    build_timeout: float = BUILD_SECONDS
    """How long the factory may take, in seconds."""

    def __post_init__(self) -> None:
        if self.build_timeout <= 0:
            raise ValueError(f"build_timeout={self.build_timeout}: it must be greater than 0 seconds")
        checked_policies(self.tool_policies)
        check("on_drift", self.on_drift or "raise", "raise", "warn", "rerun")
        check("model_in_doubt", self.model_in_doubt or "retry", "retry", "ask", "fail")

    def over(self, options: Options) -> Options:
        """Return ``options`` with these overrides applied."""
        return replace(
            options,
            on_drift=self.on_drift or options.on_drift,
            model_in_doubt=self.model_in_doubt or options.model_in_doubt,
            tool_policies={**options.tool_policies, **self.tool_policies},
        )


class DurableAgent:
    """An agent that a backend runs: call it as you call a Strands agent, or dispatch it and return at once.

    Args:
        factory: Returns a new Agent, Graph or Swarm. May take JSON-safe keyword arguments, passed with a call and recorded.
        name: The name by which workers find it; the factory's name if None.
        durable_backend: Where it runs: a backend, its URL, or None for `connect`'s default.
        policies: What a worker does with steps in doubt and with a changed agent.
        version: It may resume runs of the same version. None: runs of an agent with the same parts.
        retention: How long its executions are kept after they have ended, where its workers apply retention.
    """

    def __init__(
        self,
        factory: Factory,
        name: str | None = None,
        durable_backend: DurableBackend | str | None = None,
        policies: PolicyOverrides | None = None,
        version: str | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.name = checked_id(name or factory.__name__)
        self.policies = PolicyOverrides() if policies is None else policies
        if not isinstance(self.policies, PolicyOverrides):
            raise TypeError(f"policies={policies!r}: pass @durable_agent(tool_policies=...) a dict of ToolPolicy")
        self.version = checked_version(self.name, version)
        self.retention = checked_retention(self.name, retention)
        self._factory = factory
        self._parameters = _parameters(self.name, factory)
        self._backend = durable_backend
        self._specs: dict[str, AgentSpec] = {}
        self._on_drift: OnDrift = "raise"
        self.shared: list[ToolProvider] = []
        """Providers of its tools that are shared by all agents built, instead of created with each one."""
        self.__doc__ = factory.__doc__ or self.__doc__
        known = agents.setdefault(self.name, self)
        if known is not self and _origin(known._factory) != _origin(factory):
            raise ValueError(
                f"Two agents are named {self.name!r}: {_place(known._factory)} and {_place(factory)}. "
                f"Give one of them another name: @durable_agent(name=...)."
            )
        agents[self.name] = self

    def __repr__(self) -> str:
        return f"DurableAgent({self.name!r})"

    # What it is

    @property
    def spec(self) -> AgentSpec:
        """What a backend needs to know about it, as data. Calls no model and starts no server."""
        return self.spec_with()

    def spec_with(self, **arguments: Any) -> AgentSpec:
        """Return the spec for these keyword arguments of the factory."""
        self._check(arguments)
        key = encode(arguments, f"An argument of agent {self.name!r}")
        if key not in self._specs:
            from .._plugin.describe import describe
            from .._plugin.policy_names import refuse_unknown
            from .._strands.tool_servers import without_servers

            with without_servers() as left_out:
                subject = self.build(arguments)
            self.shared = left_out
            options = self.options(subject, Path())
            self._on_drift = options.on_drift
            if not left_out:  # else the worker checks: it connects to the servers
                refuse_unknown(subject, options.tool_policies)
            while len(self._specs) >= _KEPT_SPECS:
                del self._specs[next(iter(self._specs))]
            self._specs[key] = describe(self.name, subject, arguments, self.version)
        return self._specs[key]

    def has_spec_with(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if the spec for these arguments is known, so that the factory need not run."""
        return encode(dict(arguments), f"An argument of agent {self.name!r}") in self._specs

    async def spec_in_time(self, arguments: Mapping[str, Any]) -> AgentSpec:
        """Return the spec for these keyword arguments of the factory, without blocking the event loop."""
        if self.has_spec_with(arguments):
            return self.spec_with(**arguments)
        return await in_time(partial(self.spec_with, **arguments), self.policies.build_timeout, self.name)

    def takes(self, spec: AgentSpec) -> bool:
        """Return True if a run that was dispatched with ``spec`` may resume with the agent as it is here."""
        here = self.spec_with(**spec.arguments)
        return spec.fingerprint in ("", here.fingerprint) or self._on_drift != "raise"  # "": any version

    @property
    def vouches_for_edits(self) -> bool:
        """Whether its version alone decides what may resume a run: edits under the same version are logged, but not refused."""
        return self.version is not None and self.policies.on_drift is None

    def options(self, subject: Any, path: Path) -> Options:
        """Return the options of a run on the store at ``path``: those of a Durability in the factory, except its store."""
        from .._execution.attached import options_of

        own = options_of(subject) or Options(path=path, execution_id=None)
        return replace(self.policies.over(own), path=path, replay_events=False)  # the stream of a worker has no reader

    def build(self, arguments: Mapping[str, Any]) -> Any:
        """Return a new agent, Graph or Swarm."""
        from .._strands.agents import is_agent
        from .._strands.orchestrators import adapter_of

        subject: Any = self._factory(**arguments)
        if not is_agent(subject) and adapter_of(subject) is None:
            if inspect.iscoroutine(subject):
                subject.close()
            raise UnsupportedFeatureError(
                f"A factory that returns a {type(subject).__name__} ({self.name!r})",
                "a worker runs an Agent, a Graph or a Swarm",
                "Return a new one at each call.",
            )
        return subject

    def on(self, backend: DurableBackend | str) -> DurableAgent:
        """Return the same agent, to run on another backend."""
        moved: DurableAgent = object.__new__(DurableAgent)
        vars(moved).update(vars(self), _backend=backend)
        return moved

    @property
    def backend(self) -> DurableBackend:
        """Where it runs."""
        if not isinstance(self._backend, DurableBackend):
            from .connect import connect

            self._backend = connect(self._backend)
        return self._backend

    # Calling it

    def __call__(self, prompt: Any = None, **given: Any) -> ExecutionResult:
        """Run it and wait until it ends or waits for a person.

        Args:
            prompt: As for a Strands agent; a list of interrupt responses, with the ``execution_id``, answers questions.
            given: ``execution_id``, ``invocation_state``, ``limits``, ``tags``, and the factory's own keyword arguments.
        """
        return _run(lambda: self.invoke_async(prompt, **given))

    async def invoke_async(self, prompt: Any = None, **given: Any) -> ExecutionResult:
        """Run it and wait until it ends or waits for a person."""
        handle = await self.dispatch_async(prompt, **given)
        return await handle.result()

    async def stream_async(self, prompt: Any = None, **given: Any) -> AsyncIterator[Mapping[str, Any]]:
        """Run it and yield the events of `ExecutionHandle.stream`, and finally ``{"result": ExecutionResult}``."""
        handle = await self.dispatch_async(prompt, **given)
        async for event in handle.stream():
            yield event
        yield {"result": await handle.result()}

    async def dispatch_async(
        self,
        prompt: Any = None,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
        tags: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> ExecutionHandle:
        """Start a run, or attach to the one that has this id, and return its handle at once."""
        self._check(arguments)
        named = (invocation_state or {}).get("execution_id")  # as in a call of an inline agent
        if named is not None and execution_id not in (None, named):
            raise ValueError(f"A call of {self.name!r} names two execution_ids: {execution_id!r} and {named!r}")
        execution_id = execution_id if named is None else named
        answers = answers_in(prompt)
        if answers is not None:
            if execution_id is None:
                raise ValueError(f"Answers for {self.name!r} need the execution_id of the run that asked")
            handle = await self.backend.get(execution_id)
            await handle.respond(answers)
            return handle
        if execution_id is None:
            execution_id = self._id_inside(prompt, arguments)
        spec = await self.spec_in_time(arguments)
        return await self.backend.dispatch(
            spec, prompt, execution_id=execution_id, invocation_state=invocation_state, limits=limits, tags=tags
        )

    def dispatch(
        self,
        prompt: Any = None,
        *,
        execution_id: str | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
        tags: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> SyncHandle:
        """Start a run from sync code, or attach to the one that has this id, and return its handle at once."""
        from .sync import in_loop

        given = {"invocation_state": invocation_state, "limits": limits, "tags": tags, **arguments}
        return in_loop(self.dispatch_async(prompt, execution_id=execution_id, **given)).sync

    def _id_inside(self, prompt: Any, arguments: Mapping[str, Any]) -> str | None:
        """Return the id of a run that a step starts: a tool that is retried must find the runs that it has started."""
        step, step_context = current_step(), current_context.get()
        if step is None or step_context is None:
            return None
        what = f"{self.name}-{digest([prompt, dict(arguments)])[:8]}"
        return f"{what}-{step.idempotency_key}-{step_context.occurrence(what) + 1}"

    def _check(self, arguments: Mapping[str, Any]) -> None:
        unknown = sorted(set(arguments) - set(self._parameters))
        if unknown:
            takes = ", ".join([*_OURS[1:], *self._parameters])
            raise TypeError(f"{self.name}() got an unexpected keyword argument {unknown[0]!r}; it takes {takes}")
        required = [name for name, is_required in self._parameters.items() if is_required]
        missing = [name for name in required if name not in arguments]
        if missing:
            raise TypeError(f"{self.name}() is missing the keyword argument {missing[0]!r} of its factory")


@overload
def durable_agent(factory: Factory, /) -> DurableAgent: ...


@overload
def durable_agent(
    *,
    name: str | None = None,
    durable_backend: DurableBackend | str | None = None,
    on_drift: OnDrift | None = None,
    model_in_doubt: ModelInDoubt | None = None,
    tool_policies: Mapping[str, ToolPolicy] | None = None,
    version: str | None = None,
    build_timeout: float = BUILD_SECONDS,
    retention: Retention | None = None,
) -> Callable[[Factory], DurableAgent]: ...


def durable_agent(
    factory: Factory | None = None,
    /,
    *,
    name: str | None = None,
    durable_backend: DurableBackend | str | None = None,
    on_drift: OnDrift | None = None,
    model_in_doubt: ModelInDoubt | None = None,
    tool_policies: Mapping[str, ToolPolicy] | None = None,
    version: str | None = None,
    build_timeout: float = BUILD_SECONDS,
    retention: Retention | None = None,
) -> DurableAgent | Callable[[Factory], DurableAgent]:
    """Make a durable agent from a factory: put ``@durable_agent`` on a function that returns an Agent, a Graph or a Swarm.

    Args:
        factory: The function.
        name: The name by which workers find it; the function's name if None.
        durable_backend: Where it runs: a backend, its URL, or None for `connect`'s default.
        on_drift: What a worker does with a run of another version of the agent; ``raise``, the default, leaves it to a worker
            that has that version.
        model_in_doubt: What to do with a model call that was running when its process died.
        tool_policies: By tool name: what to do with a tool call that was running when its process died, retries, timeouts.
        version: A worker may resume runs that were dispatched under the same version, whatever was edited in the agent since.
            Change it when the edited agent must not resume runs that have begun.
        build_timeout: How long the function may take, in seconds; it does not block other runs. After that, a dispatch raises
            TimeoutError; a worker logs it, leaves the run to others, and checks again when the function has returned.
        retention: How long its executions are kept after they have ended, on SQLite; see `DurableBackend.retain`.
    """
    policies = PolicyOverrides(
        on_drift=on_drift,
        model_in_doubt=model_in_doubt,
        tool_policies=checked_policies(tool_policies),
        build_timeout=build_timeout,
    )
    if factory is not None:
        return DurableAgent(factory, name, durable_backend, policies, version, retention)
    return lambda decorated: DurableAgent(decorated, name, durable_backend, policies, version, retention)


def registered(name: str) -> DurableAgent:
    """Return the agent of this name, or raise `AgentNotRegisteredError`."""
    if name not in agents:
        raise AgentNotRegisteredError(name, list(agents))
    return agents[name]


def _parameters(name: str, factory: Factory) -> dict[str, bool]:
    """Return the keyword arguments that a factory takes, and whether they are required."""
    required: dict[str, bool] = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"The factory of agent {name!r} can only take named arguments, not {parameter}")
        if parameter.name in _OURS:
            raise TypeError(
                f"The factory of agent {name!r} cannot take {parameter.name!r}: it is an argument of every call"
            )
        required[parameter.name] = parameter.default is parameter.empty
    return required


def _origin(factory: Factory) -> tuple[str, str]:
    code = getattr(factory, "__code__", None)
    return (getattr(code, "co_filename", ""), getattr(factory, "__qualname__", repr(factory)))


def _place(factory: Factory) -> str:
    code = getattr(factory, "__code__", None)
    return repr(factory) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _run(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run async code to its end from sync code, even inside a running loop: in a thread with its own loop."""
    results: list[T] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(asyncio.run(call()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(target,), daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
