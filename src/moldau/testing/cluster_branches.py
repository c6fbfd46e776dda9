"""Operations that branch a topic while leaders die and move, and what a branch has to be.

A branch has the records of its origin up to some offset, byte for byte, and its own behind them
(BRA-2). Up to where is up to its leader: at least as far as this one knew of what was promised, if
it has lived on since. What was promised of the origin up to there is then promised of the branch,
and clients work on it as on any other topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from moldau.cluster import layout
from moldau.cluster.rules.metadata_image import BranchOrigin
from moldau.cluster.rules.topic_creation import USE_DEFAULT
from moldau.errors import ErrorCode
from moldau.model import BRANCH_OF, TopicPartition
from moldau.testing.cluster_history import ClusterHistory, StoredBatch
from moldau.testing.cluster_observer import ClusterObserver
from moldau.testing.replica_logs import read_log
from moldau.testing.simulated_machine import DATA_FOLDER, SimulatedMachine, World
from moldau.testing.simulated_operator import OperationFamily, Operator
from moldau.testing.simulated_workload import TOPIC
from moldau.testing.virtual_loop import SimulatedProcess
from moldau.wire.apis import CREATE_TOPICS, DELETE_TOPICS

if TYPE_CHECKING:
    from kio.schema.create_topics.v7 import CreateTopicsResponse
    from kio.schema.delete_topics.v6 import DeleteTopicsResponse

_CREATE_TOPICS: Final = (CREATE_TOPICS, 7)
_DELETE_TOPICS: Final = (DELETE_TOPICS, 6)
_ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.4


class _Led(NamedTuple):
    """A partition as its leader holds it."""

    process: SimulatedProcess
    broker_id: int
    stable_end: int  # committed, as far as the leader knows, and promised


# The operations


async def branch(operator: Operator) -> None:
    """Of the main topic, or of a branch of it."""
    source = operator.random.choice((TOPIC, TOPIC, *_branches(operator)))
    name = f"{source}.b{operator.random.randrange(1000)}"
    led = _look_at_leaders(operator, source)
    if not await _create(operator, source, name):
        return
    for number, before in sorted(led.items()):
        _promise(operator, TopicPartition(source, number), TopicPartition(name, number), before)
    served = operator.random.choice(sorted(led)) if led else 0
    operator.cluster.workload.serve(TopicPartition(name, served))


async def branch_and_delete(operator: Operator) -> None:
    """What both share stays with the origin."""
    name = f"{TOPIC}.d{operator.random.randrange(1000)}"
    await _create(operator, TOPIC, name)
    await operator.sleep(operator.random.choice((0.0, 0.5, 2.0)))
    values: dict[str, object] = {"topics": [{"name": name, "topic_id": None}], "timeout": 1500}
    code = await operator.ask_controller(_DELETE_TOPICS, values, _deletion_codes)
    operator.note(f"{name} is deleted: {code}")


async def _create(operator: Operator, source: str, name: str) -> bool:
    """Whether it was made for sure, and by an answer to this operator."""
    row = {
        "name": name,
        "num_partitions": USE_DEFAULT,
        "replication_factor": USE_DEFAULT,
        "assignments": [],
        "configs": [{"name": BRANCH_OF, "value": source}],
    }
    values: dict[str, object] = {"topics": [row], "timeout": 1500, "validate_only": False}
    for _ in range(_ATTEMPTS):
        code = await operator.ask_controller(_CREATE_TOPICS, values, _creation_codes)
        operator.note(f"{name} is branched: {code}")
        if code == 0:
            return True
        await operator.sleep(_PAUSE_SECONDS)
    return False


def _creation_codes(answer: object) -> list[ErrorCode]:
    return [row.error_code for row in cast("CreateTopicsResponse", answer).topics]


def _deletion_codes(answer: object) -> list[ErrorCode]:
    return [row.error_code for row in cast("DeleteTopicsResponse", answer).responses]


def _branches(operator: Operator) -> list[str]:
    """Those that clients work on."""
    names = {one.topic for one in operator.cluster.partitions}
    return sorted(name for name in names if name.startswith(f"{TOPIC}.b"))


def _look_at_leaders(operator: Operator, topic: str) -> dict[int, _Led]:
    cluster = operator.cluster
    found = {}
    for machine, held in cluster.workload.leaders():
        if held.topic_partition.topic == topic and machine.process is not None:
            promised = cluster.history.promised_end(held.topic_partition)
            end = min(promised, held.last_stable_offset)
            found[held.topic_partition.partition] = _Led(machine.process, machine.broker_id, end)
    return found


def _promise(
    operator: Operator, source: TopicPartition, target: TopicPartition, before: _Led
) -> None:
    """Whoever led the origin when the branch was asked for leads it, and knew of so much."""
    cluster = operator.cluster
    machine, state = cluster.machines[before.broker_id], cluster.observer.states.get(target)
    if state is None or state.leader != before.broker_id or machine.process is not before.process:
        return
    broker = machine.broker
    if broker is not None and broker.services.partitions.find(*target) is not None:
        operator.note(f"{target} has what was promised of {source} up to {before.stable_end}")
        cluster.history.branch(source, target, before.stable_end)


BRANCHES: Final = OperationFamily(
    name="branches",
    share=0.3,
    fewest=1,
    most=2,
    kinds={"branch": (4, branch), "branch and delete": (1, branch_and_delete)},
)


# What a branch has to be


class BranchedCluster(Protocol):
    """What is looked at; `SimulatedCluster` is one."""

    world: World
    observer: ClusterObserver
    history: ClusterHistory

    @property
    def machines(self) -> Mapping[int, SimulatedMachine]: ...


def check_branches(cluster: BranchedCluster) -> None:
    """At the end, when all replicas are equal: each branch against its origin."""
    for name, origin in _list_origins(cluster):
        for number in range(origin.partitions):
            source, target = TopicPartition(origin.topic, number), TopicPartition(name, number)
            fault = find_branch_fault(
                _read(cluster, target),
                _read(cluster, source),
                origin.newest_epoch,
                cluster.history.kept_end(source),
            )
            if fault is not None:
                cluster.history.report("BRA-2", f"{target}, a branch of {source}: {fault}")


def _list_origins(cluster: BranchedCluster) -> Iterator[tuple[str, BranchOrigin]]:
    for name in sorted({partition.topic for partition in cluster.observer.replicas}):
        node = cluster.world.service.find(layout.topic_path(name))
        origin = None if node is None else layout.decode_topic(name, node.data).origin
        if origin is not None:
            yield name, origin


def _read(cluster: BranchedCluster, partition: TopicPartition) -> list[StoredBatch]:
    replica = cluster.observer.replicas[partition][0]
    return read_log(cluster.machines[replica].files, DATA_FOLDER, partition)


def find_branch_fault(
    branch_log: Sequence[StoredBatch],
    origin_log: Sequence[StoredBatch],
    newest_epoch: int,
    kept_end: int | None,
) -> str | None:
    """Why a log is no branch of another; None when it is. A power loss of all machines may have
    taken what the origin had behind `kept_end`, and the branch has it still."""
    taken = [batch for batch in branch_log if batch.leader_epoch <= newest_epoch]
    if list(branch_log[: len(taken)]) != taken:
        return f"a batch of epoch {newest_epoch} or before is behind later ones"
    if kept_end is not None:
        taken = [batch for batch in taken if batch.end_offset <= kept_end]
    for number, batch in enumerate(taken):
        if number >= len(origin_log):
            return f"{batch[:3]} is not there"
        if batch != origin_log[number]:
            return f"{batch[:3]} is not {origin_log[number][:3]}, or other bytes"
    return None
