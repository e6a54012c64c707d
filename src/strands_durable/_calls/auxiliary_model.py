"""A model that stands in for another, and records the calls that are made of it beside the loop.

A conversation manager, a judge or a classifier asks `Agent.aux_model` beside the loop, where no stage is around the call.
Inside of a durable call that attribute gives a stand-in which makes a step of each of these calls, named by the hook or step
that encloses it and by what is asked. Not covered are models that such code was given directly.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from strands import Agent
from strands.models import Model

from .._records.codec import digest
from .._strands.fingerprints import name_of_model
from .context import StepContext, current_context, within
from .effects import Effect, effect_guard

_OWN = frozenset({"stream", "structured_output", "__class__"})


class _StandIn(Model):
    """Looks like the model it stands in for, down to its class; only what it overrides is its own."""

    def __init__(self, inner: Model) -> None:
        object.__setattr__(self, "_inner", inner)

    def __getattribute__(self, name: str) -> Any:
        inner = object.__getattribute__(self, "_inner")
        if name == "__class__":
            return type(inner)
        return object.__getattribute__(self, name) if name in _OWN else getattr(inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_inner"), name, value)

    def update_config(self, **model_config: Any) -> None:
        """Never reached: the inner model's own is found first."""

    def get_config(self) -> Any:
        """Never reached: the inner model's own is found first."""

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        """Ask the inner model."""
        return object.__getattribute__(self, "_inner").stream(*args, **kwargs)

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        """Ask the inner model."""
        return object.__getattribute__(self, "_inner").structured_output(*args, **kwargs)


class Recording(_StandIn):
    """Makes a step of each call, where it is made inside a durable call and not inside another model step."""

    def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """Stream what is recorded, or ask the inner model and record what it streams."""
        inner, enclosing = object.__getattribute__(self, "_inner"), current_context.get()
        live = partial(inner.stream, messages, *args, **kwargs)
        if enclosing is None or not _is_beside(enclosing):
            return live()
        system_prompt = kwargs.get("system_prompt", args[1] if len(args) > 1 else None)
        return _recorded(enclosing, inner, live, [_asked(messages), system_prompt], _as_is, _as_is)

    def structured_output(self, output_model: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        """Give what is recorded, or ask the inner model and record what it gives."""
        inner, enclosing = object.__getattribute__(self, "_inner"), current_context.get()
        live = partial(inner.structured_output, output_model, prompt, *args, **kwargs)
        if enclosing is None or not _is_beside(enclosing):
            return live()

        def revive(event: Any) -> Any:
            return {**event, "output": output_model.model_validate(event["output"])} if "output" in event else event

        return _recorded(enclosing, inner, live, [_asked(prompt), output_model.__name__], _without_objects, revive)


def offered(agent: Agent, model: Any) -> Any:
    """Return what `Agent.aux_model` is to give to code that runs now."""
    enclosing = current_context.get()
    if enclosing is None or enclosing.call.agent is not agent or type(model) is Recording:
        return model
    return Recording(model)


def _is_beside(enclosing: StepContext) -> bool:
    """What a model step does inside, its router for example, is part of that step."""
    return not (enclosing.kind == "model" and enclosing.phase == "running")


async def _recorded(
    enclosing: StepContext, inner: Any, live: Callable[[], Any], request: Any, store: Any, revive: Any
) -> AsyncGenerator[Any, None]:
    with effect_guard(enclosing):
        effect = Effect(enclosing, f"aux.{digest(request)}", intent=True, model=name_of_model(inner))
    if effect.recorded is not None:
        for event in effect.recorded.result:
            yield revive(event)
        return
    step_context = StepContext(enclosing.call, "model", "model", "running", effect.key, lambda: (effect.attempt, False))
    events = []
    await effect.wait()
    with effect.holding():
        try:
            async for event in within(step_context, _iterated(live())):
                events.append(store(event))
                yield event
        except Exception as error:
            with effect_guard(enclosing):
                effect.fail(error)
            raise
        with effect_guard(enclosing):
            effect.close(events, usage=_usage(events))


async def _iterated(events: Any) -> AsyncGenerator[Any, None]:
    """Providers may return anything that can be iterated."""
    async for event in events:
        yield event


def _asked(messages: Any) -> Any:
    """Return what a model sees of messages; ids and figures that Strands attaches differ from run to run."""
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _usage(events: list[Any]) -> dict[str, int] | None:
    found = [event["metadata"].get("usage") for event in events if isinstance(event, dict) and "metadata" in event]
    return dict(found[-1]) if found and found[-1] else None


def _as_is(event: Any) -> Any:
    return event


def _without_objects(event: Any) -> Any:
    output = event.get("output")
    return {**event, "output": output.model_dump(mode="json")} if hasattr(output, "model_dump") else event
