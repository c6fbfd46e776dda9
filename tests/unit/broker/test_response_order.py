"""Answers leave in the order of their requests, whichever of them is known first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.dispatch import PendingResponse, ResponseQueue


@given(st.data())
def test_answers_leave_in_order_and_as_soon_as_those_before_them(data: st.DataObject) -> None:
    owed = ResponseQueue()
    unknown: dict[int, PendingResponse] = {}
    asked, left = 0, 0
    for _ in range(data.draw(st.integers(0, 30))):
        if not unknown or data.draw(st.booleans()):
            unknown[asked] = owed.owe()
            asked += 1
            continue
        number = data.draw(st.sampled_from(sorted(unknown)))
        leaving = owed.answer(unknown.pop(number), [b"%d" % number])
        assert leaving == [[b"%d" % known] for known in range(left, left + len(leaving))]
        left += len(leaving)
        assert left == min(unknown, default=asked)  # nothing that is known stays behind
        assert len(owed) == asked - left


def test_an_answer_without_chunks_holds_up_nobody() -> None:
    owed = ResponseQueue()
    first, second = owed.owe(), owed.owe()
    assert owed.answer(second, ()) == []
    assert owed.answer(first, [b"a"]) == [[b"a"], ()]
    assert not owed
