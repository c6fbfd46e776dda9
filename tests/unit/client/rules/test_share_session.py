"""A share session: what requests name, and their epochs."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.queue.rules.share_fetch_session import OPENING_EPOCH, ShareSessionHandler
from moldau.errors import InvariantViolation

T = UUID(int=1)
A, B = (T, 0), (T, 1)


def test_a_request_names_what_has_changed() -> None:
    session = ShareSessionHandler()
    assert session.ask(frozenset({A})) == (OPENING_EPOCH, [A], [])
    session.answered()
    assert session.ask(frozenset({A, B})) == (1, [B], [])
    session.answered()
    assert session.ask_nothing() == 2
    session.answered()
    assert session.ask(frozenset({B})) == (3, [], [A])


def test_a_lost_session_is_opened_anew_with_everything() -> None:
    session = ShareSessionHandler()
    session.ask(frozenset({A}))
    session.answered()
    session.ask(frozenset({A, B}))
    session.lose()
    assert not session.is_open
    assert session.ask(frozenset({A, B})) == (OPENING_EPOCH, [A, B], [])


def test_requests_follow_each_other() -> None:
    session = ShareSessionHandler()
    session.ask(frozenset({A}))
    with pytest.raises(InvariantViolation):
        session.ask_nothing()


def test_epochs_go_round_without_opening_a_session() -> None:
    session = ShareSessionHandler()
    session.epoch = (1 << 31) - 1
    session.ask_nothing()
    session.answered()
    assert session.epoch == 1


@given(st.lists(st.one_of(st.none(), st.frozensets(st.integers(0, 5)))))
def test_a_broker_that_follows_the_changes_has_what_is_wanted(
    wishes: list[frozenset[int] | None],
) -> None:
    """None: the session is lost."""
    session = ShareSessionHandler()
    known: set[tuple[UUID, int]] = set()
    for wish in wishes:
        if wish is None:
            session.lose()
            continue
        wanted = frozenset((T, index) for index in wish)
        step = session.ask(wanted)
        if step.epoch == OPENING_EPOCH:
            known = set()
        known |= set(step.added)
        known -= set(step.forgotten)
        session.answered()
        assert known == wanted
