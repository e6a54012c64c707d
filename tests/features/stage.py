"""One agent on every backend: dispatched to a worker in a process of its own, and called without us; then compared.

A `Stage` has a backend and a worker that has imported `tests.features.dispatched`. `Stage.same` plays an agent there, on SQLite
and as plain Strands, each in a folder of its own, and compares all that can be seen of it: what a caller is given at every stop
(results and questions), the recorded steps, and the ledger of what was really done.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import ndiff
from importlib import import_module
from pathlib import Path
from pprint import pformat
from typing import Any, ClassVar

from strands.multiagent.base import MultiAgentResult

from strands_durable import DurableAgent, DurableBackend, ExecutionHandle, ExecutionResult, connect, errors
from strands_durable._dispatch.registry import registered
from strands_durable._records.codec import encode
from strands_durable.backends.sqlite import SqliteBackend
from strands_durable.testing.dapr import DaprCluster
from tests.crash.scenarios import Ledger
from tests.processes import Child
from tests.waiting import until

AGENTS = "tests.features.dispatched"
PATIENCE_SECONDS = 60
Answers = Callable[[list[str]], dict[str, Any]]
"""Gives answers to the questions of these names, to all of them or to some."""


Prepare = Callable[[Path], Any]
"""Puts something into the folder of a run before it begins."""


def agreed(names: list[str]) -> dict[str, Any]:
    """Say yes to everything."""
    return {name: f"yes to {name}" for name in names}


def agreed_one_by_one(names: list[str]) -> dict[str, Any]:
    """Say yes to the last question, and leave the others for later."""
    return agreed([max(names)])


def saying(answer: Any) -> Answers:
    """Say the same to everything."""
    return lambda names: dict.fromkeys(names, answer)


@dataclass
class Seen:
    """What can be seen of a run from outside."""

    stops: list[Any] = field(default_factory=list)
    """What a caller was given each time: results, questions, errors."""
    steps: Any = None
    """By call, what was recorded: kind, number, name, status, attempt. None without a journal."""
    ledger: list[Any] = field(default_factory=list)
    """What was done."""
    handle: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and self.compared() == other.compared()

    @property
    def end(self) -> Any:
        """What a caller was given in the end."""
        return self.stops[-1]

    @property
    def root(self) -> Any:
        """The steps of the root call."""
        return next(iter(self.steps.values()))

    def done(self, name: str) -> list[Any]:
        """Return what was done under a name."""
        return [entry for entry in self.ledger if entry["name"] == name]

    def compared(self) -> Any:
        """Return all of it, in no order where tools and nodes run at the same time."""
        return self.stops, self.steps, in_no_order(self.ledger)

    def without_steps(self) -> Any:
        """Return only what plain Strands shows too, which has no nodes that wait for a person."""
        stops = [
            {**stop, "nodes": {name: node for name, node in stop["nodes"].items() if node[0] != "interrupted"}}
            for stop in self.stops
        ]
        return stops, in_no_order([[entry["name"], entry["facts"]] for entry in self.ledger])


class Stage:
    """A backend with a worker, and a folder for what is played on it."""

    dapr: ClassVar[DaprCluster]
    """Where stages on Dapr get sidecars of their own."""

    def __init__(self, url: str, folder: Path, reference: Stage | None = None) -> None:
        self.name = url.partition(":")[0]
        self.url, self.folder, self._reference = url, folder, reference
        """Where it runs, where what is played is kept, and another stage on which all must be the same."""
        self.backend: DurableBackend = connect(f"{url}?worker=off" if self.name == "sqlite" else url)

    def same(self, agent: DurableAgent, prompt: Any = "Go", *, plain: bool = True, **given: Any) -> Seen:
        """Play an agent here, on the other stage and, with ``plain``, without us; fail unless it is all the same."""
        found = self.play(agent, prompt, **given)
        if plain:
            compare(found.without_steps(), self.plainly(agent, prompt, **given).without_steps(), "plain Strands")
        if self._reference is not None:
            compare(found.compared(), self._reference.play(agent, prompt, **given).compared(), self._reference.name)
        return found

    # On the backend

    def play(
        self,
        agent: DurableAgent,
        prompt: Any = "Go",
        *,
        answers: Answers = agreed,
        resumes: int = 0,
        prepare: Prepare = Path.exists,
        limits: Mapping[str, int] | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Seen:
        """Dispatch an agent and see it to its end; questions are answered, failures resumed ``resumes`` times."""
        place = self.place()
        prepare(place)
        handle = self.dispatch(
            agent, prompt, place=place, limits=limits, invocation_state=invocation_state, **arguments
        )
        found = Seen(handle=handle)
        while True:
            found.stops.append(self.stop(handle))
            if found.end["questions"]:
                self.run(handle.respond(answered(found.end["questions"], answers)))
            elif "error" in found.end and resumes:
                resumes -= 1
                self.run(handle.resume())
            else:
                break
        found.steps, found.ledger = self.steps(handle), ledger_in(place)
        return found

    def place(self, name: str = "") -> Path:
        """Return a new folder for a run."""
        place = self.folder / f"{name or self.name}-{uuid.uuid4().hex[:8]}"
        place.mkdir()
        return place

    def apart(self, **options: Any) -> Stage:
        """Return a stage like this one that has no worker, and nothing on it yet."""
        if self.name == "sqlite":
            return Stage(f"sqlite:///{self.place()}/runs.db", self.folder)
        name = uuid.uuid4().hex[:8]
        if self.name == "dapr":
            return Stage(self.dapr.add_sidecar(app_id=name).url, self.folder)
        more = "".join(f"&{option}={value}" for option, value in options.items())
        return Stage(f"{self.url.partition('?')[0]}?task_queue={name}&prefix={name}-{more}", self.folder)

    def dispatch(self, agent: DurableAgent, prompt: Any = "Go", *, place: Path | None = None, **given: Any) -> Any:
        """Dispatch an agent and leave it to the worker; its id is the name of its folder."""
        place = place or self.place()
        return self.run(
            agent.on(self.backend).dispatch_async(prompt, execution_id=place.name, folder=str(place), **given)
        )

    def tight(self) -> Stage:
        """Return this stage with an engine that wants to start over with an empty history all the time."""
        if self.name == "lambda":
            return Stage(self.url.replace("lambda://features:", "lambda://tight:"), self.folder, self._reference)
        return Stage(f"{self.url}&max_events=20", self.folder, self._reference) if self.name == "temporal" else self

    def result(self, handle: ExecutionHandle) -> ExecutionResult:
        """Wait for the end of a run, or for its questions."""
        found: ExecutionResult = self.run(handle.result(PATIENCE_SECONDS))
        return found

    def stop(self, handle: ExecutionHandle) -> Any:
        """Wait for the next stop of a run, and return what is seen of it."""
        try:
            return outcome_of(self.result(handle))
        except errors.ExecutionFailedError as error:
            return failed(error.__cause__ or error, handle.execution_id)

    def steps(self, handle: ExecutionHandle) -> Any:
        """Return what was recorded: by call, and within a call by its place."""
        found: dict[str, list[Any]] = {}
        for call in self.run(handle.detail()).calls:
            steps = sorted(call.steps, key=lambda step: step.number)
            found[f"{call.scope}#{call.position}"] = [
                [step.kind, step.number, step.name, step.status, step.attempt] for step in steps
            ]
        return found

    def stream(self, handle: ExecutionHandle, after: int = 0) -> list[Any]:
        """Follow a run to its next stop."""

        async def events() -> list[Any]:
            return [event async for event in handle.stream(after)]

        found: list[Any] = self.run(events())
        return found

    def rows(self, handle: ExecutionHandle, sql: str) -> list[Any]:
        """Look at what is recorded of the only run on this stage that is looked at so."""
        if isinstance(self.backend, SqliteBackend):
            row_id = self.backend.store.read("SELECT id FROM executions WHERE execution_id = ?", handle.execution_id)
            return self.backend.store.read(sql.replace("here", str(row_id[0][0])))
        story = self._story(handle)
        found: list[Any] = story.replica.read(sql.replace("here", "(SELECT id FROM executions)"))
        return found

    def runs(self, handle: ExecutionHandle) -> int:
        """Return how often the engine has started over with an empty history."""
        if self.name in ("sqlite", "dapr"):
            return 1
        story = self._story(handle)
        return len({story.root, story.log} if self.name == "lambda" else story._logs)

    def _story(self, handle: ExecutionHandle) -> Any:
        """Return a run as its engine records it."""
        backend: Any = self.backend
        if self.name in ("lambda", "dapr"):
            return self.run(backend.read(handle.execution_id))
        return self.run(backend.history(handle.execution_id, whole=True))

    def run(self, coroutine: Any) -> Any:
        """Run async code."""
        return asyncio.run(asyncio.wait_for(coroutine, 2 * PATIENCE_SECONDS))

    # Without us

    def plainly(
        self,
        agent: DurableAgent,
        prompt: Any = "Go",
        *,
        answers: Answers = agreed,
        limits: Mapping[str, int] | None = None,
        invocation_state: Mapping[str, Any] | None = None,
        prepare: Prepare = Path.exists,
        **arguments: Any,
    ) -> Seen:
        """Call an agent as Strands does."""
        place = self.place("plain")
        prepare(place)
        subject = agent.build({"folder": str(place), **arguments})
        given: dict[str, Any] = {} if limits is None else {"limits": limits}
        if invocation_state is not None:
            given["invocation_state"] = dict(invocation_state)
        found = Seen()
        while not found.stops or found.end["questions"]:
            if found.stops:
                prompt = [
                    {"interruptResponse": {"interruptId": asked, "response": reply}}
                    for asked, reply in answered(found.end["questions"], answers).items()
                ]
            try:
                found.stops.append(outcome_of(subject(prompt, **given), subject))
            except Exception as error:
                found.stops.append(failed(error))
        getattr(subject, "cleanup", bool)()
        found.ledger = ledger_in(place)
        return found


def outcome_of(result: Any, subject: Any = None) -> Any:
    """Return what is to be the same of a result, of ours or, with the agent it is of, of Strands' own."""
    nodes: Any
    if isinstance(result, ExecutionResult):
        stop_reason, message, state, request_state = (
            result.stop_reason,
            result.message,
            result.state,
            result.request_state,
        )
        usage, output = result.usage, result.structured_output
        nodes = {name: [node.status, node.text.removesuffix("\n"), node.usage] for name, node in result.nodes.items()}
    elif isinstance(result, MultiAgentResult):
        stop_reason, message, state, request_state = result.status.value, None, {}, {}
        usage, output = dict(result.accumulated_usage), None
        nodes = {
            name: [node.status.value, str(node.result).removesuffix("\n"), dict(node.accumulated_usage)]
            for name, node in result.results.items()
        }
    else:
        stop_reason, message = result.stop_reason, result.message
        state, request_state = subject.state.get(), result.state
        usage, nodes = dict(result.metrics.accumulated_usage), {}
        output = None if result.structured_output is None else result.structured_output.model_dump(mode="json")
    return {
        "stop_reason": stop_reason,
        "text": "" if result.interrupts else "\n".join(sorted(str(result).splitlines())),
        "message": None if message is None else as_json([message["role"], message["content"]]),
        "state": as_json(state),
        "request_state": as_json(request_state),
        "usage": as_json(usage),
        "structured_output": output,
        "questions": in_no_order([[found.id, found.name, as_json(found.reason)] for found in result.interrupts or ()]),
        "nodes": as_json(nodes),
    }


