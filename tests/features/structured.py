"""Structured output: by the tool at once, after the forced prompt, with a validation error in between."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, field_validator
from strands import Agent

from strands_durable.testing import Answer, call
from tests.crash.scenarios import book
from tests.features.harness import LedgerModel, durability, feature, seen


class Trip(BaseModel):
    """A trip."""

    city: str
    nights: int

    @field_validator("nights")
    @classmethod
    def _some(cls, nights: int) -> int:
        if nights < 1:
            raise ValueError("stay at least one night")
        return nights


class ChoosyModel(LedgerModel):
    """Says in its usage which tool it was forced to call, so that it can be compared."""

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        choice = kwargs.get("tool_choice")
        specs = args[0] if args else kwargs.get("tool_specs")
        forced = {"forced": 1 if choice is not None else 0, "offered": len(specs or ())}
        async for chunk in super().stream(messages, *args, **kwargs):
            if "metadata" in chunk:
                usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, **forced}
                chunk = {"metadata": {**chunk["metadata"], "usage": usage}}
            yield chunk


def outcome(script: list[Any]) -> Any:
    agent = Agent(model=ChoosyModel(script), tools=[book], plugins=[durability()], callback_handler=None)
    result = agent("Plan", structured_output_model=Trip)
    found = result.structured_output
    return seen(agent, result), type(found).__name__, found.model_dump(), sorted(agent.tool_names)


@feature(3, "structured output by its tool, with a tool beside it")
def by_the_tool() -> Any:
    return outcome([call("book", city="Rome"), [call("Trip", city="Rome", nights=2), call("book", city="Oslo")]])


@feature(3, "structured output after the forced prompt")
def forced() -> Any:
    return outcome(["I would go to Rome.", call("Trip", city="Rome", nights=3)])


@feature(3, "structured output after a validation error in the forced call")
def forced_and_wrong() -> Any:
    wrong = call("Trip", city="Rome", nights=0)
    return outcome(["I would go to Rome.", wrong, call("Trip", city="Rome", nights=1)])


@feature(3, "structured output as JSON text of the forced call")
def forced_text() -> Any:
    return outcome(["Rome.", Answer(text='{"city": "Rome", "nights": 4}')])
