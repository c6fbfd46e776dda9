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
    assert session.build_request(frozenset({A})) == (OPENING_EPOCH, [A], [])
    session.answered()
    assert session.build_request(frozenset({A, B})) == (1, [B], [])
    session.answered()
    assert session.build_empty_request() == 2
    session.answered()
    assert session.build_request(frozenset({B})) == (3, [], [A])


def test_a_lost_session_is_opened_anew_with_everything() -> None:
    session = ShareSessionHandler()
    session.build_request(frozenset({A}))
    session.answered()
    session.build_request(frozenset({A, B}))
    session.reset()
    assert not session.is_open
    assert session.build_request(frozenset({A, B})) == (OPENING_EPOCH, [A, B], [])


def test_requests_follow_each_other() -> None:
    session = ShareSessionHandler()
    session.build_request(frozenset({A}))
    with pytest.raises(InvariantViolation):
        session.build_empty_request()


def test_epochs_go_round_without_opening_a_session() -> None:
    session = ShareSessionHandler()
    session.epoch = (1 << 31) - 1
    session.build_empty_request()
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
            session.reset()
            continue
        wanted = frozenset((T, index) for index in wish)
        step = session.build_request(wanted)
        if step.epoch == OPENING_EPOCH:
            known = set()
        known |= set(step.added)
        known -= set(step.forgotten)
        session.answered()
        assert known == wanted
