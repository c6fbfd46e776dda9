"""Where the partitions of a share group end, for its lag: asked of their leaders. A shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.broker.control_plane import NO_REPLICA, LogEndRequests
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.model import BrokerId, TopicPartition
from moldau.net.peer import Peer
from moldau.replication.partitions import Partitions


class ShareLag:
    """`connect` makes the way to a broker, which is closed again when it has answered."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        image: Callable[[], MetadataImage],
        partitions: Partitions,
        connect: Callable[[BrokerId], Peer],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._partitions = partitions
        self._questions = LogEndRequests(connect, f"broker-{broker_id}", replica_id=NO_REPLICA)

    async def find_ends(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks; those that are not told in time are left out."""
        image = self._image()
        ends: dict[TopicPartition, int] = {}
        elsewhere: dict[BrokerId, list[TopicPartition]] = {}
        for one in wanted:
            topic = image.topics.get(one.topic)
            state = None if topic is None else topic.find_partition(one.partition)
            if state is None or state.leader not in image.brokers:
                continue
            if state.leader == self._broker_id:
                partition = self._partitions.find(*one)
                if partition is not None:
                    ends[one] = partition.high_watermark
            else:
                elsewhere.setdefault(state.leader, []).append(one)
        if elsewhere:
            for key, told in (await self._questions.ask(elsewhere)).items():
                for end in told.values():
                    ends[key] = end.end_offset
        return ends
