"""The model calls of one call: their keys, when they are committed, and what a redaction overwrites."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strands.types.exceptions import ContextWindowOverflowException

from .._records import keys, model_states
from .._records.changed import changed
from .._records.codec import decode, encode, read_back
from .._records.copies import copied
from .._records.counters import count, count_tokens
from .._records.exceptions import describe, revive
from .._records.model_states import ModelState
from .._records.outcomes import ModelAnswer, ToolOutcome
from .._records.steps import StepEnd, StepRecord
from .._strands.agents import restore_retries, set_model_state
from .._strands.fingerprints import Config, config_of, fingerprint, model_id
from .._strands.watchers import forced_output
from .context import StepPhase
from .decisions import AFTER_TOOLS
from .metrics import place_in_loop

if TYPE_CHECKING:
    from .agent_call import Call


class ModelSteps:
    """The current model call, and what is recorded of it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.state: ModelState = "live"
        """What the next model call may find in the journal."""
        self._may_be_retried = True
        self.is_unsynced = False
        """True while a power cut could undo an answer: nothing was committed with an fsync since."""
        self._state: dict[str, Any] | None = None
        self.config: tuple[Config, int] | None = None
        """The agent's configuration when it was last looked at, and the id under which it is recorded."""
        self._basis: tuple[Any, Any, str] | None = None

    def request(self) -> tuple[str, StepRecord | None]:
        """Return the key of the model call that is about to start, and what is recorded under it."""
        if self.state in model_states.IS_EXPECTED:
            self._settle()
            self._call.progress = changed(self._call.progress, retry=self._call.progress.retry + 1, attempt=0)
        key = self.key("running")
        recorded = self._recorded(key)
        if self._may_be_retried:
            self._may_be_retried = False
            self._restore_retries(key, recorded)
        return key, recorded

    def _restore_retries(self, key: str, recorded: StepRecord | None) -> None:
        """Continue Strands' retries from those of previous processes: the wait keeps growing, and the limit holds."""
        if recorded is not None and recorded.status == "failed":
            errors = self._call.journal.errors_before(self._call.record.call_id, key)
            restore_retries(self._call.agent, map(revive, errors))

    def key(self, phase: StepPhase) -> str:
        """Return the key of the current model call, or of the one that is about to start."""
        progress = self._call.progress
        retry = progress.retry + (1 if phase == "before" and self.state in model_states.IS_EXPECTED else 0)
        return keys.model_key(progress.ordinal + 1, retry)

    def look(self, key: str) -> tuple[int, bool]:
        """Return the attempt, and whether the journal has the answer: for the hooks around a model call."""
        found = self._recorded(key)
        return max(1, self._call.progress.attempt), found is not None and found.status == "done"

    def _recorded(self, key: str) -> StepRecord | None:
        call = self._call
        is_ahead = self.state in model_states.IS_AHEAD
        return None if is_ahead else call.journal.latest(call.record.call_id, key).get(key)

    def has_failed(self, recorded: StepRecord | None) -> bool:
        """Return True if the last attempt of the model call is on record as an error."""
        is_failed = recorded is not None and recorded.status == "failed"
        return is_failed and recorded.attempt >= self._call.progress.attempt  # type: ignore[union-attr]

    def overflow(self, recorded: StepRecord | None) -> Exception | None:
        """Return the recorded overflow that a conversation manager reduced the context for, if that is not on record yet.

        The model has rejected these messages: it need not be called again, but the manager must be.
        """
        if recorded is None or self.state != "hooked" or not self.has_failed(recorded):
            return None
        error = revive(recorded.error)
        return error if isinstance(error, ContextWindowOverflowException) else None

    def is_hooked(self, recorded: StepRecord | None) -> bool:
        """Return True if the hooks that just ran had already run before this attempt; their work is then on record."""
        if self.state != "hooked":
            return False
        self._move(model_states.unhooked(self._call.progress))
        return not self.has_failed(recorded)

    def is_in_doubt(self, recorded: StepRecord | None) -> bool:
        """Return True if the model call that is about to start had started in a previous process."""
        is_known = recorded is not None and recorded.attempt >= self._call.progress.attempt
        return self.state == "begun" and not is_known

    def start(self, request: Any, *, lasting: bool) -> None:
        """Commit the conversation as the model is about to see it. This is the model call's intent.

        Without ``lasting`` a power cut may undo it: the tool results before it are then read from their steps, and the model
        is called again.
        """
        self._move("live" if self.state == "live" else "recorded")
        call = self._call
        call.commit_head(
            "model.start",
            "model",
            lasting=lasting,
            attempt=max(1, call.progress.attempt + (0 if call.progress.waits else 1)),
            waits=False,
            forced=forced_output(call.agent),
            in_loop=call.tools.in_loop(),
        )
        call.history.compare_with(request.messages, call.agent.messages)

    def finish(self, key: str, started_at: float, request: Any, answer: ModelAnswer, redacted: bool) -> ModelAnswer:
        """Commit an answer and return it as recorded.

        The fsync is left to the commit that follows, a tool's intent or the end of the call: after a power cut before that, the
        model is called again. It is never skipped twice in a row, nor if the model must not be called again.
        """
        journal = self._call.journal
        lasting = redacted or self.is_unsynced or self._call.options.model_in_doubt != "retry"
        text, found = read_back(answer.to_json(), f"Execution {self._call.execution_id!r}: the answer of {key}")
        recorded = ModelAnswer.from_json(found)
        with journal.transaction("model.done", lasting=lasting):
            loop = place_in_loop(answer.metrics, *self._call.place_in_loop())
            step_id = self._insert(key, started_at, request, StepEnd("done", text, usage=answer.usage, loop=loop))
            if redacted:
                self._redact()
        count("steps", "model", "done")
        count_tokens(answer.usage)
        self.is_unsynced = not lasting
        if redacted:
            journal.scrub()
        self._move("answered")
        self._expect(step_id, recorded)
        return recorded

    def fail(self, key: str, started_at: float, request: Any, error: Exception) -> None:
        """Record a model call that ended in an error; a retry is a new attempt of the same step."""
        with self._call.journal.transaction("model.failed"):
            self._insert(key, started_at, request, StepEnd("failed", error=describe(error)))
        count("steps", "model", "failed")

    def take(self, step_id: int, answer: ModelAnswer) -> None:
        """Use a recorded answer instead of calling the model."""
        self._move("replayed")
        self._expect(step_id, answer)

    def _expect(self, step_id: int, answer: ModelAnswer) -> None:
        """Expect the answer as the next message; if it does not come, a hook rejected it."""
        self._state = answer.model_state
        self._call.message_encoder.answered(step_id, answer)

    def settle_state(self) -> None:
        """Restore the state that the model had after its answer; Strands has just written back the previous one."""
        if self._state is not None:
            set_model_state(self._call.agent, self._state)
            self._state = None

    def is_answer(self, message: Any) -> bool:
        """Return True if a message that was just added is the expected answer, and stop expecting it."""
        if self.state not in model_states.IS_EXPECTED or message["role"] != "assistant":
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        self._move("live" if self.state == "answered" else "recorded")

    def _move(self, to: ModelState) -> None:
        self.state = model_states.move(self._call.execution_id, self.state, to)

    def give_up(self) -> bool:
        """Discard the last answer if none of its tools has started; it stays on record. Return True if discarded."""
        call, journal = self._call, self._call.journal
        is_said = call.progress.resume == "tools"
        ordinal = call.progress.ordinal + (0 if is_said else 1)
        steps = journal.latest(call.record.call_id, f"{ordinal:06d}/").values()
        answers = [step for step in steps if step.config_id is not None and step.status == "done"]
        if not answers or any(step.kind == "tool" for step in steps):
            return False
        if is_said:
            del call.agent.messages[-1]
        self._move("recorded")
        attempt = max(step.attempt for step in answers)
        with call.committing("answer.discard", resume="model", ordinal=ordinal - 1, attempt=attempt):
            for step in answers:
                journal.discard_step(step.step_id)
        return True

    def _insert(self, key: str, started_at: float, request: Any, end: StepEnd) -> int:
        config_id, model = self._config_id(request)
        call, attempt = self._call, self._call.progress.attempt
        return call.journal.insert_step(
            call.record.call_id, key, attempt, "model", model, "", started_at, config_id=config_id, end=end
        )

    def _config_id(self, request: Any) -> tuple[int, str]:
        """Return the id of the agent's configuration and its model; recomputed only if the request differs."""
        agent = self._call.agent
        basis = (request.tool_specs, request.system_prompt, model_id(agent))
        if self.config is None or self._basis != basis:
            config = config_of(agent)
            if self.config is None or self.config[0] != config:
                self.config = copied(config), self._call.journal.config_id(fingerprint(config), config)
            self._basis = copied(basis[0]), copied(basis[1]), basis[2]
        return self.config[1], self.config[0]["model"]

    def _redact(self) -> None:
        """Strands has redacted the last user message in place: overwrite what was recorded of it, everywhere."""
        call, journal, lineage = self._call, self._call.journal, self._call.record.lineage
        message = call.agent.messages[-1]
        seq = call.history.replaced(message)
        form = decode(journal.message_rows(lineage, [[seq, seq]])[0])
        journal.overwrite_message(lineage, seq, encode({"message": message}, "A message"))
        journal.forget_part(call.record.call_id, AFTER_TOOLS)
        if "input" in form:
            journal.redact_input(form["input"])
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        redacted = {result["toolUseId"]: result for result in results}
        steps = [block for block in form.get("blocks", ()) if isinstance(block, int)]
        for step_id, recorded in journal.results(steps).items():
            outcome = ToolOutcome.from_json(recorded)
            outcome = replace(outcome, result=redacted[outcome.result["toolUseId"]])
            journal.set_step_result(step_id, encode(outcome.to_json()))
