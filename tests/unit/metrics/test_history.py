"""What a broker remembers: bounded, by kind, and readable again."""

from __future__ import annotations

import itertools

import pytest

from moldau.metrics.history import EventKind, History, decode_events, encode_events


def test_the_last_events_of_each_kind_are_kept() -> None:
    times = itertools.count()
    history = History(lambda: next(times), most_events=3)
    history.note(EventKind.ELECTION, "t-0", "broker 1 leads")
    for number in range(10):
        history.note(EventKind.REBALANCE, f"g{number % 2}", f"number {number}", number=number)
    assert [event.message for event in history.find(EventKind.REBALANCE)] == [
        "number 7",
        "number 8",
        "number 9",
    ]
    assert len(history.find()) == 4
    assert [event.facts["number"] for event in history.find(subject="g1")] == [7, 9]


def test_it_is_the_same_after_a_restart() -> None:
    history = History(lambda: 5)
    history.note(EventKind.ISR, "t-0", "broker 2 left", isr=[1, 3])
    restored = History(lambda: 6)
    restored.restore(decode_events(encode_events(history.find())))
    assert restored.find() == history.find()


@pytest.mark.parametrize("text", ["", "{", '{"kind": "isr"}'])
def test_what_is_no_history_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_events(text)


def test_a_strange_event_is_left_out() -> None:
    text = '[1, {"kind": "isr"}, {"kind":"of tomorrow","at_ms":1,"subject":"","message":""}]'
    assert decode_events(text) == []
