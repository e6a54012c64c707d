"""The command line on AWS Lambda: nobody is told to start a worker, since AWS invokes the function."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from strands_durable import errors
from strands_durable._cli import main
from strands_durable.backends.aws_lambda import lambda_handler
from strands_durable.testing.agents import contract_agent
from strands_durable.testing.aws_lambda import LocalLambda
from tests.aws_lambda.functions import Function, ask
from tests.waiting import until


def run(function: Function, *command: str) -> str:
    found = CliRunner().invoke(main, [*command, "--backend", function.url])
    assert found.exit_code == 0, found.output
    return found.output


def test_a_hint_after_an_answer_says_that_aws_invokes_the_function(make: Any) -> None:
    function = make()
    handle = function.dispatch(ask("paint"), "Done.")
    assert function.result(handle).interrupts
    until(lambda: function.open_callbacks(handle))
    waiting = run(function, "ls", "--waiting")
    assert "waits for a person" in waiting
    said = run(function, "respond", "run", "--answer", '"yes"')
    assert "Answer recorded." in said
    assert "worker" not in waiting + said
    assert str(function.result(handle)).strip() == "Done."


def test_a_function_without_the_agent_is_what_an_execution_waits_for(aws: LocalLambda, tmp_path: Path) -> None:
    function = Function(aws, aws.add(f"f-{uuid.uuid4().hex[:8]}", lambda_handler(contract_agent)), tmp_path)
    handle = function.dispatch("Done.")
    until(lambda: asyncio.run(handle.detail()).execution.note)
    waiting = run(function, "ls", "--waiting")
    assert "waits for a function that has its agent" in waiting
    shown = run(function, "show", "run")
    assert "AWS invokes the function; follow it with strands-durable watch run" in shown
    assert "worker" not in waiting + shown + run(function, "ls")


def test_drift_that_cannot_be_accepted_yet_says_what_to_do_first(make: Any) -> None:
    function = make()
    handle = function.dispatch(ask("paint"), "Done.")
    assert function.result(handle).interrupts
    found = CliRunner().invoke(main, ["resume", "run", "--accept-drift", "--backend", function.url])
    assert isinstance(found.exception, (errors.UnsupportedFeatureError, SystemExit))
    said = f"{found.output} {found.exception}"
    assert "waits for an answer" in said
    assert "Answer first" in said
    assert asyncio.run(handle.status()).value == "SUSPENDED"


def test_a_client_does_not_wait_for_strands_to_be_imported() -> None:
    code = "import sys; from strands_durable import connect; connect('lambda://f:1'); print('strands' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "False\n"
