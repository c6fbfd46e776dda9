"""Produce as a client writes and reads it, compared with the broker's side and with kio."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.errors import MalformedFrameError
from moldau.wire.messages import parse
from moldau.wire.produce_frame import (
    FIRST_VERSION,
    LAST_CLIENT_VERSION,
    ProduceAnswer,
    ProducedPartition,
    encode_produce_body,
    encode_produce_request,
    group_by_topic,
    parse_produce_request,
    parse_produce_response,
)
from moldau.wire.versions import request_class

from .strategies import HOSTILE, integers_of, texts

PRODUCE = 0
every_version = pytest.mark.parametrize("version", range(FIRST_VERSION, LAST_CLIENT_VERSION + 1))

batches = st.lists(
    st.tuples(
        st.sampled_from(["rivers", "lakes", "größe"]), st.integers(0, 99), st.binary(max_size=300)
    ),
    max_size=5,
    unique_by=lambda row: row[:2],
)
produced = st.builds(
    ProducedPartition,
    st.integers(0, 99),
    integers_of(16),
    integers_of(64),
    integers_of(64),
    integers_of(64),
    st.lists(st.tuples(st.integers(0, 9), texts), max_size=2, unique_by=lambda row: row[0]),
    st.none() | texts,
    st.none() | st.tuples(integers_of(32), integers_of(32)),
)


@every_version
@settings(max_examples=20, deadline=None)
@given(rows=batches, acks=st.sampled_from([-1, 0, 1]), transactional_id=st.none() | texts)
def test_a_broker_and_kio_read_what_was_written(
    version: int, rows: list[tuple[str, int, bytes]], acks: int, transactional_id: str | None
) -> None:
    topics = group_by_topic(rows)
    raw = b"".join(encode_produce_request(version, acks, 1234, topics, transactional_id))

    request = parse_produce_request(version, memoryview(raw), 0)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (
        transactional_id,
        acks,
        1234,
    )
    got = [
        (topic.name, index, bytes(records or b""))
        for topic in request.topics
        for index, records in topic.partitions
    ]
    assert sorted(got) == sorted(rows)
    by_kio = parse(request_class(PRODUCE, version), memoryview(raw), 0)
    assert by_kio.acks == acks  # type: ignore[attr-defined]


@every_version
@settings(max_examples=20, deadline=None)
@given(
    topics=st.lists(st.tuples(texts, st.none(), st.lists(produced, max_size=3)), max_size=3),
    throttle_time_ms=st.integers(0, 1000),
)
def test_what_a_broker_answers_is_read(
    version: int,
    topics: list[tuple[str, None, list[ProducedPartition]]],
    throttle_time_ms: int,
) -> None:
    raw = b"head" + encode_produce_body(version, topics, throttle_time_ms)

    answers, throttled = parse_produce_response(version, memoryview(raw), 4)

    assert throttled == throttle_time_ms
    assert answers == [
        _expected(version, name, row) for name, _, partitions in topics for row in partitions
    ]


def _expected(version: int, topic: str, row: ProducedPartition) -> ProduceAnswer:
    answer = ProduceAnswer(topic, *row[:4])
    if version >= 5:
        answer = answer._replace(log_start_offset=row.log_start_offset)
    if version >= 8:
        errors = {index: message or "" for index, message in row.record_errors}
        answer = answer._replace(record_errors=errors, error_message=row.error_message)
    return answer


@every_version
@settings(max_examples=25, deadline=None)
@given(pieces=st.lists(st.binary(max_size=8) | st.sampled_from(HOSTILE), max_size=8))
def test_random_bytes_are_an_answer_or_malformed(version: int, pieces: list[bytes]) -> None:
    try:
        parse_produce_response(version, memoryview(b"".join(pieces)), 0)
    except MalformedFrameError:
        return


def test_batches_are_handed_over_as_they_are() -> None:
    batch = bytearray(b"batch")
    pieces = encode_produce_request(12, -1, 0, [("rivers", [(0, batch)])])
    assert any(piece is batch for piece in pieces)