def compare(found: Any, expected: Any, by: str) -> None:
    """Fail with what is different, if anything is."""
    lines = [pformat(each, width=160).splitlines() for each in (found, expected)]
    difference = [line for line in ndiff(*reversed(lines)) if line[0] != " "]
    assert found == expected, "\n".join([f"not as with {by}, which has the lines with a minus:", *difference])


def failed(error: BaseException, execution_id: str = "") -> Any:
    """Return what is to be the same of a failure."""
    text = str(error).replace(repr(execution_id), "here")
    return {"error": type(error).__name__, "text": text, "questions": [], "nodes": {}}


def answered(questions: list[Any], answers: Answers) -> dict[str, Any]:
    """Return answers by the ids of the questions."""
    ids = {name: asked for asked, name, _ in questions}
    return {ids[name]: answer for name, answer in answers(list(ids)).items()}


def as_json(value: Any) -> Any:
    return json.loads(encode(value, "what was seen"))


def in_no_order(found: list[Any]) -> list[Any]:
    return sorted(found, key=json.dumps)


def ledger_in(place: Path) -> list[Any]:
    return Ledger(place / "ledger.jsonl").read()


# Other processes


def respond(url: str, execution_id: str, answers: dict[str, Any]) -> None:
    """Answer from this process."""

    async def main() -> None:
        await (await connect(url).get(execution_id)).respond(answers)

    asyncio.run(main())


