"""A member of a share group that says what it is told to: heartbeats alone, in raw requests."""

from __future__ import annotations

from typing import Any, Self

from kio.index import load_request_schema

from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.wire.shape import fit
from support.waiting import eventually
from support.wire_client import WireClient, read_response, request_frame

FIND_COORDINATOR, SHARE_GROUP_HEARTBEAT = 10, 76
COMING = (ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress)


class ShareMember:
    """Of a broker alone, which coordinates everything."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, member_id: str = "AAAAAAAAAAAAAAAAAAAABw"
    ) -> None:
        self._wire = WireClient(int(bootstrap.rpartition(":")[2]))
        self._group = group
        self._topic = topic
        self._member_id = member_id
        self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def join(self) -> set[TopicPartition]:
        """The partitions that it is given, when they are there."""
        self._ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(self._group,))
        answer = eventually(self._join_once, "the group's coordinator is not there")
        return self._assigned(answer) or eventually(
            lambda: self._assigned(self._beat(0, (self._topic,))), "the member has no partitions"
        )

    def _join_once(self) -> Any:
        """The answer; none while the topic that makes a coordinator is on its way."""
        answer = self._beat(0, (self._topic,))
        return None if answer.error_code in COMING else answer

    def _assigned(self, answer: Any) -> set[TopicPartition]:
        assert answer.error_code is ErrorCode.none, answer
        self.epoch = answer.member_epoch
        return {
            TopicPartition(self._topic, number)
            for row in answer.assignment.topic_partitions
            for number in row.partitions
        }

    def leave(self) -> None:
        assert self._beat(-1, None).error_code is ErrorCode.none

    def _beat(self, epoch: int, topics: tuple[str, ...] | None) -> Any:
        return self._ask(
            SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=topics,
        )

    def _ask(self, api_key: int, version: int, **values: object) -> Any:
        request = fit(load_request_schema(api_key, version), values)
        self._wire.send(request_frame(request))
        return read_response(api_key, version, self._wire.receive_frame())[1]
