"""The small parts of messages: varints, strings, ids, counts and tagged fields (KIP-482).

Readers take a frame and a position and return a value and the next position. Past the end of the
frame they raise IndexError, struct.error or MalformedFrameError; whoever reads a whole message
turns them all into MalformedFrameError (READ_ERRORS). A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from moldau.errors import MalformedFrameError

READ_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError)

UUID_BYTES: Final = 16

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1
_ZERO_UUID_BYTES: Final = bytes(UUID_BYTES)
_REMEMBERED_UUIDS: Final = 4096
_REMEMBERED_VARINTS: Final = 1024

_MORE: Final = 0x80
_SEVEN_BITS: Final = 0x7F
_MAX_SHIFT: Final = 28

_SMALL: Final = tuple(bytes((value,)) for value in range(128))


def read_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """The value and the position after it. All 35 bits of five bytes count, as for kio; Kafka
    drops the upper three, but no client sets them, and guard and kio must not disagree."""
    byte = frame[position]
    position += 1
    if byte < _MORE:
        return byte, position
    value = byte & _SEVEN_BITS
    for shift in range(7, _MAX_SHIFT + 1, 7):
        byte = frame[position]
        position += 1
        value |= (byte & _SEVEN_BITS) << shift
        if byte < _MORE:
            return value, position
    raise MalformedFrameError(f"varint of more than five bytes before {position}")


@lru_cache(maxsize=_REMEMBERED_VARINTS)
def encode_varint(value: int) -> bytes:
    """The shortest encoding of a value of up to 32 bits. Remembered: sizes of batches repeat."""
    if value < _MORE:
        return _SMALL[value]
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """The position after a section of tagged fields, none of which is looked at."""
    count, position = read_varint(frame, position)
    for _ in range(count):
        _, position = read_varint(frame, position)
        size, position = read_varint(frame, position)
        position += size
    if position > len(frame):
        raise MalformedFrameError(f"tagged fields end at {position} of {len(frame)} bytes")
    return position


def read_tagged_fields(frame: memoryview, position: int) -> Iterator[tuple[int, int, int]]:
    """Tag, start and end of each field, the end being inside the frame; last comes (-1, end, end)
    with the position after the section."""
    count, position = read_varint(frame, position)
    for _ in range(count):
        tag, position = read_varint(frame, position)
        size, start = read_varint(frame, position)
        position = start + size
        if position > len(frame):
            raise MalformedFrameError(f"tagged field ends at {position} of {len(frame)} bytes")
        yield tag, start, position
    yield -1, position, position


def read_compact_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    """A string with a varint for its length; flexible versions have it."""
    length, start = frame[position], position + 1
    if length >= _MORE:
        length, start = read_varint(frame, position)
    if not length:
        return None, start
    end = start + length - 1
    if end > len(frame):
        raise MalformedFrameError(f"string ends at {end} of {len(frame)} bytes")
    return str(frame[start:end], "utf-8"), end


def read_legacy_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    """A string with 16 bits for its length; older versions have it."""
    length: int = _INT16.unpack_from(frame, position)[0]
    start = position + 2
    end = start + length
    if length >= 0 and end <= len(frame):
        return str(frame[start:end], "utf-8"), end
    if length == _NULL:
        return None, start
    raise MalformedFrameError(f"string of {length} bytes ends at {end} of {len(frame)}")


def read_compact_bytes(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Bytes with a varint for their length, as a slice of the frame."""
    length, start = frame[position], position + 1
    if length >= _MORE:
        length, start = read_varint(frame, position)
    if not length:
        return None, start
    end = start + length - 1
    if end > len(frame):
        raise MalformedFrameError(f"bytes end at {end} of {len(frame)}")
    return frame[start:end], end


def read_legacy_bytes(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Bytes with 32 bits for their length, as a slice of the frame."""
    length: int = _INT32.unpack_from(frame, position)[0]
    start = position + 4
    end = start + length
    if length >= 0 and end <= len(frame):
        return frame[start:end], end
    if length == _NULL:
        return None, start
    raise MalformedFrameError(f"{length} bytes end at {end} of {len(frame)}")


def read_compact_count(frame: memoryview, position: int, min_bytes: int) -> tuple[int, int]:
    """Number of elements of an array, each of which takes at least so many bytes."""
    count, start = frame[position], position + 1
    if count >= _MORE:
        count, start = read_varint(frame, position)
    if count and (count - 1) * min_bytes <= len(frame) - start:
        return count - 1, start
    raise _impossible_count(count - 1, frame, start)


def read_legacy_count(frame: memoryview, position: int, min_bytes: int) -> tuple[int, int]:
    """Number of elements of an array, each of which takes at least so many bytes."""
    count: int = _INT32.unpack_from(frame, position)[0]
    start = position + 4
    if count >= 0 and count * min_bytes <= len(frame) - start:
        return count, start
    raise _impossible_count(count, frame, start)


def _impossible_count(count: int, frame: memoryview, position: int) -> MalformedFrameError:
    return MalformedFrameError(f"array of {count} elements in {len(frame) - position} bytes")


class Encoding(NamedTuple):
    """How a version reads what flexible versions write differently."""

    string: Callable[[memoryview, int], tuple[str | None, int]]
    byte_slice: Callable[[memoryview, int], tuple[memoryview | None, int]]
    array_count: Callable[[memoryview, int, int], tuple[int, int]]


LEGACY: Final = Encoding(read_legacy_string, read_legacy_bytes, read_legacy_count)
COMPACT: Final = Encoding(read_compact_string, read_compact_bytes, read_compact_count)


def read_uuid(frame: memoryview, position: int) -> tuple[UUID | None, int]:
    """An id; the zero id, which stands for none, is None."""
    end = position + UUID_BYTES
    raw = bytes(frame[position:end])
    if len(raw) < UUID_BYTES:
        raise MalformedFrameError(f"id ends at {end} of {len(frame)} bytes")
    return uuid_of(raw), end


@lru_cache(maxsize=_REMEMBERED_UUIDS)
def uuid_of(raw: bytes) -> UUID | None:
    """Remembered, since making a UUID costs more than the rest of a request."""
    return None if raw == _ZERO_UUID_BYTES else UUID(bytes=raw)


def encode_uuid(value: UUID | None) -> bytes:
    return _ZERO_UUID_BYTES if value is None else value.bytes


def encode_compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    raw = value.encode()
    return encode_varint(len(raw) + 1) + raw


def encode_legacy_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return _INT16.pack(len(raw)) + raw


def encode_compact_count(count: int) -> bytes:
    return encode_varint(count + 1)


def encode_legacy_count(count: int) -> bytes:
    return _INT32.pack(count)
