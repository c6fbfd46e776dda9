"""ListOffsets as a follower asks it of its leader: where the log begins and ends.

Answers for one question about one partition, in version 7. A rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from moldau.errors import MalformedFrameError
from moldau.wire.apis import LIST_OFFSETS
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

if TYPE_CHECKING:
    from kio.schema.list_offsets.v7.response import ListOffsetsResponse

_VERSION: Final = 7


class OffsetAnswer(NamedTuple):
    """An offset, or why there is none."""

    error_code: int
    offset: int


def encode_offset_question(
    topic: str,
    partition: int,
    *,
    replica_id: int,
    leader_epoch: int,
    timestamp: int,
    client_id: str,
) -> bytes:
    """A whole request frame."""
    wanted = {
        "partition_index": partition,
        "current_leader_epoch": leader_epoch,
        "timestamp": timestamp,
    }
    values = {
        "replica_id": replica_id,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [wanted]}],
    }
    return encode_request(fit(request_class(LIST_OFFSETS.key, _VERSION), values), 0, client_id)


def parse_offset_answer(frame: memoryview) -> OffsetAnswer:
    """The answer about the one partition; raises MalformedFrameError."""
    answer = cast("ListOffsetsResponse", parse_response(LIST_OFFSETS.key, _VERSION, frame)[1])
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        raise MalformedFrameError("an answer about other partitions than the one asked for")
    found = answer.topics[0].partitions[0]
    return OffsetAnswer(found.error_code.value, found.offset)
