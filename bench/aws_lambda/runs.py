"""One run on AWS's local runner: a function with a process per invocation, what it records, and what its kills cost."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.aws_lambda.script import HEADS, KILL, LOG, Note, notes
from bench.aws_lambda.sides import NAME, ROOT, Side
from strands_durable.testing.aws_lambda import LocalLambda

Found = dict[str, Any]
FUNCTION = "reader"
TIMED_HEADS = 5
_SDK = ("/checkpoint", "/state")
"""The ends of the paths that the SDK asks for; the rest is this process, which looks whether a run has ended."""


@contextmanager
def function(aws: LocalLambda, side: Side, log: Path, killed_in: int | None) -> Iterator[float]:
    """Serve the function of a side; yield how many seconds its first process took to start."""
    kept = {name: value for name, value in os.environ.items() if name not in (KILL, HEADS)}
    env = {**kept, "AWS_ENDPOINT_URL_LAMBDA": aws.endpoint, "PYTHONPATH": str(ROOT), LOG: str(log)}
    if killed_in is not None:
        env |= {KILL: str(killed_in), HEADS: str(TIMED_HEADS)}
    begun = time.perf_counter()
    command = [side.python, "-m", "bench.aws_lambda.server", side.module]
    with open(log.with_suffix(".out"), "ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=output, start_new_session=True
        )
    try:
        assert process.stdout is not None
        port = process.stdout.readline()
        if not port:
            raise SystemExit(f"bench: {' '.join(command)} has ended:\n{log.with_suffix('.out').read_text()[-3000:]}")
        aws.functions[FUNCTION], aws.ports[FUNCTION] = side.module, int(port)
        yield time.perf_counter() - begun
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def measure(side: Side, cycles: int, folder: Path, name: str, *, is_killed: bool = True) -> Found:
    """Run ``cycles`` cycles; with ``is_killed``, kill the tool of one more, and time how the next invocations get there."""
    log = folder / f"{name}.log"
    # A function in this process only at first: the runner takes the limits of functions when it starts.
    with LocalLambda({FUNCTION: lambda event, context: None}) as aws:
        with function(aws, side, log, cycles if is_killed else None) as start_seconds:
            side.start(aws, FUNCTION, cycles + 1 if is_killed else cycles)
            executions = _ended(aws, cycles)
        kept = _kept(aws, [found["DurableExecutionArn"] for found in executions])
        calls = sum(path.partition("?")[0].endswith(_SDK) for path in aws.calls)
    found = notes(log)
    root = next(each for each in executions if each["DurableExecutionName"] == NAME)
    return {
        "status": root["Status"],
        "calls": calls,
        **kept,
        **_pace(found, cycles),
        **(_heads(found) if is_killed else {}),
        "function_start_s": start_seconds,
        "machine_load": os.getloadavg()[0],
    }


def _ended(aws: LocalLambda, cycles: int) -> list[Found]:
    """Wait for the end of the run; return its durable execution, and those that continued it."""
    client, deadline = aws.client(), time.monotonic() + 120 + cycles
    while time.monotonic() < deadline:
        page = client.list_durable_executions_by_function(FunctionName=FUNCTION, MaxItems=1000)
        found: list[Found] = page["DurableExecutions"]
        if any(each["DurableExecutionName"] == NAME and each["Status"] != "RUNNING" for each in found):
            return found
        time.sleep(0.25)
    raise SystemExit(f"bench: {cycles} cycles did not end within {120 + cycles} s")


def _kept(aws: LocalLambda, arns: list[str]) -> Found:
    """Return what is recorded: operations, bytes, and the most of both in one durable execution."""
    sizes = [_size(_events(aws, arn)) for arn in arns]
    return {
        "executions": len(sizes),
        "operations": sum(operations for operations, _, _ in sizes),
        "recorded_bytes": sum(size for _, size, _ in sizes),
        "most_operations": max(operations for operations, _, _ in sizes),
        "most_bytes": max(size for _, size, _ in sizes),
        "most_input_bytes": max(given for _, _, given in sizes),
    }


def _events(aws: LocalLambda, arn: str) -> list[Found]:
    client, events, marker = aws.client(), list[Found](), dict[str, str]()
    while True:
        page = client.get_durable_execution_history(
            DurableExecutionArn=arn, IncludeExecutionData=True, MaxItems=1000, **marker
        )
        events += page["Events"]
        if not page.get("NextMarker"):
            return events
        marker = {"Marker": page["NextMarker"]}


def _size(events: list[Found]) -> tuple[int, int, int]:
    """Return how many operations there are, the bytes of all inputs and results, and of the execution's own input."""
    operations = {event["Id"] for event in events if not event["EventType"].startswith(("Execution", "Invocation"))}
    payloads = [
        part["Payload"]
        for event in events
        for part in (event.get(f"{event['EventType']}Details") or {}).values()
        if isinstance(part, dict) and isinstance(part.get("Payload"), str)
    ]
    return len(operations), sum(len(payload.encode()) for payload in payloads), len(payloads[0].encode())


def _pace(found: list[Note], cycles: int) -> Found:
    """Return what a cycle takes, from tool to tool, and how often each was run."""
    tools = [note for note in found if note["what"] == "tool" and note["number"] < cycles]
    first, last = tools[0], tools[-1]
    few = max(1, min(100, len(tools) // 3))
    between = [later["cpu_ms"] - earlier["cpu_ms"] for earlier, later in itertools.pairwise(tools)]
    cpu = [each for each in between if each >= 0]  # it begins again in a new process
    return {
        "cycles_done": len({note["number"] for note in tools}),
        "cycles_repeated": len(tools) - len({note["number"] for note in tools}),
        "invocations": sum(note["what"] == "invoked" for note in found),
        "wall_ms_per_cycle": 1000 * (last["at"] - first["at"]) / max(1, len(tools) - 1),
        "cpu_ms_per_cycle": statistics.mean(cpu),
        "first_cpu_ms_per_cycle": statistics.mean(cpu[:few]),
        "last_cpu_ms_per_cycle": statistics.mean(cpu[-few:]),
        "longest_s": max(later["at"] - earlier["at"] for earlier, later in itertools.pairwise(tools)),
        "last_wall_ms_per_cycle": 1000 * (last["at"] - tools[-1 - few]["at"]) / few,
    }


def _heads(found: list[Note]) -> Found:
    """Return how long an invocation takes to its first body that is not on record, and to the first step that runs again."""
    at = next(index for index, note in enumerate(found) if note["what"] == "killed")
    after = found[at + 1 :]
    heads = [note for note in after if note["what"] == "head"]
    steps = [note for note in after if note["what"] in ("tool", "model")]
    if len(heads) != TIMED_HEADS or steps[0]["number"] != found[at]["number"]:
        raise SystemExit(f"bench: the run was not resumed where it was killed: {after[:20]}")
    return {
        "head_wall_ms": statistics.median(note["wall_ms"] for note in heads),
        "head_cpu_ms": statistics.median(note["cpu_ms"] for note in heads),
        "step_wall_ms": steps[0]["wall_ms"],
        "step_cpu_ms": steps[0]["cpu_ms"],
        "event_bytes": next(note["event_bytes"] for note in reversed(after) if note["what"] == "invoked"),
    }
