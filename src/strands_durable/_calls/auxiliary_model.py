"""A proxy model that records calls made outside the agent loop.

A conversation manager, a judge or a classifier calls `Agent.aux_model` outside the loop, where no stage wraps the call.
Inside a durable call that attribute returns a proxy that records each of these calls as a step, named by the enclosing hook
or step and by the request. Models that such code received directly are not covered.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from strands import Agent
from strands.models import Model

from .._records.codec import digest
from .._records.counters import count_tokens
from .._strands.fingerprints import name_of_model
from .context import StepContext, current_context, within
from .effects import Effect, effect_guard

_OWN = frozenset({"stream", "structured_output", "__class__"})


class _StandIn(Model):
    """Looks like the model it wraps, including its class; only the methods it overrides are its own."""

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
        """Never reached: attribute lookup finds the inner model's method first."""

    def get_config(self) -> Any:
        """Never reached: attribute lookup finds the inner model's method first."""

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        """Call the inner model."""
        return object.__getattribute__(self, "_inner").stream(*args, **kwargs)

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        """Call the inner model."""
        return object.__getattribute__(self, "_inner").structured_output(*args, **kwargs)


class Recording(_StandIn):
    """Records each call as a step if it is made inside a durable call and not inside another model step."""

    def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """Stream the recorded events, or call the inner model and record what it streams."""
        inner, enclosing = object.__getattribute__(self, "_inner"), current_context.get()
        live = partial(inner.stream, messages, *args, **kwargs)
        if enclosing is None or not _is_beside(enclosing):
            return live()
        system_prompt = kwargs.get("system_prompt", args[1] if len(args) > 1 else None)
        return _recorded(enclosing, inner, live, [_asked(messages), system_prompt], _as_is, _as_is)

    def structured_output(self, output_model: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the recorded output, or call the inner model and record its output."""
        inner, enclosing = object.__getattribute__(self, "_inner"), current_context.get()
        live = partial(inner.structured_output, output_model, prompt, *args, **kwargs)
        if enclosing is None or not _is_beside(enclosing):
            return live()

        def revive(event: Any) -> Any:
            return {**event, "output": output_model.model_validate(event["output"])} if "output" in event else event

        return _recorded(enclosing, inner, live, [_asked(prompt), output_model.__name__], _without_objects, revive)


def offered(agent: Agent, model: Any) -> Any:
    """Return what `Agent.aux_model` gives to the calling code."""
    enclosing = current_context.get()
    if enclosing is None or enclosing.call.agent is not agent or type(model) is Recording:
        return model
    return Recording(model)


def _is_beside(enclosing: StepContext) -> bool:
    """Return False inside a model step: what its router does, for example, is part of that step."""
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
            usage = _usage(events)
            effect.close(events, usage=usage)
            count_tokens(usage)


async def _iterated(events: Any) -> AsyncGenerator[Any, None]:
    """Wrap a provider's stream in a generator: providers may return any async iterable."""
    async for event in events:
        yield event


def _asked(messages: Any) -> Any:
    """Return the parts of messages that a model sees; ids and figures that Strands attaches differ between runs."""
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _usage(events: list[Any]) -> dict[str, int] | None:
    found = [event["metadata"].get("usage") for event in events if isinstance(event, dict) and "metadata" in event]
    return dict(found[-1]) if found and found[-1] else None


def _as_is(event: Any) -> Any:
    return event


def _without_objects(event: Any) -> Any:
    output = event.get("output")
    return {**event, "output": output.model_dump(mode="json")} if hasattr(output, "model_dump") else event
