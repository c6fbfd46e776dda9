"""ApiVersions, versions 0 to 4.

Tells a client which APIs and versions this broker serves; derived from the dispatch table.

v1 adds the throttle time; v2 sends it after the answer; v3 is flexible and names the client's
software; v4 fixes supported features whose lowest version is 0.

A version that is not known is answered in the layout of version 0 with UNSUPPORTED_VERSION, so that
a newer client can read it and ask again (KIP-511). The answer's header is always version 0.
Answers are the same for every client, so each version is encoded once.
"""

from __future__ import annotations

import re
from functools import cache

from moldau.broker.api import ServedApi, serves
from moldau.broker.features import SUPPORTED_FEATURES
from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode
from moldau.net.port import Chunk
from moldau.wire.apis import API_VERSIONS
from moldau.wire.headers import response_prefix
from moldau.wire.messages import encode_body, parse_request
from moldau.wire.shape import fit
from moldau.wire.versions import response_class

API = serves(API_VERSIONS, by_hand=True)

_DROPPABLE = frozenset(
    {"throttle_time", "supported_features", "finalized_features", "finalized_features_epoch"}
)
_FIRST_WITH_FEATURES_FROM_0 = 4
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def handle_frame(frame: memoryview, position: int, context: RequestContext) -> list[Chunk]:
    version = context.version
    error = ErrorCode.none
    if not API.first <= version <= API.last:
        version, error = 0, ErrorCode.unsupported_version
    elif version >= 3 and not _note_software(frame, position, context):
        error = ErrorCode.invalid_request
    body = _encode(context.services.apis(), version, error)
    return [response_prefix(API.key, version, context.header.correlation_id, len(body)) + body]


def _note_software(frame: memoryview, position: int, context: RequestContext) -> bool:
    """Whether the client names its software as it should; then that is remembered (KIP-714)."""
    request = parse_request(API.key, context.version, frame, position)
    fields = ("client_software_name", "client_software_version")
    name, version = (getattr(request, field) for field in fields)
    if not _SOFTWARE_NAME.match(name) or not _SOFTWARE_NAME.match(version):
        return False
    context.services.telemetry.note_software(context.connection.id, name, version)
    return True


@cache
def _encode(apis: tuple[ServedApi, ...], version: int, error: ErrorCode) -> bytes:
    shown = [api for api in apis if error is ErrorCode.none or api.key == API.key]
    values = {
        "error_code": error,
        "api_keys": [
            {"api_key": api.key, "min_version": api.advertised_first, "max_version": api.last}
            for api in sorted(shown, key=lambda api: api.key)
        ],
        "throttle_time": 0,
        "supported_features": [
            {"name": one.name, "min_version": one.first, "max_version": one.last}
            for one in SUPPORTED_FEATURES
            # Clients of version 3 take a lowest version of 0 for a fault (KAFKA-17011).
            if one.first > 0 or version >= _FIRST_WITH_FEATURES_FROM_0
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": one.name, "max_version_level": one.last, "min_version_level": one.last}
            for one in SUPPORTED_FEATURES
        ],
    }
    return encode_body(fit(response_class(API.key, version), values, _DROPPABLE))
