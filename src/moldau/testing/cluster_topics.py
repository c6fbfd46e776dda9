"""Operations that delete a topic and make it again under its name, whoever is away meanwhile.

A topic's first life gets some records, which are void with its deletion. Its second life is worked
on by clients like any other topic: whatever a broker kept of the first life, and served as the
second one's, would show as bytes that differ between replicas, or as records that are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from moldau.cluster import layout
from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.testing.simulated_operator import OperationFamily, Operator
from moldau.testing.simulated_producers import SimulatedProducer
from moldau.wire.apis import CREATE_TOPICS, DELETE_TOPICS

if TYPE_CHECKING:
    from kio.schema.create_topics.v7 import CreateTopicsResponse
    from kio.schema.delete_topics.v6 import DeleteTopicsResponse

_CREATE_TOPICS: Final = (CREATE_TOPICS, 7)
_DELETE_TOPICS: Final = (DELETE_TOPICS, 6)
_ATTEMPTS: Final = 8
_PAUSE_SECONDS: Final = 0.4


async def _create(operator: Operator, topic: str) -> bool:
    """Whether it was made for sure; the name may not be free yet."""
    cluster = operator.cluster
    row = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": min(3, len(cluster.broker_ids)),
        "assignments": [],
        "configs": [{"name": "min.insync.replicas", "value": str(cluster.min_in_sync)}],
    }
    values: dict[str, object] = {"topics": [row], "timeout": 1500, "validate_only": False}
    for _ in range(_ATTEMPTS):
        code = await operator.ask_controller(_CREATE_TOPICS, values, _creation_codes)
        operator.note(f"{topic} is made: {code}")
        if code == 0:
            return True
        await operator.sleep(_PAUSE_SECONDS)
    return False


async def _delete(operator: Operator, topic: str) -> bool:
    row = {"name": topic, "topic_id": None}
    values: dict[str, object] = {"topics": [row], "timeout": 1500}
    code = await operator.ask_controller(_DELETE_TOPICS, values, _deletion_codes)
    operator.note(f"{topic} is deleted: {code}")
    return code in (0, ErrorCode.unknown_topic_or_partition.value)


def _creation_codes(answer: object) -> list[ErrorCode]:
    return [row.error_code for row in cast("CreateTopicsResponse", answer).topics]


def _deletion_codes(answer: object) -> list[ErrorCode]:
    return [row.error_code for row in cast("DeleteTopicsResponse", answer).responses]


async def _write_some(operator: Operator, partition: TopicPartition) -> None:
    producer = operator.cluster.workload.make_producer(
        f"first-{operator.name}", partition, SimulatedProducer
    )
    await producer.write(operator.random.randint(1, 6))


async def delete_and_make_again(operator: Operator) -> None:
    partition = TopicPartition(f"d{operator.random.randrange(1000)}", 0)
    if not await _create(operator, partition.topic):
        return
    await _write_some(operator, partition)
    await operator.sleep(operator.random.choice((0.0, 0.5, 2.0)))
    if not await _delete(operator, partition.topic):
        return
    await operator.sleep(operator.random.choice((0.0, 0.05, 1.0)))
    if await _create(operator, partition.topic) and await _is_heard_of(operator, partition.topic):
        operator.cluster.workload.serve(partition)


async def _is_heard_of(operator: Operator, topic: str) -> bool:
    """Whether nobody serves the first life any more: clients ask by name, and one that was paused
    through all of it would show them what is gone."""
    for _ in range(_ATTEMPTS):
        node = operator.cluster.world.service.find(layout.topic_path(topic))
        if node is None:
            return False
        wanted = layout.decode_topic(topic, node.data).topic_id
        brokers = [each.broker for each in operator.cluster.machines.values() if each.broker]
        known = [broker.services.image.topics.get(topic) for broker in brokers]
        if all(one is None or one.topic_id == wanted for one in known):
            return True
        await operator.sleep(_PAUSE_SECONDS)
    return False


TOPICS: Final = OperationFamily(
    name="topics",
    share=0.3,
    fewest=1,
    most=2,
    kinds={"delete and make again": (1, delete_and_make_again)},
)
