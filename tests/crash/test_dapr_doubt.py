"""A worker on Dapr is killed inside the steps of many executions: for each of them its policy comes to pass elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.crash.sidecars import DaprSite
from tests.crash.test_temporal_doubt import (
    MODELS,
    TOOLS,
    WAIT,
    Lost,
    test_c11_a_model_call_in_doubt_is_made_again,
    test_c12_a_model_call_in_doubt_fails_the_execution,
    test_c12_a_model_call_in_doubt_is_asked_about,
    test_c12_ask_suspends_with_the_question_and_resumes_with_the_answer,
    test_c12_fail_returns_an_unknown_outcome_to_the_model,
    test_c12_retry_runs_a_tool_in_doubt_again_with_the_same_idempotency_key,
    test_c12_verify_decides_whether_a_tool_runs_again,
)
from tests.waiting import until

__all__ = [
    "test_c11_a_model_call_in_doubt_is_made_again",
    "test_c12_a_model_call_in_doubt_fails_the_execution",
    "test_c12_a_model_call_in_doubt_is_asked_about",
    "test_c12_ask_suspends_with_the_question_and_resumes_with_the_answer",
    "test_c12_fail_returns_an_unknown_outcome_to_the_model",
    "test_c12_retry_runs_a_tool_in_doubt_again_with_the_same_idempotency_key",
    "test_c12_verify_decides_whether_a_tool_runs_again",
]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    with DaprSite(tmp_path_factory.mktemp("lost")) as site:
        handles = {name: site.dispatch(name, WAIT, "Done.", **given) for name, given in TOOLS.items()}
        handles |= {name: site.dispatch(name, "Done.", waits_for="go", **given) for name, given in MODELS.items()}
        first = site.worker(len(handles))
        until(lambda: {entry["execution_id"] for entry in site.ledger()} == {*handles}, 90)
        until(lambda: len(site.ledger(what="wait")) == len(TOOLS))
        site.killed(first)
        site.touch("verified happened")
        site.touch("go")
        site.worker()
        yield Lost(cast(Any, site), handles)
