"""ApiVersions: the table of what is served, also for clients that ask in a way nobody knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.broker.api import RequestContext
from moldau.broker.handlers import api_versions
from moldau.errors import ErrorCode, MalformedFrameError
from moldau.wire.apis import API_VERSIONS, SERVED
from moldau.wire.headers import RequestHeader
from moldau.wire.messages import encode_body, parse_response
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

VERSIONS = range(API_VERSIONS.served.first, API_VERSIONS.served.last + 1)


TELEMETRY = {71, 72}


def ask(
    version: int,
    name: str = "kafka-python",
    answered_in: int | None = None,
    *,
    is_collecting: bool = True,
) -> Any:
    values = {"client_software_name": name, "client_software_version": "3.0"} if version > 2 else {}
    body = b"" if version not in VERSIONS else encode_body(fit(request_class(18, version), values))
    telemetry = SimpleNamespace(
        note_software=lambda connection_id, name, version: None, is_collecting=is_collecting
    )
    services = SimpleNamespace(telemetry=telemetry)
    connection = SimpleNamespace(id="c")
    context = RequestContext(RequestHeader(18, version, 9, "test"), connection, services)
    chunks = api_versions.handle_frame(memoryview(body), 0, context)
    frame = memoryview(b"".join(map(bytes, chunks)))[4:]
    correlation_id, answer = parse_response(
        18, version if answered_in is None else answered_in, frame
    )
    assert correlation_id == 9
    return answer


@pytest.mark.parametrize("version", VERSIONS)
def test_every_served_api_is_named_with_its_versions(version: int) -> None:
    answer = ask(version)
    assert answer.error_code is ErrorCode.none
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert told == {api.key: api.advertised for api in SERVED}


@pytest.mark.parametrize("version", VERSIONS)
def test_telemetry_is_advertised_only_while_metrics_of_clients_are_collected(version: int) -> None:
    answer = ask(version, is_collecting=False)
    told = {row.api_key for row in answer.api_keys}
    assert told == {api.key for api in SERVED} - TELEMETRY


def test_an_unknown_version_is_answered_in_the_oldest_with_the_versions_of_this_api() -> None:
    answer = ask(99, answered_in=0)
    assert answer.error_code is ErrorCode.unsupported_version
    assert [(row.api_key, row.max_version) for row in answer.api_keys] == [(18, VERSIONS[-1])]


@pytest.mark.parametrize("name", ["", "-librdkafka", "a b", "moldau."])
def test_software_with_a_strange_name_is_an_invalid_request(name: str) -> None:
    assert ask(3, name).error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_written_by_hand_are_those_of_kio(version: int) -> None:
    """What was read of an answer is all there is in it."""
    answer = ask(version)
    body = api_versions._encode(version, ErrorCode.none, True)
    assert encode_body(answer) == body


BODY = b"\x07moldau\x043.0\0"


@pytest.mark.parametrize(
    "body", [*(BODY[:size] for size in range(len(BODY))), b"\0\0\0", b"\2\xff"]
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_request_that_is_none_is_malformed(version: int, body: bytes) -> None:
    context: Any = RequestContext(RequestHeader(18, version, 9, "test"), None, None)  # type: ignore[arg-type]
    with pytest.raises(MalformedFrameError):
        api_versions.handle_frame(memoryview(body), 0, context)