def attach(url: str, agent: str, prompt: Any, execution_id: str, arguments: dict[str, Any]) -> Any:
    """Dispatch from this process; return what is seen of the next stop."""
    import_module(AGENTS)
    return outcome_of(registered(agent).on(url)(prompt, execution_id=execution_id, **arguments))


@contextmanager
def a_worker(url: str, folder: Path, **options: Any) -> Iterator[Child | None]:
    """Have a worker in a process of its own; stop it as a deploy does. AWS Lambda has none: it invokes the function."""
    if url.startswith("lambda:"):
        yield None
        return
    child = start_worker(url, folder, **options)
    try:
        yield child
    finally:
        stop_worker(child)


def start_worker(url: str, folder: Path, **options: Any) -> Child:
    """Start a worker; what it prints is in the file ``printed`` of its folder."""
    child = Child(_work, url, str(folder), options)
    until((folder / f"ready-{child.pid}").exists)
    return child


def stop_worker(child: Child) -> None:
    """Stop a worker, if it still runs."""
    if child.process.is_alive():
        os.kill(child.pid, signal.SIGTERM)
    child.join()


def _work(url: str, folder: str, options: dict[str, Any]) -> None:
    import_module(AGENTS)
    sys.stdout = io.TextIOWrapper(open(f"{folder}/printed", "ab", 0), write_through=True)  # noqa: SIM115
    if "spans" in options:
        import_module("tests.features.spans").record(Path(folder) / options["spans"])
    if "back_off" in options:
        from strands_durable._dispatch import runner

        runner._BACK_OFF_SECONDS = options["back_off"]

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def stopping() -> None:
            stop.set()
            loop.call_later(0.1, Path(folder, f"stopping-{os.getpid()}").touch)

        loop.add_signal_handler(signal.SIGTERM, stopping)
        backend = connect(url)
        Path(folder, f"ready-{os.getpid()}").touch()
        await backend.work(stop=stop, drain_seconds=5)

    asyncio.run(main())
