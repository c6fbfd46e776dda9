"""Operations that move partitions about: reassignments, elections, partitions added.

Reassignments change the number of replicas too, take leadership away from who has it, are taken
back, cancelled, or sent elsewhere in the middle. Nobody promises an operator that a request comes
about. What the cluster promises is that no record is lost by it, that whatever began to move
arrives, and that nothing is left behind on disks (`cluster_observer.find_flaw`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.testing.simulated_operator import OperationFamily, Operator
from moldau.wire.apis import ALTER_PARTITION_REASSIGNMENTS, CREATE_PARTITIONS, ELECT_LEADERS

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v0.response import (
        AlterPartitionReassignmentsResponse,
    )
    from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
    from kio.schema.elect_leaders.v2.response import ElectLeadersResponse

_CREATE_PARTITIONS: Final = (CREATE_PARTITIONS, 3)
_ELECT_LEADERS: Final = (ELECT_LEADERS, 2)
_ALTER_REASSIGNMENTS: Final = (ALTER_PARTITION_REASSIGNMENTS, 0)
_PREFERRED: Final = 0
_TIMEOUT_MS: Final = 1500
_PAUSES: Final = (0.05, 0.3, 1.2)
"""At most so long is the pause between the two halves of a move that is changed on its way: the
shortest is over before what was said on a long link has arrived."""

_MOST_PARTITIONS: Final = 4


# What is asked for


async def reassign(
    operator: Operator, partition: TopicPartition, replicas: Sequence[int] | None
) -> None:
    await _reassign_all(operator, {partition: replicas})


async def _reassign_all(
    operator: Operator, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    """In one request."""
    for partition, replicas in targets.items():
        operator.note(f"{partition} to {'where it was' if replicas is None else replicas}")
    rows = [
        {
            "name": partition.topic,
            "partitions": [{"partition_index": partition.partition, "replicas": replicas}],
        }
        for partition, replicas in targets.items()
    ]
    values: dict[str, object] = {"timeout": _TIMEOUT_MS, "topics": rows}
    moves = operator.cluster.history.moves
    asked = [moves.ask(*target) for target in targets.items()]
    code = await operator.ask_controller(_ALTER_REASSIGNMENTS, values, _reassignment_codes)
    for move in asked:
        # Of several, some may have been refused and others not.
        in_doubt = operator.is_in_doubt or (bool(code) and len(asked) > 1)
        moves.answer(move, code, is_in_doubt=in_doubt)
    operator.note(f"moved: {code}")


def _reassignment_codes(answer: object) -> list[ErrorCode]:
    told = cast("AlterPartitionReassignmentsResponse", answer)
    rows = (row for topic in told.responses for row in topic.partitions)
    return [told.error_code, *(row.error_code for row in rows)]


def _election_codes(answer: object) -> list[ErrorCode]:
    told = cast("ElectLeadersResponse", answer)
    rows = (row for topic in told.replica_election_results for row in topic.partition_result)
    return [told.error_code, *(row.error_code for row in rows)]


def _creation_codes(answer: object) -> list[ErrorCode]:
    return [row.error_code for row in cast("CreatePartitionsResponse", answer).results]


# What is chosen


def _some_partition(operator: Operator) -> TopicPartition:
    """Any, those of internal topics too; mostly one that clients write to."""
    observer = operator.cluster.observer
    if operator.random.random() < 0.75:
        return operator.random.choice(operator.cluster.partitions)
    return operator.random.choice(sorted(observer.replicas))


def _some_target(operator: Operator, partition: TopicPartition) -> list[int]:
    """Other replicas, more or fewer, in another order; in half of the cases without the leader."""
    cluster, random = operator.cluster, operator.random
    state = cluster.observer.states.get(partition)
    brokers = list(cluster.broker_ids)
    fewest = min(cluster.min_in_sync, len(brokers))
    if state is not None and state.leader in brokers and random.random() < 0.5:
        without = [broker for broker in brokers if broker != state.leader]
        brokers = without if len(without) >= fewest else brokers
    count = random.randint(fewest, len(brokers))
    return random.sample(brokers, count)


def _present_replicas(operator: Operator, partition: TopicPartition) -> list[int]:
    return list(operator.cluster.observer.replicas.get(partition, ()))


async def _pause(operator: Operator) -> None:
    await operator.sleep(operator.random.uniform(0.0, operator.random.choice(_PAUSES)))


# The operations


async def move(operator: Operator) -> None:
    partition = _some_partition(operator)
    await reassign(operator, partition, _some_target(operator, partition))


async def move_all(operator: Operator) -> None:
    """All partitions that clients write to, and a second time while they are on their way."""
    for _ in range(2):
        partitions = list(operator.cluster.partitions)
        await _reassign_all(operator, {one: _some_target(operator, one) for one in partitions})
        await _pause(operator)


async def move_and_back(operator: Operator) -> None:
    """Before it has arrived, or soon after."""
    partition = _some_partition(operator)
    present = _present_replicas(operator, partition)
    await reassign(operator, partition, _some_target(operator, partition))
    await _pause(operator)
    await reassign(operator, partition, present)


async def move_to_and_fro(operator: Operator) -> None:
    """One replica leaves and comes back, again and again."""
    partition = _some_partition(operator)
    present = _present_replicas(operator, partition)
    if len(present) <= operator.cluster.min_in_sync:
        present = operator.random.sample(list(operator.cluster.broker_ids), len(present) + 1)
    leaving = operator.random.choice(present)
    fewer = [broker for broker in present if broker != leaving]
    for _ in range(operator.random.randint(2, 5)):
        await reassign(operator, partition, fewer)
        await _pause(operator)
        await reassign(operator, partition, present)
        await _pause(operator)


async def move_and_cancel(operator: Operator) -> None:
    partition = _some_partition(operator)
    await reassign(operator, partition, _some_target(operator, partition))
    await _pause(operator)
    await reassign(operator, partition, None)


async def redirect(operator: Operator) -> None:
    """To another place while it is on its way."""
    partition = _some_partition(operator)
    await reassign(operator, partition, _some_target(operator, partition))
    await _pause(operator)
    await reassign(operator, partition, _some_target(operator, partition))


async def elect_preferred(operator: Operator) -> None:
    """For all partitions."""
    values: dict[str, object] = {
        "election_type": _PREFERRED,
        "topic_partitions": None,
        "timeout": _TIMEOUT_MS,
    }
    code = await operator.ask_controller(_ELECT_LEADERS, values, _election_codes)
    operator.note(f"elected: {code}")


async def add_partition(operator: Operator) -> None:
    cluster = operator.cluster
    topic = cluster.partitions[0].topic
    count = sum(partition.topic == topic for partition in cluster.observer.replicas) + 1
    if count > _MOST_PARTITIONS:
        return
    values: dict[str, object] = {
        "topics": [{"name": topic, "count": count, "assignments": None}],
        "timeout": _TIMEOUT_MS,
        "validate_only": False,
    }
    code = await operator.ask_controller(_CREATE_PARTITIONS, values, _creation_codes)
    operator.note(f"{topic} to {count} partitions: {code}")
    partition = TopicPartition(topic, count - 1)
    if partition in cluster.observer.replicas:  # also where no answer came
        cluster.workload.serve(partition)


MOVES: Final = OperationFamily(
    name="moves",
    share=0.9,
    fewest=2,
    most=7,
    kinds={
        "move": (6, move),
        "move all": (3, move_all),
        "move and back": (6, move_and_back),
        "move to and fro": (5, move_to_and_fro),
        "move and cancel": (5, move_and_cancel),
        "redirect": (4, redirect),
        "elect preferred leaders": (6, elect_preferred),
        "add a partition": (2, add_partition),
    },
)
