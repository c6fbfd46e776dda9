"""Fetch sessions: what a request has to say, against a broker's own book-keeping."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.fetch import FetchSessions, Terms
from moldau.wire.fetch_exchange import FetchSessionHandler, SessionRequest, TopicKey, Wanted
from moldau.wire.fetch_frame import FetchPartition

CLICKS = TopicKey("clicks", UUID(int=1))


def row(index: int, offset: int) -> FetchPartition:
    return FetchPartition(index, 0, offset, -1, -1, 100)


def wanted(**offsets: int) -> Wanted:
    """`p0=5`."""
    return {(CLICKS, int(name[1:])): row(int(name[1:]), at) for name, at in offsets.items()}


def ask(session: FetchSessionHandler, wanted: Wanted) -> SessionRequest:
    session.want_only(wanted)
    return session.next_request()


def named(request: SessionRequest) -> dict[int, int]:
    return {one.partition: one.fetch_offset for topic in request.topics for one in topic.partitions}


def forgotten(request: SessionRequest) -> list[int]:
    return [index for topic in request.forgotten for index in topic.partitions]


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    request = ask(FetchSessionHandler(), wanted(p0=1, p1=2))
    assert (request.session_id, request.epoch) == (0, 0)
    assert named(request) == {0: 1, 1: 2}


def test_later_requests_name_what_has_changed() -> None:
    session = FetchSessionHandler()
    ask(session, wanted(p0=1, p1=2, p2=3))
    session.answered(77)
    request = ask(session, wanted(p0=1, p1=5, p3=0))
    assert (request.session_id, request.epoch) == (77, 1)
    assert named(request) == {1: 5, 3: 0}
    assert forgotten(request) == [2]
    session.answered(77)
    assert ask(session, wanted(p0=1, p1=5, p3=0))[1:] == (2, [], [])


def test_without_a_session_every_request_names_everything() -> None:
    session = FetchSessionHandler()
    for _ in range(2):
        request = ask(session, wanted(p0=1))
        assert (request.session_id, request.epoch, named(request)) == (0, 0, {0: 1})
        session.answered(0)


def test_after_a_failure_a_new_session_takes_the_place_of_the_old_one() -> None:
    session = FetchSessionHandler()
    ask(session, wanted(p0=1))
    session.answered(77)
    session.start_over()
    request = ask(session, wanted(p0=1))
    assert (request.session_id, request.epoch, named(request)) == (77, 0, {0: 1})
    session.start_over(is_forgotten=True)
    assert ask(session, wanted(p0=1)).session_id == 0


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    session = FetchSessionHandler()
    ask(session, wanted(p0=1))
    session.answered(77)
    anew = TopicKey("clicks", UUID(int=2))
    request = ask(session, {(anew, 0): row(0, 1)})
    assert [topic.topic_id for topic in request.topics] == [UUID(int=2)]
    assert [topic.topic_id for topic in request.forgotten] == [UUID(int=1)]


@given(
    st.lists(st.dictionaries(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_the_broker_knows_at_all_times_what_is_wanted(
    steps: list[dict[int, int]], losses: list[bool]
) -> None:
    session = FetchSessionHandler()
    ids = iter(range(1, 100))
    sessions = FetchSessions(lambda: 10, lambda: next(ids))
    for offsets, is_lost in zip(steps, losses, strict=False):
        request = ask(session, {(CLICKS, i): row(i, at) for i, at in offsets.items()})
        if request.epoch == 0:
            sessions.close(request.session_id)
            served = sessions.open(0)
        else:
            served = sessions.require(request.session_id, request.epoch, 0)
        assert served is not None
        served.begin_round(
            Terms(),
            [(topic.topic_id, one) for topic in request.topics for one in topic.partitions],  # type: ignore[misc]
            [(topic.topic_id, i) for topic in request.forgotten for i in topic.partitions],  # type: ignore[misc]
            0.0,
        )
        known = {index: one.request.fetch_offset for (_, index), one in served.partitions.items()}
        assert known == offsets
        if is_lost:
            session.start_over()
        else:
            session.answered(served.id)


def test_what_is_wanted_as_before_is_not_said_again() -> None:
    session = FetchSessionHandler()
    ask(session, wanted(p0=1, p1=2))
    session.answered(77)
    session.want((CLICKS, 0), row(0, 1))
    session.want((CLICKS, 1), row(1, 9))
    request = session.next_request()
    assert named(request) == {1: 9}
    assert forgotten(request) == []


def test_what_was_dropped_and_is_wanted_again_is_named_and_not_forgotten() -> None:
    session = FetchSessionHandler()
    ask(session, wanted(p0=1, p1=2))
    session.answered(77)
    session.drop((CLICKS, 0))
    session.drop((CLICKS, 1))
    session.want((CLICKS, 0), row(0, 1))
    request = session.next_request()
    assert named(request) == {0: 1}
    assert forgotten(request) == [1]


def test_a_topic_that_was_made_anew_is_not_forgotten_by_its_name() -> None:
    """A broker forgets after it has taken up what is wanted; the new topic would be gone."""
    session = FetchSessionHandler()
    ask(session, wanted(p0=1, p1=2))
    session.answered(77)
    anew = TopicKey("clicks", UUID(int=2))
    session.want_only({(anew, 0): row(0, 0)})
    request = session.next_request(by_name=True)
    assert named(request) == {0: 0}
    assert forgotten(request) == [1]
