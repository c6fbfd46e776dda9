"""Errors are counted wherever they stand in an answer."""

from __future__ import annotations

from typing import Any

from moldau.broker import dispatch
from moldau.broker.api import RequestContext
from moldau.errors import ErrorCode
from moldau.metrics.figures import ApiFigures
from moldau.wire.apis import HEARTBEAT, METADATA, OFFSET_COMMIT, Api
from moldau.wire.headers import RequestHeader
from moldau.wire.shape import EncodedArray
from moldau.wire.versions import response_class


def count(api: Api, version: int, values: dict[str, object]) -> dict[int, int]:
    nobody: Any = None
    header = RequestHeader(api.key, version, 1, None)
    figures = ApiFigures(api.key)
    context = RequestContext(header, nobody, nobody, figures)
    dispatch._count_errors(values, response_class(api.key, version), context)
    return figures.errors


def test_the_error_of_an_answer_is_counted() -> None:
    rebalance = {"error_code": ErrorCode.rebalance_in_progress}
    assert count(HEARTBEAT, 4, rebalance) == {ErrorCode.rebalance_in_progress: 1}
    assert count(HEARTBEAT, 4, {"error_code": ErrorCode.none}) == {}


def test_errors_in_lists_of_lists_are_counted_each() -> None:
    unknown, none = ErrorCode.unknown_topic_or_partition, ErrorCode.none
    rows = [{"error_code": unknown}, {"error_code": none}, {"error_code": unknown}]
    values = {"topics": [{"partitions": rows}, {"partitions": []}, {"partitions": rows[:1]}]}
    assert count(OFFSET_COMMIT, 8, values) == {unknown: 3}
    assert count(OFFSET_COMMIT, 8, {"topics": []}) == {}


def test_what_is_encoded_already_is_not_looked_into() -> None:
    values = {"brokers": [{"node_id": 1}], "topics": EncodedArray([b"\0"])}
    assert count(METADATA, 12, values) == {}
