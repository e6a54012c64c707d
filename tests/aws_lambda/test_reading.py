"""What clients read of AWS's histories: each event once, and nothing of an execution that is known to have ended."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from strands_durable import ExecutionStatus
from strands_durable.backends.aws_lambda import LambdaBackend
from strands_durable.backends.aws_lambda._history import EventLog
from tests.aws_lambda.functions import Function, ask
from tests.waiting import until


class Requests:
    """The requests that reach the local runner from here on."""

    def __init__(self, function: Function) -> None:
        self._calls, self._from = function.aws.calls, len(function.aws.calls)

    def histories(self) -> list[str]:
        return [path for path in self._calls[self._from :] if "/history" in path]

    def pages(self) -> list[int]:
        """How many events each request wants that wants their data."""
        with_data = [path for path in self.histories() if "IncludeExecutionData=true" in path]
        return [int(re.findall(r"MaxItems=(\d+)", path)[0]) for path in with_data]

    def others(self) -> list[str]:
        found = [path for path in self._calls[self._from :] if "/history" not in path]
        return [path for path in found if "checkpoint" not in path and "/state" not in path]


def fresh(function: Function) -> LambdaBackend:
    return LambdaBackend(function.url)


def test_watching_reads_each_event_once(make: Any) -> None:
    function = make()
    script = [{"tool": "work", "seconds": 0.15} for _ in range(8)]
    function.dispatch(*script, "Done.")
    backend, requests = fresh(function), Requests(function)

    async def watched() -> int:
        handle = await backend.get("run")
        return len([event async for event in handle.stream()])

    assert asyncio.run(watched()) == 17
    first, *later = requests.pages()
    events = len(function.events(asyncio.run(function.backend.get("run"))))
    assert first == 1000, "the first request reads what there is"
    assert len(later) > 5, "it was watched while it ran"
    assert sum(later) - len(later) <= events, "and each later one what was added, and one event more"


def test_an_idle_execution_is_looked_at_without_its_data(make: Any) -> None:
    function = make()
    handle = function.dispatch(ask("paint"), "Done.")
    assert function.result(handle).interrupts
    until(lambda: function.open_callbacks(handle))
    until(lambda: function.count(handle, "InvocationCompleted") == 1)
    asyncio.run(handle.status())
    requests = Requests(function)
    for _ in range(5):
        asyncio.run(handle.interrupts())
    assert len(requests.histories()) == 5
    assert requests.pages() == []
    assert requests.others() == [], "its name is looked up once"


def test_what_has_ended_is_read_once(make: Any) -> None:
    function = make()
    handle = function.ended({"tool": "book", "city": "Rome"}, "Done.")
    asyncio.run(handle.steps())
    requests = Requests(function)
    assert str(function.result(handle)).strip() == "Done."
    assert len(asyncio.run(handle.steps())) == 3
    assert requests.histories() == []


def test_a_list_reads_what_has_ended_once(make: Any) -> None:
    function = make()
    for number in range(3):
        function.ended("Done.", execution_id=f"run-{number}")
    backend, requests = fresh(function), Requests(function)
    listed = asyncio.run(backend.list())
    assert [record.execution_id for record in listed] == ["run-2", "run-1", "run-0"]
    assert len(requests.histories()) == 3
    assert asyncio.run(backend.list()) == listed
    assert len(requests.histories()) == 3


def test_a_list_reads_no_history_that_it_does_not_need(make: Any) -> None:
    function = make()
    for number in range(20):
        function.ended("Done.", execution_id=f"run-{number}")
    function.result(function.dispatch(ask("paint"), "Done.", execution_id="asks"))
    open_ones = [ExecutionStatus.PENDING, ExecutionStatus.SUSPENDED]
    requests = Requests(function)
    assert [each.execution_id for each in asyncio.run(fresh(function).list(status=open_ones))] == ["asks"]
    assert len(requests.histories()) == 1, "those that have ended are not read"
    requests = Requests(function)
    assert asyncio.run(fresh(function).list(status=ExecutionStatus.FAILED)) == []
    assert len(requests.histories()) == 1, "nor those that have not failed"
    requests = Requests(function)
    listed = asyncio.run(fresh(function).list(limit=3))
    assert [each.execution_id for each in listed] == ["asks", "run-19", "run-18"]
    assert len(requests.histories()) <= 16, "of 21"
    since = listed[-1].updated_at
    requests = Requests(function)
    assert len(asyncio.run(fresh(function).list(since=since))) == 3
    assert len(requests.histories()) <= 5


class Renumbered:
    """A history into which the runner puts an event at a place that was read, which local runners do."""

    def __init__(self) -> None:
        self.kinds = ["ExecutionStarted", "StepStarted", "CallbackStarted"]

    def get_durable_execution_history(self, *, MaxItems: int, ReverseOrder: bool = False, **_: Any) -> Any:
        events = [{"EventId": n, "EventType": kind, "Id": kind} for n, kind in enumerate(self.kinds, 1)]
        return {"Events": (events[::-1] if ReverseOrder else events)[:MaxItems]}


def test_a_history_that_does_not_say_yet_what_continues_it_is_read_again() -> None:
    class Vague(Renumbered):
        def get_durable_execution_history(self, **given: Any) -> Any:
            page = super().get_durable_execution_history(**given)
            return {"Events": [{**event, "Name": "segment 1"} for event in page["Events"]]}

    history, store = Vague(), LambdaBackend("lambda://f:1").payload_store
    history.kinds += ["ChainedInvokeStarted", "InvocationCompleted"]
    log = EventLog("arn", store)
    assert log.update(history), "it is as good as it gets"
    assert log.size == 5
    assert not log.update(history), "next time, the name may be there"


def test_a_step_whose_result_is_not_in_the_history_yet_is_read_again() -> None:
    class Early(Renumbered):
        def get_durable_execution_history(self, **given: Any) -> Any:
            page = super().get_durable_execution_history(**given)
            return {"Events": [{**event, "SubType": "strands-durable"} for event in page["Events"]]}

    history = Early()
    history.kinds += ["StepSucceeded", "ChainedInvokeStarted"]
    log = EventLog("arn", LambdaBackend("lambda://f:1").payload_store)
    assert log.update(history), "what was there before it"
    assert not log.update(history), "next time, the result may be there"


def test_a_history_that_is_numbered_anew_is_read_again() -> None:
    history = Renumbered()
    log = EventLog("arn", LambdaBackend("lambda://f:1").payload_store)
    assert log.update(history)
    history.kinds.append("WaitStarted")
    assert log.update(history)
    assert log.size == 4
    history.kinds.insert(1, "InvocationCompleted")
    assert not log.update(history)
