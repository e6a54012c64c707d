"""Model calls beside the loop are steps, too (C10, C11), and a model's own state comes back."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent
from strands.hooks import BeforeModelCallEvent
from strands.models import Model

from strands_durable import Durability
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, forget_process


class Verdict(BaseModel):
    """What a judge says."""

    ok: bool


class Judge(ScriptedModel):
    """Gives structured output, too."""

    async def structured_output(self, output_model: Any, prompt: Any, system_prompt: Any = None, **kwargs: Any) -> Any:
        self.calls += 1
        yield {"thinking": True}
        yield {"output": output_model(ok=True)}


def agent_of(judge: Judge, verdicts: list[Any]) -> Agent:
    agent = Agent(
        model=ScriptedModel(["Done."]),
        aux_model=judge,
        plugins=[Durability("runs.db", execution_id="trip")],
        callback_handler=None,
    )

    async def ask(event: BeforeModelCallEvent) -> None:
        prompt = [{"role": "user", "content": [{"text": "May it go on?"}]}]
        async for found in event.agent.aux_model.structured_output(Verdict, prompt):
            verdicts.append(found)
        async for chunk in event.agent.aux_model.stream(prompt):
            verdicts.append(chunk)

    agent.add_hook(ask)
    return agent


def test_c10_an_auxiliary_call_is_made_once() -> None:
    first, again = Judge(["Yes."]), Judge(["Yes."])
    live: list[Any] = []
    replayed: list[Any] = []
    with pytest.raises(SimulatedCrash), CrashPoints().crashing("model.start:after@1", "raise"):
        agent_of(first, live)("Go")
    forget_process()
    assert str(agent_of(again, replayed)("Go")) == "Done.\n"
    assert (first.calls, again.calls) == (2, 0)
    assert replayed == live
    assert isinstance(live[1]["output"], Verdict)
    rows = sqlite3.connect("runs.db").execute("SELECT kind, name, status, usage FROM steps ORDER BY id").fetchall()
    assert [row[:3] for row in rows] == [("model", "scripted", "done")] * 3
    assert '"inputTokens":10' in rows[1][3]


def test_c29_an_auxiliary_call_is_not_in_the_usage_of_the_agent() -> None:
    result = agent_of(Judge(["Yes."]), [])("Go")
    assert result.metrics.accumulated_usage["totalTokens"] == 15
    forget_process()
    assert agent_of(Judge(["Yes."]), [])("Go").metrics.accumulated_usage["totalTokens"] == 15


def test_c11_an_auxiliary_call_that_failed_is_made_again() -> None:
    class Down(Judge):
        async def stream(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("down")
            yield

    with pytest.raises(ConnectionError):
        agent_of(Down([]), [])("Go")
    forget_process()
    judge = Judge(["Yes."])
    assert str(agent_of(judge, [])("Go")) == "Done.\n"
    assert judge.calls == 1  # its structured output was recorded before the other failed


def test_a_replacement_looks_like_the_model_and_does_not_change_it() -> None:
    judge = Judge(["Yes."], model_id="small")
    found: list[Any] = []
    agent = agent_of(judge, [])
    agent.add_hook(lambda event: found.append(event.agent.aux_model), BeforeModelCallEvent)
    agent("Go")
    assert agent.aux_model is judge
    assert found[0] is not judge
    assert isinstance(found[0], Judge)
    assert isinstance(found[0], Model)
    assert found[0].config == {"model_id": "small"}
    found[0].update_config(temperature=1)
    assert judge.get_config()["temperature"] == 1
