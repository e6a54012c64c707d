"""The recorded form of a message: by reference to the step or input it came from, so that nothing is stored twice.

``{"step": 7}`` is the answer of model step 7. ``{"blocks": [...]}`` holds, for each block, the tool step whose result it is, or
the block itself. ``{"input": 3}`` is the prompt of call 3. Anything else is the message as it is: ``{"message": {...}}``.
"""

from __future__ import annotations

from typing import Any

from .._records.calls import CallRecord
from .._records.codec import decode_all, encode
from .._records.content_hash import content_hash
from .._records.json_text import writer
from .._records.outcomes import ModelAnswer, ToolOutcome
from .port import Journal

Message = Any
_dump = writer()


class MessageEncoder:
    """What a message that is about to be recorded may have come from."""

    def __init__(self, call_id: int, given: Any) -> None:
        self._call_id = call_id
        self._input = given
        self._answer: tuple[int, int] | None = None
        self._results: dict[int, int] = {}

    def answered(self, step_id: int, answer: ModelAnswer) -> None:
        """Remember the model answer that may be appended next; the tool results before it are behind us."""
        self._answer = (content_hash(answer.appended), step_id)
        self._results = {}

    def returned(self, step_id: int, result: Any) -> None:
        """Remember a tool result of the running batch."""
        self._results[content_hash({"toolResult": result})] = step_id

    def describe(self, message: Message) -> str:
        """Return the recorded form of ``message``."""
        if self._answer is not None and self._answer[0] == content_hash(message):
            return _dump({"step": self._answer[1]})
        content, tracking_id = message["content"], message.get("tracking_id")
        if set(message) - {"role", "content", "tracking_id"} or message["role"] != "user":
            return encode({"message": message}, "A message")
        if self._input is not None and content == _content_of(self._input):
            return encode({"input": self._call_id, "id": tracking_id})
        steps = [self._results.get(content_hash(block)) for block in content]
        if any(step is not None for step in steps):
            blocks = [{"block": block} if step is None else step for step, block in zip(steps, content, strict=True)]
            return encode({"blocks": blocks, "id": tracking_id}, "A message")
        return encode({"message": message}, "A message")


def _content_of(given: Any) -> Any:
    return [{"text": given}] if isinstance(given, str) else given


def read(journal: Journal, lineage: int, ranges: list[list[int]], known: CallRecord | None = None) -> list[Message]:
    """Return the messages in ``ranges``, resolved; the input of a ``known`` call is not read again."""
    forms = decode_all(journal.message_rows(lineage, ranges))
    steps = [form["step"] for form in forms if "step" in form]
    steps += [block for form in forms if "blocks" in form for block in form["blocks"] if isinstance(block, int)]
    results = journal.results(steps) if steps else {}
    inputs = {known.call_id: known.input} if known is not None and isinstance(known.input, str) else {}
    return [_resolve(form, results, journal, inputs) for form in forms]


def _resolve(form: dict[str, Any], results: dict[int, Any], journal: Journal, inputs: dict[int, str]) -> Message:
    if "message" in form:
        return form["message"]
    if "step" in form:
        return ModelAnswer.appended_in(results[form["step"]])
    if "input" in form:
        call_id = form["input"]
        content = _content_of(inputs[call_id] if call_id in inputs else journal.input_of(call_id))
    else:
        content = [
            {"toolResult": ToolOutcome.result_in(results[block])} if isinstance(block, int) else block["block"]
            for block in form["blocks"]
        ]
    return {"role": "user", "content": content, "tracking_id": form["id"]}
