"""Many reads in one request: ZooKeeper's `multiRead`, which kazoo does not know.

Each request costs two steps of kazoo's thread, and on a busy loop it waits for its turn in each of
them; a thousand partitions in ten requests are read in the time of ten. Servers have it since 3.6;
an older one ends the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetData,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

from moldau.coordination.zookeeper_client import Result, Stat, StoreClient, ask

READS_AT_ONCE = 100
"""A node has up to 1 MB, most have a hundred bytes."""

Found = tuple[bytes | None, Stat] | Exception
"""A node as `get_async` gives it, or why there is none."""

_FAILURE = -1
_GET_DATA = multiheader_struct.pack(GetData.type, False, -1)
_END = multiheader_struct.pack(-1, True, -1)


@dataclass(frozen=True, slots=True)
class MultiRead:
    """A request as kazoo's own: it asks for the type, for the bytes, and for their meaning."""

    paths: tuple[str, ...]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for path in self.paths:
            parts += (_GET_DATA, GetData(path, None).serialize())
        return b"".join((*parts, _END))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Found]:
        found: list[Found] = []
        while True:
            kind, is_done, _ = multiheader_struct.unpack_from(data, offset)
            offset += multiheader_struct.size
            if is_done:
                return found
            if kind == _FAILURE:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                found.append(EXCEPTIONS[code]())
            else:
                content, offset = read_buffer(data, offset)
                found.append((content, ZnodeStat._make(stat_struct.unpack_from(data, offset))))
                offset += stat_struct.size


def read_many(client: StoreClient, paths: Sequence[str]) -> Result[list[Found]]:
    return ask(client, MultiRead(tuple(paths)))
