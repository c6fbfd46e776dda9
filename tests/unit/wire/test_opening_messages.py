"""The messages that clients begin with, compared with kio in every version that is spoken."""

from __future__ import annotations

import contextlib
from dataclasses import fields, is_dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from moldau.errors import MalformedFrameError, ShapeError
from moldau.wire.apis import API_VERSIONS, APIS, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, Api
from moldau.wire.opening_messages import MESSAGES, encode_opening, parse_opening
from moldau.wire.shape import millis
from moldau.wire.versions import request_class, response_class

from .strategies import damaged, messages, written_by_kio

SPOKEN = [
    pytest.param(APIS[key], version, id=f"{APIS[key].name}-{version}")
    for key in MESSAGES
    for version in range(APIS[key].spoken.first, APIS[key].spoken.last + 1)
]
every_version = pytest.mark.parametrize(("api", "version"), SPOKEN)
NOTHING: frozenset[str] = frozenset()


def as_values(entity: Any) -> Any:
    """As `fit` is told: names and plain values, times in milliseconds."""
    if isinstance(entity, timedelta):
        return millis(entity)
    if is_dataclass(entity):
        return {field.name: as_values(getattr(entity, field.name)) for field in fields(entity)}
    if isinstance(entity, tuple):
        return [as_values(one) for one in entity]
    return entity


def is_as_kio_read_it(found: Any, entity: Any) -> bool:
    """All that is read is what kio has, and nothing is missing but times and other features."""
    if isinstance(found, SimpleNamespace):
        ours = vars(found)
        for field in fields(entity):
            known = getattr(entity, field.name)
            if field.name in ours:
                assert is_as_kio_read_it(ours[field.name], known), field.name
            elif field.name == "throttle_time":
                assert ours["throttle_time_ms"] == millis(known)
            else:
                assert "tag" in field.metadata, field.name
        return ours.keys() - {field.name for field in fields(entity)} <= {"throttle_time_ms"}
    if isinstance(found, tuple):
        return len(found) == len(entity) and all(map(is_as_kio_read_it, found, entity))
    return bool(found == entity)


@every_version
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_request_is_written_as_kio_writes_it(api: Api, version: int, data: st.DataObject) -> None:
    request = data.draw(messages(request_class(api.key, version)))
    written = encode_opening(api, version, as_values(request), NOTHING)
    assert written == written_by_kio(request)


@every_version
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_answer_is_read_as_kio_wrote_it(api: Api, version: int, data: st.DataObject) -> None:
    response = data.draw(messages(response_class(api.key, version)))
    frame = memoryview(b"head" + written_by_kio(response) + b"behind")
    assert is_as_kio_read_it(parse_opening(api, version, frame, 4), response)


@every_version
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_damaged_answer_is_read_or_malformed(api: Api, version: int, data: st.DataObject) -> None:
    response = data.draw(messages(response_class(api.key, version)))
    raw = data.draw(damaged(written_by_kio(response)))
    with contextlib.suppress(MalformedFrameError):
        parse_opening(api, version, memoryview(raw), 0)


def test_what_a_version_cannot_say_is_refused_unless_it_may_be_left_out() -> None:
    values = {"topics": None, "allow_auto_topic_creation": True}
    with pytest.raises(ShapeError, match="version 3 cannot say allow_auto_topic_creation=True"):
        encode_opening(METADATA, 3, values, NOTHING)
    assert encode_opening(METADATA, 3, values, frozenset(values)) == b"\xff\xff\xff\xff"
    with pytest.raises(ShapeError, match="version 0 cannot say nonsense=1"):
        encode_opening(API_VERSIONS, 0, {"nonsense": 1}, NOTHING)


def test_what_is_missing_or_of_another_kind_is_refused() -> None:
    with pytest.raises(ShapeError, match="has to say isolation_level"):
        encode_opening(LIST_OFFSETS, 2, {"replica_id": -1, "topics": []}, NOTHING)
    values = {"transactional_id": None, "transaction_timeout": "soon"}
    with pytest.raises(ShapeError, match="InitProducerIdRequest v0"):
        encode_opening(INIT_PRODUCER_ID, 0, values, NOTHING)
    with pytest.raises(ShapeError, match="no name that is null"):
        encode_opening(METADATA, 9, {"topics": [{"name": None}]}, NOTHING)


def test_an_error_that_is_newer_than_this_client_is_an_error() -> None:
    raw = memoryview(b"\x7f\x00" + b"\x00\x00\x00\x00")
    assert parse_opening(API_VERSIONS, 0, raw, 0).error_code is ErrorCode.unknown_server_error
