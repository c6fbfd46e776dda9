"""A member of a streams group that says what it is told to: heartbeats alone, in raw requests."""

from __future__ import annotations

from typing import Any, Self

from kio.index import load_request_schema

from moldau.errors import ErrorCode
from moldau.wire.shape import fit
from support.waiting import eventually
from support.wire_client import WireClient, read_response, request_frame

FIND_COORDINATOR, STREAMS_GROUP_HEARTBEAT = 10, 88
_NOT_YET = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)


class StreamsMember:
    """Of a broker alone, which coordinates everything. Its application copies a topic through a
    repartition topic into a store."""

    def __init__(self, bootstrap: str, group: str, topic: str, member_id: str = "member") -> None:
        self._wire = WireClient(int(bootstrap.rpartition(":")[2]))
        self._group = group
        self._topic = topic
        self._member_id = member_id
        self.repartition_topic = f"{group}-again-repartition"
        self.changelog_topic = f"{group}-store-changelog"
        self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def join(self) -> dict[str, tuple[int, ...]]:
        """The tasks that it is given, when it has some."""
        self._ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(self._group,))
        return eventually(self._report, "it has no tasks")

    def _report(self) -> dict[str, tuple[int, ...]]:
        """Joins, or lives; what it is told of tasks."""
        said: dict[str, object] = {}
        if self.epoch == 0:
            said = {
                "rebalance_timeout": 60_000,
                "topology": self._topology(),
                "process_id": "p",
                "active_tasks": (),
                "standby_tasks": (),
                "warmup_tasks": (),
            }
        answer = self.beat(self.epoch, **said)
        if answer.error_code in _NOT_YET:
            return {}
        assert answer.error_code is ErrorCode.none, answer
        self.epoch = answer.member_epoch
        return {one.subtopology_id: tuple(one.partitions) for one in answer.active_tasks or ()}

    def leave(self) -> None:
        assert self.beat(-1).error_code is ErrorCode.none

    def beat(self, epoch: int, **values: object) -> Any:
        said: dict[str, object] = {
            "group_id": self._group,
            "member_id": self._member_id,
            "member_epoch": epoch,
            "endpoint_information_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "topology": None,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
            "process_id": None,
            "user_endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            "shutdown_application": False,
        }
        return self._ask(STREAMS_GROUP_HEARTBEAT, 0, **said | values)

    def _topology(self) -> dict[str, object]:
        return {
            "epoch": 0,
            "subtopologies": [
                _subtopology(
                    "0",
                    source_topics=(self._topic,),
                    repartition_sink_topics=(self.repartition_topic,),
                ),
                _subtopology(
                    "1",
                    repartition_source_topics=[_topic(self.repartition_topic)],
                    state_changelog_topics=[_topic(self.changelog_topic)],
                ),
            ],
        }

    def _ask(self, api_key: int, version: int, **values: object) -> Any:
        request = fit(load_request_schema(api_key, version), values)
        self._wire.send(request_frame(request))
        return read_response(api_key, version, self._wire.receive_frame())[1]


def _subtopology(which: str, **values: object) -> dict[str, object]:
    return {
        "subtopology_id": which,
        "source_topics": (),
        "source_topic_regex": (),
        "state_changelog_topics": [],
        "repartition_sink_topics": (),
        "repartition_source_topics": [],
        "copartition_groups": [],
        **values,
    }


def _topic(name: str) -> dict[str, object]:
    return {"name": name, "partitions": 0, "replication_factor": 0, "topic_configs": []}
