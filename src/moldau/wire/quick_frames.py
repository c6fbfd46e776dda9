"""Chooses who reads the usual shape of frames: the module built from Cython, where there is one.

Otherwise nobody does, and every frame is read in full by `headers`, `produce_frame` and
`fetch_frame`, which also read whatever is not usual. A rule: bytes in, values or None out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import UUID

IMPLEMENTATION = "pure"

Read = TypeVar("Read")
UuidOf = Callable[[bytes], UUID | None]


def read_header(
    frame: memoryview, first_flexible: Mapping[int, int], header_class: type[Read]
) -> tuple[Read, int] | None:
    """The header, and the position of the body."""
    return None


def parse_produce(
    version: int,
    frame: memoryview,
    position: int,
    request_class: type[Read],
    topic_class: type[object],
    uuid_of: UuidOf,
) -> Read | None:
    """The request whose body starts at the position."""
    return None


def parse_fetch(
    version: int,
    frame: memoryview,
    position: int,
    request_class: type[Read],
    topic_class: type[object],
    partition_class: type[object],
    uuid_of: UuidOf,
) -> Read | None:
    """The request of a consumer whose body starts at the position."""
    return None


try:
    from moldau.wire import _frames_native
except ImportError:
    pass
else:
    IMPLEMENTATION = "native"
    read_header = _frames_native.read_header
    parse_produce = _frames_native.parse_produce
    parse_fetch = _frames_native.parse_fetch
