"""The log of a conversation notices every change of it, with a copy to compare it with and without one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from strands_durable._journal.conversation import History


def said(*texts: str) -> list[Any]:
    return [{"role": "user", "content": [{"text": text}], "metadata": {"count": 1}} for text in texts]


def written(messages: list[Any], copies: list[Any] | None = None) -> History:
    history = History()
    assert len(history.sync(messages, str)) == len(messages)
    history.compare_with(copy.deepcopy(messages) if copies is None else copies, messages)
    return history


def test_only_what_is_new_is_written() -> None:
    messages = said("a", "b")
    history = written(messages)
    messages += said("c")
    assert [seq for seq, _ in history.sync(messages, str)] == [2]
    assert history.sync(messages, str) == []
    assert history.ranges == [[0, 2]]


def change_text(messages: list[Any]) -> None:
    messages[0]["content"][0]["text"] = "x"


def add_block(messages: list[Any]) -> None:
    messages[1]["content"].append({"text": "x"})


def put_another(messages: list[Any]) -> None:
    messages[0] = said("x")[0]


@pytest.mark.parametrize("change", [change_text, add_block, put_another])
@pytest.mark.parametrize("is_grown", [True, False])
def test_a_change_of_an_old_message_is_noticed(change: Any, is_grown: bool) -> None:
    messages = said("a", "b", "c")
    history = written(messages)
    messages += said("d") if is_grown else []
    history.sync(messages, str)
    change(messages)
    (row,) = history.sync(messages, str)
    assert "x" in row[1]
    assert history.sync(messages, str) == []


def test_messages_that_are_dropped_or_reordered_write_ranges_only() -> None:
    messages = said("a", "b", "c")
    history = written(messages)
    del messages[0]
    messages.reverse()
    assert history.sync(messages, str) == []
    assert history.ranges == [[2, 2], [1, 1]]


def test_a_change_that_is_undone_is_the_first_row_again() -> None:
    messages = said("a", "b")
    history = written(messages)
    change_text(messages)
    history.sync(messages, str)
    messages[0]["content"][0]["text"] = "a"
    assert len(history.sync(messages, str)) == 1
    assert history.ranges == [[3, 3], [1, 1]]


def test_another_type_of_an_equal_value_is_noticed_when_the_copies_are_gone() -> None:
    messages = said("a")
    history = written(messages)
    messages[0]["metadata"]["count"] = True
    assert history.sync(messages, str) == []
    history.forget_copies()
    assert len(history.sync(messages, str)) == 1


def test_the_conversation_itself_is_no_copy_of_it() -> None:
    messages = said("a", "b")
    history = written(messages, copies=list(messages))
    change_text(messages)
    assert len(history.sync(messages, str)) == 1


def test_a_copy_to_which_the_answer_is_added_does_not_hide_it() -> None:
    messages = said("a", "b")
    copies = copy.deepcopy(messages)
    history = written(messages, copies)
    copies += said("c")
    messages += said("c")
    assert [seq for seq, _ in history.sync(messages, str)] == [2]


def test_other_messages_are_no_copy_of_it() -> None:
    messages = said("a", "b")
    history = written(messages, copies=said("x", "b"))
    change_text(messages)
    assert len(history.sync(messages, str)) == 1


def test_what_refuses_to_be_compared_is_no_copy() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError

        __hash__ = None  # type: ignore[assignment]

    messages = said("a", "b")
    history = written(messages)
    messages[0]["content"] = Odd()
    messages.pop(0)
    assert history.sync(messages, str) == []
    history.compare_with([{"content": Odd()}], [{"content": Odd()}])
    assert history.sync(messages, str) == []
