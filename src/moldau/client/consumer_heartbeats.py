"""A consumer's heartbeats to the coordinator of a consumer group (KIP-848).

Carries out what the machine (`rules.consumer_membership`) wants told, and tells it the answers.
They have a connection of their own, so that they do not queue behind anything else. A shell of one
loop: each request has a task.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from moldau.client.cluster_client import ClusterClient
from moldau.client.coordinator_link import CoordinatorLink
from moldau.client.rules.consumer_instructions import SendConsumerHeartbeat, SendConsumerLeave
from moldau.client.rules.consumer_machine import Turns
from moldau.client.rules.consumer_membership import HeartbeatAnswer
from moldau.errors import ClientError, KafkaError
from moldau.net.port import Network
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import CONSUMER_GROUP_HEARTBEAT

if TYPE_CHECKING:
    from moldau.wire.shape import Values

_NOT_CHANGED: Final = -1
_UNSUPPORTED: Final = (
    "this broker does not serve group.protocol=consumer (Kafka does from 4.0 on, with the feature "
    "group.version=1 and `consumer` in group.coordinator.rebalance.protocols); set "
    "group.protocol=classic"
)


def make_member_id(random: Random) -> str:
    """A new one, as Kafka's clients write their ids."""
    made = UUID(int=random.getrandbits(128), version=4)
    return base64.urlsafe_b64encode(made.bytes).rstrip(b"=").decode()


class ConsumerHeartbeats:
    """The heartbeats of one consumer."""

    def __init__(
        self,
        client: ClusterClient,
        network: Network,
        group_id: str,
        tasks: TaskSupervisor,
        turns: Turns,
    ) -> None:
        self._group_id = group_id
        self._tasks = tasks
        self._turns = turns
        self._link = CoordinatorLink(client, group_id, own_network=network)
        self._under_way: asyncio.Task[None] | None = None

    async def close(self) -> None:
        await self._link.close()

    def perform(self, asked: SendConsumerHeartbeat | SendConsumerLeave) -> None:
        if isinstance(asked, SendConsumerHeartbeat):
            self._begin(asked)
        else:
            self._end(asked)

    def _begin(self, asked: SendConsumerHeartbeat) -> None:
        self._under_way = self._tasks.spawn(f"member of {self._group_id}", self._send(asked))

    def _end(self, asked: SendConsumerLeave) -> None:
        if self._under_way is not None:
            self._under_way.cancel()  # its answer means nothing any more
        self._tasks.spawn(f"member of {self._group_id}", self._leave(asked))

    async def _send(self, asked: SendConsumerHeartbeat) -> None:
        timeout_ms = asked.rebalance_timeout_ms
        values = {
            "group_id": self._group_id,
            "member_id": asked.member_id,
            "member_epoch": asked.epoch,
            "instance_id": asked.instance_id,
            "rack_id": asked.rack,
            "rebalance_timeout": _NOT_CHANGED if timeout_ms is None else timeout_ms,
            "subscribed_topic_names": None if asked.topics is None else sorted(asked.topics),
            "subscribed_topic_regex": asked.pattern,
            "server_assignor": asked.assignor,
            "topic_partitions": None if asked.owned is None else _rows_of(asked.owned),
        }
        try:
            answer = await self._beat(values)
        except (KafkaError, ClientError) as error:
            await self._link.note_failure(error)
            with self._turns as machine:
                machine.require_consumer_membership().heartbeat_failed(asked.beat, error)
        else:
            with self._turns as machine:
                machine.require_consumer_membership().heartbeat_answered(asked.beat, answer)

    async def _leave(self, asked: SendConsumerLeave) -> None:
        if asked.member_id:
            values = {
                "group_id": self._group_id,
                "member_id": asked.member_id,
                "member_epoch": asked.epoch,
                "instance_id": asked.instance_id,
                "topic_partitions": None,
            }
            with contextlib.suppress(KafkaError, ClientError):  # the session will time out
                await self._beat(values)
        if asked.is_last:
            with self._turns as machine:
                machine.left()

    async def _beat(self, values: Values) -> HeartbeatAnswer:
        return await self._link.beat(CONSUMER_GROUP_HEARTBEAT, values, _UNSUPPORTED)


def _rows_of(owned: Iterable[tuple[UUID, int]]) -> list[dict[str, object]]:
    indexes: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in sorted(owned):
        indexes[topic_id].append(index)
    return [{"topic_id": topic_id, "partitions": tuple(some)} for topic_id, some in indexes.items()]
