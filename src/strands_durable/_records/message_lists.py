"""What a list of Strands messages must look like before a model can be called with it. Does not import Strands."""

from __future__ import annotations

from typing import Any


def why_not(messages: Any) -> str | None:
    """Return why a model cannot be called with these messages; None if it can."""
    if not isinstance(messages, list) or not messages:
        return "messages must be a list of at least one message"
    for place, message in enumerate(messages):
        if not _is_message(message):
            return (
                f"message {place} is not a Strands message: an object with a role, 'user' or 'assistant', and a list of"
                " content blocks"
            )
    for place, message in enumerate(messages):
        open_ones = _uses(message) - _results(messages[place + 1] if place + 1 < len(messages) else None)
        if open_ones:
            return f"message {place} asks for tools without a result in the next one (toolUseId {', '.join(sorted(open_ones))})"
    if messages[-1]["role"] != "user":
        return "the last message is the assistant's, so that there is nothing to answer"
    return None


def with_prompt(messages: list[Any], prompt: Any) -> list[Any]:
    """Return the messages with a prompt behind them, as Strands would append it."""
    if isinstance(prompt, list) and all(isinstance(each, dict) and "role" in each for each in prompt):
        return [*messages, *prompt]
    content = [{"text": prompt}] if isinstance(prompt, str) else prompt
    return [*messages, {"role": "user", "content": content}]


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), list)
        and all(isinstance(block, dict) for block in message["content"])
    )


def _uses(message: Any) -> set[str]:
    return {str(block["toolUse"].get("toolUseId")) for block in message["content"] if "toolUse" in block}


def _results(message: Any) -> set[str]:
    blocks = [] if message is None else message["content"]
    return {str(block["toolResult"].get("toolUseId")) for block in blocks if "toolResult" in block}
