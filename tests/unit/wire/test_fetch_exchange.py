"""Fetch from the asking side, compared with kio and with the answering side in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.errors import MalformedFrameError
from moldau.wire.fetch_exchange import (
    AnsweredPartition,
    FetchAnswer,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import (
    FIRST_VERSION,
    LAST_VERSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    parse_fetch_request,
)
from moldau.wire.messages import parse
from moldau.wire.shape import millis
from moldau.wire.versions import request_class, response_class

from .strategies import HOSTILE, damaged, integers_of, messages, texts, uuids, written_by_kio

FETCH = 1
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)

every_version = pytest.mark.parametrize("version", VERSIONS)


def _expected(version: int, answer: Any) -> FetchAnswer:
    """kio's answer in our words."""
    return FetchAnswer(
        millis(answer.throttle_time),
        getattr(answer, "error_code", 0),
        getattr(answer, "session_id", 0),
        [
            (  # type: ignore[misc]
                None if version >= 13 else topic.topic,
                topic.topic_id if version >= 13 else None,
                [_expected_partition(version, row) for row in topic.partitions],
            )
            for topic in answer.responses
        ],
    )


def _expected_partition(version: int, row: Any) -> AnsweredPartition:
    aborted = row.aborted_transactions or ()
    return AnsweredPartition(
        row.partition_index,
        row.error_code,
        row.high_watermark,
        row.last_stable_offset,
        getattr(row, "log_start_offset", -1),
        [(one.producer_id, one.first_offset) for one in aborted],
        getattr(row, "preferred_read_replica", -1),
        memoryview(row.records or b""),
        _pair(row, "diverging_epoch", "epoch", "end_offset"),
        _pair(row, "current_leader", "leader_id", "leader_epoch"),
    )


def _pair(row: Any, field: str, first: str, second: str) -> tuple[int, int] | None:
    found = getattr(row, field, None)
    pair = None if found is None else (getattr(found, first), getattr(found, second))
    return None if pair == (-1, -1) else pair


def _plain(answer: FetchAnswer) -> FetchAnswer:
    """Tags with the values of absence are absent to kio's reader; lists compare with lists."""
    return answer._replace(
        topics=[
            topic._replace(
                partitions=[
                    row._replace(
                        aborted_transactions=list(row.aborted_transactions),
                        diverging_epoch=_unless_absent(row.diverging_epoch),
                        current_leader=_unless_absent(row.current_leader),
                    )
                    for row in topic.partitions
                ]
            )
            for topic in answer.topics
        ]
    )


def _unless_absent(pair: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if pair == (-1, -1) else pair


@every_version
@settings(max_examples=25)
@given(data=st.data())
def test_an_answer_reads_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    answer = data.draw(messages(response_class(FETCH, version)))
    raw = written_by_kio(answer)
    parsed = parse_fetch_answer(version, memoryview(b"header" + raw + b"garbage"), 6)
    assert _plain(parsed) == _expected(version, answer)


@every_version
@settings(max_examples=25)
@given(data=st.data())
def test_a_damaged_answer_is_read_or_malformed(version: int, data: st.DataObject) -> None:
    whole = messages(response_class(FETCH, version)).map(written_by_kio)
    raw = data.draw(whole.flatmap(damaged))
    try:
        parse_fetch_answer(version, memoryview(raw), 0)
    except MalformedFrameError:
        return


@every_version
@given(pieces=st.lists(st.binary(max_size=8) | st.sampled_from(HOSTILE), max_size=12))
@settings(max_examples=25)
def test_random_bytes_are_an_answer_or_malformed(version: int, pieces: list[bytes]) -> None:
    try:
        parse_fetch_answer(version, memoryview(b"".join(pieces)), 0)
    except MalformedFrameError:
        return


def test_records_are_a_slice_of_the_frame() -> None:
    frame = memoryview(
        bytes(4)  # throttled
        + b"\0\0\0\x01\0\x01t\0\0\0\x01"  # topic t, one partition
        + bytes(4 + 2 + 8 + 8)
        + b"\xff\xff\xff\xff"  # no aborted transactions
        + b"\0\0\0\x03abc"
    )
    (topic,) = parse_fetch_answer(4, frame, 0).topics
    assert topic.partitions[0].records.obj is frame.obj
    assert bytes(topic.partitions[0].records) == b"abc"


partitions = st.tuples(
    integers_of(32),
    integers_of(32),
    integers_of(64),
    integers_of(32),
    integers_of(64),
    integers_of(32),
).map(lambda fields: FetchPartition(*fields))
requests = st.builds(
    FetchRequest,
    replica_id=st.just(-1) | st.integers(0, 9),
    replica_epoch=st.just(-1),
    max_wait_ms=integers_of(32),
    min_bytes=integers_of(32),
    max_bytes=integers_of(32),
    isolation_level=st.sampled_from([0, 1]),
    session_id=integers_of(32),
    session_epoch=integers_of(32),
    topics=st.lists(
        st.builds(FetchTopic, texts, uuids, st.lists(partitions, max_size=3)), max_size=3
    ),
    forgotten_topics=st.lists(
        st.builds(ForgottenTopic, texts, uuids, st.lists(integers_of(32), max_size=3)), max_size=2
    ),
    rack_id=texts,
    cluster_id=st.none(),
)


def _as_the_version_says_it(version: int, request: FetchRequest) -> FetchRequest:
    by_id = version >= 13
    has_sessions = version >= 7
    return request._replace(
        session_id=request.session_id if has_sessions else 0,
        session_epoch=request.session_epoch if has_sessions else -1,
        topics=[
            FetchTopic(
                None if by_id else topic.name,
                topic.topic_id if by_id else None,
                [
                    row._replace(
                        current_leader_epoch=row.current_leader_epoch if version >= 9 else -1,
                        last_fetched_epoch=row.last_fetched_epoch if version >= 12 else -1,
                        log_start_offset=row.log_start_offset if version >= 5 else -1,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        forgotten_topics=[
            ForgottenTopic(
                None if by_id else topic.name, topic.topic_id if by_id else None, topic.partitions
            )
            for topic in request.forgotten_topics
        ]
        if has_sessions
        else [],
        rack_id=request.rack_id if version >= 11 else "",
    )


@every_version
@settings(max_examples=25)
@given(request=requests)
def test_a_request_reads_as_it_was_written(version: int, request: FetchRequest) -> None:
    raw = memoryview(encode_fetch_request(version, request))
    expected = _as_the_version_says_it(version, request)
    assert parse_fetch_request(version, raw, 0) == expected
    assert written_by_kio(parse(request_class(FETCH, version), raw, 0)) == raw


def test_a_follower_says_who_it_is() -> None:
    request = FetchRequest(3, 7, 1, 1, 1, 0, 0, -1, [], [], "", None)
    for version in (14, 17):
        parsed = parse_fetch_request(version, memoryview(encode_fetch_request(version, request)), 0)
        assert parsed.replica_id == 3
    assert parsed.replica_epoch == 7
