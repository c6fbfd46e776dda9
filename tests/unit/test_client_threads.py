"""Clients that a module of tests leaves open are named; those that it closes are not."""

from __future__ import annotations

import moldau
from support.client_threads import ClientThreads


def test_a_client_that_nobody_closes_is_told_of_once_and_with_its_test() -> None:
    threads = ClientThreads()
    threads.note_after("what others left")
    threads.take_left(0.0)
    with moldau.Admin("127.0.0.1:1"):
        threads.note_after("the test before")
    with moldau.Producer("127.0.0.1:1"):
        threads.note_after("this test")
        assert threads.take_left(0.0) == ["moldau-producer of this test"]
        threads.note_after("the next test")
        assert threads.take_left(0.0) == []
