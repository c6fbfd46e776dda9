"""Request and response headers, compared with kio's."""

from __future__ import annotations

import struct
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseV1
from kio.serial import entity_reader, entity_writer

from moldau.errors import MalformedFrameError
from moldau.wire.apis import FIRST_FLEXIBLE, NEVER
from moldau.wire.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_prefix,
    response_prefix,
)

from .strategies import integers_of, texts

pytestmark = pytest.mark.usefixtures("each_reader")

api_keys = st.sampled_from(sorted(FIRST_FLEXIBLE)) | integers_of(16)
request_headers = st.builds(
    RequestHeader, api_keys, integers_of(16), integers_of(32), st.none() | texts
)

METADATA_V12 = struct.pack(">hhih", 3, 12, 7, 3) + b"abc"


def _encoded(header: RequestHeader) -> bytes:
    flexible = header.api_version >= FIRST_FLEXIBLE.get(header.api_key, NEVER)
    header_class: type[HeaderV1 | HeaderV2] = HeaderV2 if flexible else HeaderV1
    entity = header_class(
        request_api_key=header.api_key,  # type: ignore[arg-type]
        request_api_version=header.api_version,  # type: ignore[arg-type]
        correlation_id=header.correlation_id,  # type: ignore[arg-type]
        client_id=header.client_id,
    )
    buffer = BytesIO()
    entity_writer(header_class)(buffer, entity)
    return buffer.getvalue()


@given(request_headers, st.binary(max_size=5))
def test_a_request_header_reads_as_kio_wrote_it(header: RequestHeader, body: bytes) -> None:
    encoded = _encoded(header)
    assert read_request_header(memoryview(encoded + body)) == (header, len(encoded))


@given(request_headers)
def test_a_request_header_cut_anywhere_is_malformed(header: RequestHeader) -> None:
    encoded = _encoded(header)
    for end in range(len(encoded)):
        with pytest.raises(MalformedFrameError):
            read_request_header(memoryview(encoded)[:end])


@given(st.binary(max_size=40))
def test_random_bytes_are_a_header_or_malformed(raw: bytes) -> None:
    try:
        _, position = read_request_header(memoryview(raw))
    except MalformedFrameError:
        return
    assert position <= len(raw)


@pytest.mark.parametrize("length", [-2, -32768, 32767, 4])
def test_a_client_id_of_impossible_length_is_malformed(length: int) -> None:
    with pytest.raises(MalformedFrameError):
        read_request_header(memoryview(struct.pack(">hhih", 3, 1, 7, length) + b"abc"))


def test_a_client_id_that_is_not_utf_8_is_malformed() -> None:
    with pytest.raises(MalformedFrameError):
        read_request_header(memoryview(struct.pack(">hhih", 3, 1, 7, 2) + b"\xff\xfe"))


def test_an_unknown_api_has_header_v1() -> None:
    frame = struct.pack(">hhih", 999, 32767, 7, 3) + b"abc" + b"body"
    assert read_request_header(memoryview(frame)) == (RequestHeader(999, 32767, 7, "abc"), 13)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    tagged = b"\x02" + b"\x00\x03xyz" + b"\x85\x01\x00"
    header, position = read_request_header(memoryview(METADATA_V12 + tagged + b"body"))
    assert header == RequestHeader(3, 12, 7, "abc")
    assert position == len(METADATA_V12 + tagged)


@pytest.mark.parametrize(
    "tagged",
    [
        b"\x01",
        b"\x01\x00",
        b"\x01\x00\x02x",
        b"\x01\x00\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff\x00",
    ],
)
def test_tagged_fields_past_the_end_are_malformed(tagged: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        read_request_header(memoryview(METADATA_V12 + tagged))


@pytest.mark.parametrize(
    ("api_key", "version", "header_class"),
    [(3, 8, ResponseV0), (3, 9, ResponseV1), (18, 2, ResponseV0), (18, 4, ResponseV0)],
)
def test_a_response_prefix_has_the_length_and_the_header_of_the_version(
    api_key: int, version: int, header_class: type[ResponseV0 | ResponseV1]
) -> None:
    prefix = response_prefix(api_key, version, 77, body_bytes=10)
    length = struct.unpack_from(">i", prefix)[0]
    header, header_bytes = entity_reader(header_class)(prefix, 4)
    assert length == len(prefix) - 4 + 10
    assert header.correlation_id == 77
    assert header_bytes == len(prefix) - 4


@given(st.sampled_from([(3, 8), (3, 9), (18, 4), (0, 13)]), integers_of(32))
def test_a_response_header_reads_as_it_was_written(api: tuple[int, int], correlation: int) -> None:
    prefix = response_prefix(*api, correlation, body_bytes=0)
    assert read_response_header(memoryview(prefix)[4:], *api) == (correlation, len(prefix) - 4)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1", b"\0\0\0\1\1\0\5"])
def test_a_response_header_cut_short_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        read_response_header(memoryview(frame), 3, 9)


@given(request_headers)
def test_a_request_prefix_reads_as_it_was_written(header: RequestHeader) -> None:
    prefix = request_prefix(*header, body_bytes=9)
    assert struct.unpack_from(">i", prefix)[0] == len(prefix) - 4 + 9
    assert read_request_header(memoryview(prefix)[4:]) == (header, len(prefix) - 4)
