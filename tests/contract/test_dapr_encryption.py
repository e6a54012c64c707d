"""C53 to C56 on Dapr: what its state store, workflows and scheduler hold, wrong keys, changed batches, new keys, and kills."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from dapr.ext.workflow import DaprWorkflowContext, WorkflowRuntime, WorkflowStatus
from strands import Agent, ToolContext, tool

from strands_durable import Cipher, ExecutionStatus, durable_agent, errors
from strands_durable._dispatch.notifications import hooks as given
from strands_durable._enginekit.key_value.log import key_of
from strands_durable._enginekit.key_value.notices import StoredNotice, name_of
from strands_durable._enginekit.key_value.store import Value
from strands_durable._records.cipher_setting import KEYS_VARIABLE
from strands_durable.backends.dapr import DaprBackend, DaprDurability
from strands_durable.testing import CrashPoints, ScriptedModel, SimulatedCrash, agents, call
from strands_durable.testing.contract._bench import BOOK, WAIT
from strands_durable.testing.dapr import DaprCluster
from tests import threads
from tests.commands import cli, start
from tests.dapr.running import DaprBench
from tests.readable import files_with, is_readable

S = ExecutionStatus
SECRET = f"Marzipan{secrets.token_hex(4)}"
"""Not in what other tests have stored in the same Dapr."""
PLAIN = f"Nougat{secrets.token_hex(4)}"
"""In what is stored in plain text at first."""
PROMPT = f"{SECRET} prompt"
LARGE = 2_500_000


def keys(**given: int) -> Cipher:
    return Cipher({key_id: bytes([number]) * 32 for key_id, number in given.items()}, current=next(iter(given)))


K1 = {KEYS_VARIABLE: "k1=" + base64.b64encode(bytes([1]) * 32).decode()}


@tool(context=True)
def order(what: str, tool_context: ToolContext) -> str:
    """Order something that a person allows."""
    tool_context.agent.state.set("sweet", f"{SECRET} in state")
    answer = tool_context.interrupt("allowed", reason=f"{SECRET} asked")
    return f"{what} {answer} {SECRET} {secrets.token_hex(LARGE // 2)}"


@tool
def refuse(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"{SECRET} refused {what}")


@durable_agent(name="dapr-encrypted")
def planner(flavour: str = "", fails: bool = False) -> Agent:
    script = [call("refuse", what=f"{SECRET} first"), call("order", what=f"{SECRET} input"), f"{SECRET} answer"]
    model = ScriptedModel(_fail if fails else script)
    return Agent(model=model, tools=[order, refuse], system_prompt=f"{SECRET} system", callback_handler=None)


def _fail(turn: int, messages: list[Any]) -> str:
    raise RuntimeError(f"{SECRET} failure")


class EncryptedBench(DaprBench):
    """A backend with a cipher, or without."""

    def __init__(self, cluster: DaprCluster, folder: str, cipher: Cipher | None) -> None:
        super().__init__(cluster, folder)
        self.backend = DaprBackend(self.url(), cipher=cipher)

    def with_(self, cipher: Cipher | None) -> DaprBackend:
        return DaprBackend(self.url(), cipher=cipher).working("off")

    @contextmanager
    def working(self, cipher: Cipher | None, runtime: WorkflowRuntime | None = None) -> Iterator[None]:
        """Run a worker with a cipher in a thread."""
        backend = DaprBackend(self.url(), cipher=cipher, runtime=runtime)
        with threads.worker(lambda stop: backend.work(stop=stop, drain_seconds=5)):
            yield

    def ordered(self, **arguments: Any) -> str:
        """Run the agent to its end, through a question."""
        spec = planner.spec_with(flavour=f"{SECRET} flavour", **arguments)
        state = {"given": f"{SECRET} given"}
        handle = self.run(self.backend.dispatch(spec, PROMPT, execution_id="trip", invocation_state=state))
        (asked,) = self.result(handle).interrupts
        assert asked.reason == f"{SECRET} asked"
        self.run(handle.respond({asked.id: f"{SECRET} allowed"}))
        return str(self.result(handle)).strip()

    def stored(self) -> dict[str, bytes]:
        """Return all values of this app in the state store, those of Dapr's workflows included."""
        with closing(sqlite3.connect(f"file:{self.cluster.folder}/state.db?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT key, value, is_binary FROM state").fetchall()
        return {
            key: base64.b64decode(value) if is_binary else str(value).encode()
            for key, value, is_binary in rows
            if key.startswith(f"{self.app_id}||")
        }

    def readable(self, word: str = SECRET) -> list[str]:
        """Return the keys of values in which a word can be read."""
        stored = self.stored()
        whole = {
            key: b"".join(part for _, part in sorted(pieces(stored, key))) or value for key, value in stored.items()
        }
        return [key for key, value in whole.items() if is_readable(word, value)]

    def batches(self, execution_id: str = "trip") -> list[str]:
        """Return the keys of the batches of an execution, in order."""
        head = self.run(self.backend.engine.log.head(execution_id))
        return [key_of(execution_id, f"{epoch}.{number}") for epoch, number in head.batches()]

    def put(self, key: str, data: bytes) -> None:
        self.run(self.backend.engine.store.save(Value(key=key, data=data)))

    def value(self, key: str) -> bytes:
        data: bytes = self.run(self.backend.engine.store.get(key))[0]
        return data


def pieces(stored: dict[str, bytes], key: str) -> list[tuple[int, bytes]]:
    """Return the numbered pieces of a large value."""
    parts = [(each.removeprefix(f"{key}."), data) for each, data in stored.items() if each.startswith(f"{key}.")]
    return [(int(number), data) for number, data in parts if number.isdigit()]


@pytest.fixture
def made(dapr: DaprCluster, tmp_path: Path) -> Iterator[Callable[[Cipher | None], EncryptedBench]]:
    benches: list[EncryptedBench] = []

    def make(cipher: Cipher | None) -> EncryptedBench:
        benches.append(EncryptedBench(dapr, str(tmp_path), cipher))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()
    given.hooks._hooks.clear()


Made = Callable[[Cipher | None], EncryptedBench]


def test_c53_nothing_is_readable_in_the_store_the_workflows_and_the_scheduler(made: Made, dapr: DaprCluster) -> None:
    found: list[Any] = []

    async def take(notification: Any) -> None:
        found.append(notification)
        if len(found) < 2:
            raise RuntimeError(f"{SECRET} receiver failed")

    bench = made(keys(k1=1))
    bench.backend.notify(on_suspended=take, on_completed=take, on_failed=take)
    with bench.working(keys(k1=1)):
        assert bench.ordered() == f"{SECRET} answer"
        failed = bench.run(
            bench.backend.dispatch(planner.spec_with(fails=True), PROMPT, execution_id="failed", tags={"t": "acme"})
        )
        assert f"{SECRET} failure" in str(bench.fails(failed, errors.ExecutionFailedError))
        bench.until_workflow(WorkflowStatus.FAILED, "failed")
        bench.until_workflow(WorkflowStatus.COMPLETED)
        bench.until(lambda: {each.event for each in found} == {"suspended", "failed", "completed"})
        assert f"{SECRET} asked" in str(found)
        assert "encrypted" in str(bench.workflow("failed").failure_details.message)
    assert SECRET in str(bench.run(bench.run(bench.backend.get("trip")).detail()).steps)
    stored = bench.stored()
    assert any("trip" in key and "history" in key for key in stored), "the workflows are in this store, too"
    assert any(pieces(stored, key) for key in stored), "the result was too large for one value"
    assert bench.readable() == []
    assert files_with(SECRET, dapr.folder) == []


def test_c53_the_search_finds_what_is_stored_in_plain_text(made: Made) -> None:
    word = f"{PLAIN} for a search"
    bench = made(None)
    with bench.worker():
        assert str(bench.result(bench.dispatch({**BOOK, "city": word}, f"{word} it is."))) == f"{word} it is.\n"
        bench.until_workflow(WorkflowStatus.COMPLETED)
    found = bench.readable(word)
    assert [key for key in found if "strands-durable/trip/" in key], "in batches"
    assert [key for key in found if "history" in key or "metadata" in key], "and in the workflow"


def test_c53_lists_and_statuses_need_no_key(made: Made) -> None:
    bench = made(keys(k1=1))
    handle = bench.dispatch("Done.", tags={"tenant": "acme"})
    with bench.working(keys(k1=1)):
        bench.result(handle)
    bench.dispatch("Done.", execution_id="second")
    known = {record.execution_id: record for record in bench.run(bench.backend.list())}
    for wrong in (None, keys(k1=9)):
        other = bench.with_(wrong)
        found = {record.execution_id: record for record in bench.run(other.list())}
        assert {each: record.status for each, record in found.items()} == {"trip": S.COMPLETED, "second": S.PENDING}
        for each, record in found.items():
            facts = (record.agent, record.created_at, record.updated_at)
            assert facts == (known[each].agent, known[each].created_at, known[each].updated_at)
            assert "k1" in str(record.note)
        assert bench.run(bench.run(other.get("trip")).status()) is S.COMPLETED
        assert [record.execution_id for record in bench.run(other.list(status=S.PENDING))] == ["second"]
        bench.run(other.close())
    shown = cli("ls", "--backend", bench.url()).output
    assert all(word in shown for word in ("trip", "COMPLETED", "second", "PENDING"))
    failed = cli("show", "trip", "--backend", bench.url())
    assert (failed.exit_code, "encrypted with the key 'k1', and no cipher was given" in failed.output) == (1, True)
    assert "model 1" in cli("show", "trip", "--backend", bench.url(), env=K1).output


def test_c54_a_worker_without_the_key_lives_and_fails_nothing(made: Made) -> None:
    bench = made(keys(k1=1))
    handle = bench.dispatch(BOOK, "Done.")
    before = bench.batches()
    values = [bench.value(key) for key in before]
    for wrong in (None, keys(k1=9), keys(k2=2)):
        other = bench.with_(wrong)
        with bench.working(wrong):
            bench.until(lambda other=other: "k1" in str(bench.run(other.presence("trip")).note))
            assert bench.run(other.unattended()) is None
            assert bench.run(other.engine.log.head("trip")).status == "PENDING"
        bench.run(other.engine.store.delete([key_of("trip", "note")]))
        bench.run(other.close())
    assert (bench.batches(), [bench.value(key) for key in before]) == (before, values)
    with bench.working(keys(k1=1)):
        assert str(bench.result(handle)) == "Done.\n"
    assert bench.booked() == ["Paris"]


def test_c54_a_notice_is_left_to_a_worker_with_the_key(made: Made) -> None:
    bench, refused, taken = made(keys(k1=1)), list[Any](), list[Any]()

    def refuse_it(notification: Any) -> None:
        refused.append(notification)
        raise RuntimeError(f"{SECRET} is not taken now")

    bench.backend.notify(on_completed=refuse_it)
    handle = bench.dispatch("Done.")
    with bench.working(keys(k1=1)):
        bench.result(handle)
        bench.until(lambda: notice_of(bench).error is not None)
    before = notice_of(bench)
    given.hooks._hooks.clear()
    bench.backend.notify(on_completed=taken.append)
    with bench.working(keys(k1=9)):
        bench.until(lambda: notice_of(bench).not_before > before.not_before and notice_of(bench).claimed_by is None)
    assert (notice_of(bench).tries, taken) == (before.tries, [])
    (kept,) = bench.run(handle.detail()).undelivered
    assert f"{SECRET} is not taken now" in str(kept.error)
    assert bench.readable() == []
    with bench.working(keys(k1=1)):
        bench.until(lambda: len(taken) == 1)


def notice_of(bench: EncryptedBench) -> StoredNotice:
    """Return the only notice of an execution, as it is stored."""
    head = bench.run(bench.backend.engine.log.head("trip"))
    found: list[StoredNotice] = bench.run(bench.backend.engine.notices.careful_read(name_of("trip", head.life)))
    return found[0]


def test_c54_an_execution_in_plain_text_is_refused_with_a_cipher_and_continues_without(made: Made) -> None:
    bench = made(None)
    handle = bench.dispatch("Done.")
    with bench.working(keys(k1=1)):
        bench.until(lambda: "in plain text" in str(bench.run(bench.backend.presence("trip")).note))
    with pytest.raises(errors.CipherError, match="plain text"):
        bench.run(bench.run(bench.with_(keys(k1=1)).get("trip")).detail())
    with bench.working(None):
        assert str(bench.result(handle)) == "Done.\n"


def test_c55_changed_and_exchanged_batches_are_noticed(made: Made) -> None:
    bench = made(keys(k1=1))
    handle = bench.dispatch(BOOK, "Done.")
    with bench.working(keys(k1=1)):
        bench.result(handle)
    batches = bench.batches()
    first, second = bench.value(batches[0]), bench.value(batches[1])
    for place in (0, 1, 3, 20, 70, len(second) // 2, len(second) - 1):
        changed = bytearray(second)
        changed[place] ^= 1
        bench.put(batches[1], bytes(changed))
        with pytest.raises(errors.CipherError):
            bench.run(handle.detail())
    bench.put(batches[1], first)
    with pytest.raises(errors.CipherError, match="is not what was encrypted"):
        bench.run(handle.detail())
    bench.put(batches[1], second)
    assert bench.run(handle.detail()).execution.status is S.COMPLETED


def test_c56_rekey_encrypts_what_is_at_rest_and_forks_keep_their_steps(made: Made) -> None:
    bench = made(None)
    handle = bench.dispatch({**BOOK, "city": PLAIN}, "Done.")
    with bench.working(None):
        bench.result(handle)
    plain = bench.run(handle.detail())
    assert bench.readable(PLAIN)
    new = bench.with_(keys(k1=1))
    done = cli("rekey", "--backend", bench.url(), "--json", env=K1)
    assert json.loads(done.output)["outcome"] == "encrypted"
    assert bench.run(new.rekey()).outcome == "unchanged"
    assert [key for key in bench.readable(PLAIN) if "strands-durable/trip/" in key] == []
    rotated = bench.with_(keys(k2=2, k1=1))
    assert (bench.run(rotated.rekey()).outcome, bench.run(rotated.rekey()).outcome) == ("rotated", "unchanged")
    last = bench.with_(keys(k2=2))
    assert bench.run(bench.run(last.get("trip")).detail()) == plain
    with bench.working(keys(k2=2)):
        fork = bench.run(bench.run(last.get("trip")).fork(at=1, execution_id="fork"))
        assert str(bench.result(fork)) == "Done.\n"
    with pytest.raises(errors.CipherError, match="'k2', which the cipher does not have"):
        bench.run(new.rekey())
    assert bench.run(last.rekey(decrypt=True)).outcome == "decrypted"
    assert bench.run(bench.run(bench.backend.get("trip")).detail()) == plain
    with pytest.raises(errors.CipherError, match="no cipher"):
        bench.run(bench.backend.rekey())


def test_c56_rekey_leaves_a_running_execution_to_its_worker(made: Made) -> None:
    bench = made(keys(k1=1))
    handle = bench.dispatch(WAIT, "Done.")
    with bench.working(keys(k2=2, k1=1)):
        bench.until_waiting()
        both = bench.with_(keys(k2=2, k1=1))
        with pytest.raises(errors.ExecutionBusyError, match="Run rekey again"):
            bench.run(both.rekey())
        bench.touch()
        assert str(bench.result(bench.run(both.get("trip")))) == "Done.\n"
    assert bench.run(both.rekey()).outcome == "rotated"
    assert len(bench.marks("wait")) == 1
    with pytest.raises(errors.CipherError):
        bench.run(handle.detail())


@pytest.mark.parametrize("point", ["rekey:before", "rekey:after"])
def test_c56_a_rekey_that_is_cut_off_can_be_repeated(made: Made, point: str) -> None:
    bench = made(None)
    handle = bench.dispatch({**BOOK, "city": PLAIN}, "Done.")
    with bench.working(None):
        bench.result(handle)
    before = bench.run(handle.detail())
    new = bench.with_(keys(k1=1))
    with CrashPoints().crashing(f"{point}@1", how="raise"), pytest.raises(SimulatedCrash):
        bench.run(new.rekey())
    bench.run(new.rekey())
    assert bench.run(bench.run(new.get("trip")).detail()) == before
    assert [key for key in bench.readable(PLAIN) if "strands-durable/trip/" in key] == []


def test_c53_a_killed_worker_is_replaced_and_nothing_is_repeated(made: Made, tmp_path: Path) -> None:
    """The keys come from the environment, as for a command."""
    file = tmp_path / "agents_of_the_worker.py"
    file.write_text("from strands_durable.testing.agents import *\n")
    bench = made(keys(k1=1))
    handle = bench.dispatch(BOOK, WAIT, {**BOOK, "city": SECRET}, "Done.")
    environment = {**os.environ, **K1}
    command = ("worker", str(file), "--backend", bench.url())
    first = start(*command, env=environment, start_new_session=True)
    bench.until_waiting()
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    bench.touch()
    second = start(*command, env=environment, start_new_session=True)
    try:
        assert str(bench.result(handle)) == "Done.\n"
    finally:
        os.killpg(second.pid, signal.SIGKILL)
        second.wait()
    assert bench.booked() == ["Paris", SECRET]
    assert bench.readable() == []


def travel(ctx: DaprWorkflowContext, given: dict[str, Any]) -> Generator[Any, Any, Any]:
    """A workflow of a user's own, which takes and returns nothing that is secret."""
    secret = Path(given["folder"], "secret").read_text()
    planner = DaprDurability(ctx, agents.contract_agent, cipher=keys(k1=1))
    script = [{**BOOK, "city": secret}, f"{secret} it is."]
    result = yield from planner.invoke(f"{secret} prompt", execution_id="inner", folder=given["folder"], script=script)
    Path(given["folder"], "result").write_text(str(result))
    return "done"


def test_c53_inside_a_workflow_of_a_users_own_the_call_and_its_result_are_encrypted(made: Made, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    bench = made(keys(k1=1))
    with bench.working(keys(k1=1), travelling(bench)):
        bench.until(lambda: bench.run(bench.backend.unattended()) is None)
        bench.tools.schedule_new_workflow(travel, input={"folder": str(tmp_path)}, instance_id="outer")
        bench.until_workflow(WorkflowStatus.COMPLETED, "outer")
    assert (tmp_path / "result").read_text() == f"{SECRET} it is.\n"
    assert bench.booked() == [SECRET]
    assert bench.readable() == []


def travelling(bench: EncryptedBench) -> WorkflowRuntime:
    """Return a runtime with the workflow of a user."""
    runtime = WorkflowRuntime("127.0.0.1", str(bench.sidecars[0].grpc_port))
    travel.__dict__.clear()  # Dapr notes on a function that it was registered, and refuses it a second time
    runtime.register_workflow(travel)
    return runtime


def test_c54_a_worker_without_the_key_does_not_fail_a_workflow_of_a_users_own(
    made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    bench = made(keys(k1=1))
    with bench.working(keys(k1=9), travelling(bench)):
        bench.until(lambda: bench.run(bench.backend.unattended()) is None)
        bench.tools.schedule_new_workflow(travel, input={"folder": str(tmp_path)}, instance_id="outer")
        bench.until(lambda: caplog.text.count("left to a worker with the key") > 1)
        bench.until_workflow(WorkflowStatus.RUNNING, "outer")
    with bench.working(keys(k1=1), travelling(bench)):
        bench.until_workflow(WorkflowStatus.COMPLETED, "outer")
    assert (tmp_path / "result").read_text() == f"{SECRET} it is.\n"
    assert bench.booked() == [SECRET]
    assert bench.readable() == []
