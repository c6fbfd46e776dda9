"""Fetch sessions: what a client is told, and when it is told that its session is gone."""

from itertools import count
from sys import getsizeof

import pytest

from moldau.broker.fetch import STALE_AFTER_MS, FetchSession, FetchSessions, FetchWait, Terms
from moldau.errors import FetchSessionNotFoundError, InvalidFetchSessionEpochError
from moldau.replication.partition import PartitionRead
from moldau.wire.fetch_frame import FetchPartition


def wanted(partition, offset=0):
    return "clicks", FetchPartition(partition, -1, offset, -1, -1, 1 << 20)


def sessions(most=10):
    ids = count(1)
    return FetchSessions(lambda: most, lambda: next(ids))


def session_of(*partitions):
    session = FetchSession(1, 0, lambda topic_partition, replica, until: None)
    session.begin_round(Terms(), [wanted(number) for number in partitions], (), 0.0)
    return session


def partition_of_session():
    (partition,) = session_of(0).news
    return partition


class Records:
    def __init__(self, length):
        self.length = length


def read(high_watermark=5, log_start=0, length=0, diverging=None):
    records = Records(length) if length else None
    return PartitionRead(records, high_watermark, high_watermark, log_start, None, diverging)


def test_epochs_count_up_from_one():
    cache = sessions()
    session = cache.open(0)

    assert cache.require(session.id, 1, 0) is session
    assert cache.require(session.id, 2, 0) is session
    with pytest.raises(InvalidFetchSessionEpochError):
        cache.require(session.id, 2, 0)


def test_the_epoch_after_the_last_is_one():
    session = session_of()
    session.epoch = 0x7FFFFFFF

    session.advance(0)

    assert session.epoch == 1


def test_an_unknown_session_is_said_to_be_gone():
    with pytest.raises(FetchSessionNotFoundError):
        sessions().require(7, 1, 0)


def test_a_closed_session_is_gone():
    cache = sessions()
    session = cache.open(0)

    cache.close(session.id)

    with pytest.raises(FetchSessionNotFoundError):
        cache.require(session.id, 1, 0)


def test_a_full_cache_opens_no_session_while_all_are_in_use():
    cache = sessions(most=1)
    first = cache.open(0)

    assert cache.open(STALE_AFTER_MS - 1) is None
    assert cache.require(first.id, 1, 0) is first


def test_a_stale_session_makes_room():
    cache = sessions(most=2)
    first, second = cache.open(0), cache.open(0)
    cache.require(first.id, 1, STALE_AFTER_MS)

    third = cache.open(STALE_AFTER_MS)

    assert third is not None
    with pytest.raises(FetchSessionNotFoundError):
        cache.require(second.id, 1, STALE_AFTER_MS)
    assert cache.require(first.id, 2, STALE_AFTER_MS) is first
    assert len(cache) == 2


def test_requests_add_change_and_forget_partitions():
    session = session_of(0, 1)

    gone = session.begin_round(Terms(), [wanted(1, offset=9), wanted(2)], [("clicks", 0)], 1.0)

    assert [one.request.partition for one in gone] == [0]
    assert [key[1] for key in session.partitions] == [1, 2]
    assert session.partitions["clicks", 1].request.fetch_offset == 9


def test_partitions_that_were_served_go_to_the_end():
    session = session_of(0, 1, 2)

    session.serve_last(session.partitions["clicks", 0])

    assert [one.request.partition for one in session.in_turn()] == [1, 2, 0]


def test_the_same_answer_is_news_only_once():
    partition = partition_of_session()

    assert partition.note_answer(read())
    assert not partition.note_answer(read())


@pytest.mark.parametrize("change", [read(high_watermark=6), read(log_start=2), read(length=100)])
def test_what_changed_is_news(change):
    partition = partition_of_session()
    partition.note_answer(read())

    assert partition.note_answer(change)


def test_after_an_error_everything_is_told_again():
    partition = partition_of_session()
    partition.note_answer(read())

    partition.forget_told()

    assert partition.note_answer(read())


def test_news_that_were_many_take_no_more_room_than_those_that_are_few():
    """A dictionary does not shrink by itself, and is walked from end to end in every round."""
    session = session_of(*range(5000))

    for partition in session.in_turn()[1:]:
        session.rest(partition)

    assert [one.request.partition for one in session.in_turn()] == [0]
    assert getsizeof(session.news) < 1 << 12


def test_a_follower_has_one_session():
    """It does not know those whose first answer it has not waited for."""
    cache = sessions()
    cache.open(0, 2)
    other, consumer = cache.open(0, 3), cache.open(0)

    last = cache.open(0, 2)

    assert len(cache) == 3
    for session in (other, consumer, last):
        assert cache.require(session.id, 1, 0) is session


def test_after_a_divergence_everything_is_told_again():
    """A follower goes back, and uses nothing else of the answer: the high watermark, neither."""
    partition = partition_of_session()
    partition.note_answer(read(diverging=(0, 3)))

    assert partition.note_answer(read())


def test_sessions_that_nobody_uses_go_when_another_one_comes():
    """Who was killed closes nothing, and would be told of records for ever."""
    cache = sessions()
    cache.open(0)
    waiting, used = cache.open(0), cache.open(0)
    waiting.waits[FetchWait(1, hears_commits=True)] = None
    cache.require(used.id, 1, STALE_AFTER_MS)

    cache.open(STALE_AFTER_MS)

    assert len(cache) == 3
    assert cache.require(waiting.id, 1, STALE_AFTER_MS) is waiting
    assert cache.require(used.id, 2, STALE_AFTER_MS) is used
