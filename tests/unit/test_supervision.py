"""Who has an execution, and what counts: the state that a workflow replays, without a workflow."""

from __future__ import annotations

from typing import Any

from strands_durable._enginekit.supervision import Supervisor


def batch(epoch: int, number: int, *steps: str, queue: str = "") -> dict[str, Any]:
    given: dict[str, Any] = {"epoch": epoch, "number": number, "turns": [{"id": step} for step in steps]}
    return {**given, "queue": queue} if queue else given


def waiting(epochs: Supervisor) -> list[str]:
    return [ticket["id"] for ticket in epochs.startable(lambda: True)]


def test_batches_count_in_their_order_however_they_arrive() -> None:
    epochs = Supervisor(0)
    assert epochs.begin().base == [0, 0]
    assert not epochs.take(batch(1, 2, "second"))
    assert epochs.position == [1, 0]
    assert epochs.take(batch(1, 1, "first", queue="worker"))
    assert (epochs.position, waiting(epochs)) == ([1, 2], ["first", "second"])
    assert not epochs.take(batch(1, 1, "first", queue="worker"))
    assert epochs.position == [1, 2]


def test_batches_of_a_worker_that_was_given_up_do_not_count() -> None:
    epochs = Supervisor(0)
    epochs.begin()
    epochs.take(batch(1, 1, queue="one"))
    epochs.lose(is_timeout=True)
    offer = epochs.begin()
    assert (offer.epoch, offer.base, offer.alone, offer.is_lost) == (2, [1, 1], True, True)
    epochs.take(batch(1, 2, "late"))
    assert (epochs.position, waiting(epochs)) == ([2, 0], [])


def test_a_worker_that_never_began_is_no_reason_for_suspicion_the_first_time() -> None:
    epochs = Supervisor(0)
    for is_suspected in (False, True):
        epochs.begin()
        epochs.lose(is_timeout=True)
        epochs.count(was_useful=False)
        assert epochs.is_suspected is is_suspected


def test_an_offer_is_withdrawn_when_the_worker_that_seemed_dead_lives() -> None:
    epochs = Supervisor(0)
    epochs.begin()
    epochs.take(batch(1, 1, queue="one"))
    epochs.lose(is_timeout=True)
    assert epochs.begin().alone
    assert not epochs.is_to_be_taken_back
    epochs.alive(1, None)
    assert epochs.is_to_be_taken_back
    epochs.take_back()
    assert not epochs.is_to_be_taken_back
    epochs.is_suspected = False
    assert not epochs.begin().alone


def test_an_execution_returns_to_the_worker_that_still_has_it() -> None:
    epochs = Supervisor(0)
    epochs.begin()
    epochs.take(batch(1, 1, "step", queue="one"))
    epochs.lose(is_timeout=True)
    epochs.begin()
    epochs.alive(1, "one")
    assert epochs.is_to_be_taken_back
    epochs.take_back()
    epochs.take(batch(2, 1, queue="other"))
    assert epochs.position == [2, 0], "another worker is too late"
    epochs.clear_suspicion()
    offer = epochs.begin()
    assert (offer.holder, offer.held, offer.alone) == ("one", [1, 1], False)


def test_once_another_worker_has_begun_the_execution_stays_there() -> None:
    epochs = Supervisor(0)
    epochs.begin()
    epochs.take(batch(1, 1, queue="one"))
    epochs.lose(is_timeout=True)
    epochs.begin()
    epochs.take(batch(2, 1, queue="other"))
    epochs.alive(1, "one")
    epochs.alive(1, None)
    assert not epochs.is_to_be_taken_back


def test_what_a_client_adds_is_an_epoch_of_its_own() -> None:
    epochs = Supervisor(4)
    assert epochs.commit() == [5, 1]
    assert epochs.begin().base == [5, 1]


def test_only_steps_inside_of_running_ones_start_before_a_new_run() -> None:
    epochs = Supervisor(0)
    epochs.begin()
    inner = {"id": "inner", "is_inner": True}
    epochs.take({"epoch": 1, "number": 1, "turns": [{"id": "step"}, inner], "queue": "one"})
    assert epochs.startable(lambda: False) == [inner]


def test_the_wait_for_the_next_worker_grows_while_none_gets_anywhere() -> None:
    epochs = Supervisor(0)
    assert [epochs.count(was_useful=False) for _ in range(4)] == [0.0, 1.0, 2.0, 4.0]
    assert epochs.count(was_useful=True) == 0.0
