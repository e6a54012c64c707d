"""examples/lambda: what its page shows happens on AWS's local runner, with a kill during a booking and a real webhook."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from cfnlint import lint_file

from strands_durable._cli.exit_codes import SUSPENDED
from strands_durable.backends.aws_lambda._url import LambdaConfig
from tests.commands import COMMAND
from tests.examples.processes import EXAMPLES, entries, free_port, python
from tests.unit.test_documents import FENCE, shown
from tests.waiting import until

FOLDER = EXAMPLES / "lambda"
PAGE = (FOLDER / "README.md").read_text()


@dataclass(frozen=True)
class Local:
    """`local.py`, as its page starts it."""

    url: str
    port: int

    def typed(self, command: str) -> str:
        """Return what a command of the page prints."""
        words = shlex.split(command.replace(":8080", f":{self.port}"))
        if words[0] == "curl":
            address, *data = words[1:]
            sent = {"content": data[1]} if data else {}
            return httpx.request("POST" if data else "GET", f"http://{address}", **sent).raise_for_status().text
        assert words[0] == "strands-durable"
        environment = {**os.environ, "STRANDS_DURABLE_BACKEND": self.url}
        ended = subprocess.run(
            [*COMMAND, *words[1:]], env=environment, cwd=FOLDER, capture_output=True, text=True, timeout=60
        )
        is_waiting = "is SUSPENDED" in ended.stdout
        assert ended.returncode == (SUSPENDED if is_waiting else 0), ended.stdout + ended.stderr
        return ended.stdout


def _hears_ctrl_c() -> None:
    """What a shell has started in the background ignores it, and so does all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def local(**environment: str) -> Iterator[Local]:
    port = free_port()
    bookings = str(Path("bookings.txt").resolve())
    command = python(FOLDER / "local.py", PORT=str(port), BOOKINGS=bookings, **environment)
    with open("function.log", "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=_hears_ctrl_c)
    try:
        assert process.stdout is not None
        printed = re.fullmatch(r"export STRANDS_DURABLE_BACKEND='(.+)'\n", process.stdout.readline())
        assert printed is not None, Path("function.log").read_text()
        yield Local(printed[1], port)
    finally:
        process.send_signal(signal.SIGINT)  # as Ctrl-C does: it ends the function's process, too
        assert process.wait(timeout=30) == 0


def commands() -> list[tuple[str, str]]:
    """Return what is typed into the second terminal of the page, with what is shown of it."""
    part = PAGE.partition("## On AWS")[0]
    blocks = [block for language, _, block in FENCE.findall(part) if language == "console"]
    found = [each for block in blocks for each in re.findall(r"^\$ (.+)\n((?:[^$].*\n|\n)*)", block, re.MULTILINE)]
    return [(command, output) for command, output in found if command.split()[0] in ("strands-durable", "curl")]


def killed_booking() -> None:
    """Kill the process that has printed that it books."""

    def pids() -> list[str]:
        return re.findall(r"attempt 1: flight to Paris, process (\d+)", Path("function.log").read_text())

    until(pids)
    os.kill(int(pids()[0]), signal.SIGKILL)


def test_the_page_is_what_happens() -> None:
    (dispatched, printed), *rest = commands()
    with local(BOOKING_SECONDS="600") as function:
        assert function.typed(dispatched) == printed
        killed_booking()
        for command, output in rest:
            expected = re.escape(shown(output)).replace(re.escape("..."), ".*")
            if "questions" in command:
                until(lambda command=command: function.typed(command) != "[]")
            found = function.typed(command)
            assert re.fullmatch(expected, shown(found), re.DOTALL), f"$ {command}\n{found}"
    assert [command.split()[0] for command, _ in rest] == ["strands-durable", "curl", "curl", "strands-durable"]
    assert entries("bookings.txt") == ["flight to Paris", "hotel in Paris"]


def test_the_answer_may_be_no() -> None:
    with local() as function:
        function.typed('strands-durable run app.py:trip_planner "Book a trip to Paris" --id trip-1 --detach')
        until(lambda: function.typed("curl localhost:8080/questions") != "[]")
        (question,) = json.loads(function.typed("curl localhost:8080/questions"))
        assert set(question) == {"callback_id", "execution_id", "interrupt_id", "name", "reason", "rejected"}
        function.typed("""curl localhost:8080/answers -d '{"execution_id": "trip-1", "answer": "no"}'""")
        assert function.typed("strands-durable watch trip-1").splitlines()[-1] == "trip-1 is COMPLETED."
    assert entries("bookings.txt") == ["flight to Paris"]


class Template(yaml.SafeLoader):
    """Reads a template; of its functions, such as !Sub, what they are applied to."""


Template.add_multi_constructor("!", lambda loader, tag, node: node.value)


def template() -> Any:
    return yaml.load((FOLDER / "template.yaml").read_text(), Template)


def test_the_template_is_valid() -> None:
    assert [str(found) for found in lint_file(FOLDER / "template.yaml")] == []


def test_the_function_is_durable_and_has_a_version() -> None:
    function = template()["Resources"]["TripPlanner"]["Properties"]
    assert function["DurableConfig"].keys() == {"ExecutionTimeout", "RetentionPeriodInDays"}
    assert function["Timeout"] == 900
    assert (FOLDER / f"{function['Handler'].partition('.')[0]}.py").exists()
    backend = LambdaConfig.of(template()["Outputs"]["Backend"]["Value"])
    assert (backend.function, backend.qualifier) == (function["FunctionName"], function["AutoPublishAlias"])
    assert "strands-durable[lambda]" in (FOLDER / "requirements.txt").read_text()


def test_clients_may_call_what_our_client_calls() -> None:
    folder = Path(sys.modules[LambdaConfig.__module__].__file__ or "").parent
    source = "".join(path.read_text() for path in folder.glob("*.py"))
    called = {name.title().replace("_", "") for name in re.findall(r"\bboto\.(\w+)", source)}
    assert len(called) == 5
    document = template()["Resources"]["TripPlannerClient"]["Properties"]["PolicyDocument"]
    allowed = {action for each in document["Statement"] for action in _listed(each["Action"])}
    assert allowed == {f"lambda:{'InvokeFunction' if name == 'Invoke' else name}" for name in called}


def _listed(found: str | list[str]) -> list[str]:
    return [found] if isinstance(found, str) else found
