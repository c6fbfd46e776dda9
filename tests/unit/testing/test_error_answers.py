"""Answers that a test injects: right for the API and version, and about what was asked for."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from moldau.testing.injected_errors import error_answer
from moldau.wire.apis import SERVED
from moldau.wire.headers import read_request_header
from support.requests import error_codes_of, full_request
from support.wire_client import read_response, request_frame

CODE = ErrorCode.not_leader_or_follower

EVERY_VERSION = [
    (api.key, version) for api in SERVED for version in range(api.served.first, api.served.last + 1)
]


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_every_api_can_be_answered_with_an_error(api_key: int, version: int) -> None:
    request = full_request(api_key, version, {"acks": -1})
    frame = memoryview(bytearray(request_frame(request, 7)))[4:]
    header, position = read_request_header(frame)
    answer = b"".join(error_answer(frame, header, position, CODE))
    correlation_id, response = read_response(api_key, version, answer[4:])
    assert correlation_id == 7
    codes = error_codes_of(response)
    assert not codes or CODE in codes


def test_a_produce_is_answered_about_the_partitions_that_it_named() -> None:
    request = full_request(0, 9, {"acks": -1, "name": "clicks", "index": 4})
    frame = memoryview(bytearray(request_frame(request)))[4:]
    header, position = read_request_header(frame)
    answer = b"".join(error_answer(frame, header, position, CODE))
    _, response = read_response(0, 9, answer[4:])
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code) == ("clicks", 4, CODE)


def test_a_fetch_is_answered_for_its_partitions_and_not_as_a_whole() -> None:
    request = full_request(1, 12, {"topic": "clicks", "partition": 4})
    frame = memoryview(bytearray(request_frame(request)))[4:]
    header, position = read_request_header(frame)
    answer = b"".join(error_answer(frame, header, position, CODE))
    _, response = read_response(1, 12, answer[4:])
    assert response.error_code is ErrorCode.none
    (topic,) = response.responses
    assert topic.topic == "clicks"
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(4, CODE)]
