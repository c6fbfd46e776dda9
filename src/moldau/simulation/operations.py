"""Operations on a simulated cluster: moves, elections, topics, branches. A shell."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from moldau.cluster import znodes
from moldau.cluster.rules.metadata_image import BranchOrigin
from moldau.cluster.rules.topic_creation import USE_DEFAULT
from moldau.errors import ClientError, ErrorCode, KafkaError
from moldau.model import BRANCH_OF, TopicPartition
from moldau.simulation.clients import Client, ClientSetup, SimulatedProducer
from moldau.simulation.fault_plan import PlannedOperation, draw_operations, has_operations
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.machine import DATA_FOLDER, SimulatedMachine, World, read_log
from moldau.simulation.observer import ClusterObserver
from moldau.simulation.virtual_loop import SimulatedProcess
from moldau.simulation.workload import TOPIC, Workload
from moldau.wire.apis import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    Api,
)

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v0.response import (
        AlterPartitionReassignmentsResponse,
    )
    from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
    from kio.schema.create_topics.v7 import CreateTopicsResponse
    from kio.schema.delete_topics.v6 import DeleteTopicsResponse
    from kio.schema.elect_leaders.v2.response import ElectLeadersResponse


# Somebody who operates a simulated cluster: a client that asks the controller, and what it sees.
#
# Every operation of a plan (`PlannedOperation`) is done by an `Operator` of its own. It asks the
# controller, asks again where nobody answered or the answer says "later", and gives up after a
# while: then nobody knows whether it was done, as with any operator's tool.
#
# Operations on one subject are an `OperationFamily`; `FAMILIES` is the list of them.


TIMEOUT_SECONDS: Final = 6.0
"""So long is something asked for again and again."""

LATER: Final = frozenset(
    code.value
    for code in (
        ErrorCode.not_controller,
        ErrorCode.request_timed_out,
        ErrorCode.leader_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.coordinator_not_available,
        ErrorCode.unknown_server_error,
    )
)
"""Errors that another attempt may mend."""


class OperatedCluster(Protocol):
    """What an operation sees of the cluster; `SimulatedCluster` is one."""

    world: World
    observer: ClusterObserver
    history: ClusterHistory
    broker_ids: tuple[int, ...]
    min_in_sync: int
    partitions: list[TopicPartition]  # those that clients work on
    workload: Workload

    @property
    def machines(self) -> Mapping[int, SimulatedMachine]: ...


class Operator(Client):
    """Does one operation. `random` decides all that it chooses."""

    def __init__(self, name: str, cluster: OperatedCluster, random: Random) -> None:
        workload = cluster.workload
        super().__init__(ClientSetup(name, cluster.history, random, workload.open_process))
        self.cluster = cluster
        self.random = random
        self._client = workload.open_client(name)
        self.is_in_doubt = False  # an attempt had no definite answer: it may be done even later

    def note(self, text: str) -> None:
        self.cluster.world.log.note(f"operation {text}")

    async def sleep(self, seconds: float) -> None:
        await self._client.clock.sleep(seconds)

    async def ask_controller(
        self,
        api: tuple[Api, int],
        values: dict[str, object],
        codes_of: Callable[[object], Sequence[ErrorCode]],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> int | None:
        """The first error code of a definite answer, 0 for none; None when it was given up.

        `codes_of` finds the error codes of an answer. What was given up may have been done.
        """
        client, (asked, version) = self._client, api
        end = client.clock.monotonic() + timeout_seconds
        while client.clock.monotonic() < end and not self.is_stopping:
            try:
                controller = await client.connect_to_controller()
                answer = await controller.call(asked, values, version=version)
            except (KafkaError, ClientError):
                self.is_in_doubt = True
            else:
                codes = [code.value for code in codes_of(answer) if code.value]
                if not LATER.intersection(codes):
                    return codes[0] if codes else 0
                self.is_in_doubt = True
            await self.sleep(self.random.uniform(0.02, 0.1))
            with contextlib.suppress(KafkaError, ClientError):
                await client.metadata.refresh(())
        return None


Operation = Callable[[Operator], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFamily:
    """Operations that belong together, and how often they come."""

    name: str
    share: float  # of the seeds with operations
    fewest: int
    most: int
    kinds: Mapping[str, tuple[int, Operation]]  # by what a schedule prints: weight, what to do

    @property
    def weights(self) -> dict[str, int]:
        return {kind: weight for kind, (weight, _) in self.kinds.items()}


# Operations that move partitions about: reassignments, elections, partitions added.
#
# Reassignments change the number of replicas too, take leadership away from who has it, are taken
# back, cancelled, or sent elsewhere in the middle. Nobody promises an operator that a request comes
# about. What the cluster promises is that no record is lost by it, that whatever began to move
# arrives, and that nothing is left behind on disks (`ClusterObserver.find_flaw`).


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
    asked = [moves.ask_move(*target) for target in targets.items()]
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


def _new_partitions_codes(answer: object) -> list[ErrorCode]:
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
    code = await operator.ask_controller(_CREATE_PARTITIONS, values, _new_partitions_codes)
    operator.note(f"{topic} to {count} partitions: {code}")
    partition = TopicPartition(topic, count - 1)
    if partition in cluster.observer.replicas:  # also where no answer came
        cluster.workload.serve_partition(partition)


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


# Operations that delete a topic and make it again under its name, whoever is away meanwhile.
#
# A topic's first life gets some records, which are void with its deletion. Its second life is
# worked on by clients like any other topic: whatever a broker kept of the first life, and served as
# the second one's, would show as bytes that differ between replicas, or as records that are lost.


_CREATE_TOPICS: Final = (CREATE_TOPICS, 7)
_DELETE_TOPICS: Final = (DELETE_TOPICS, 6)
_TOPIC_ATTEMPTS: Final = 8
_BRANCH_ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.4


async def _create(operator: Operator, topic: str) -> bool:
    """Whether it was made for sure; the name may not be free yet."""
    cluster = operator.cluster
    row = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": min(3, len(cluster.broker_ids)),
        "configs": [{"name": "min.insync.replicas", "value": str(cluster.min_in_sync)}],
    }
    return await _create_topic(operator, row, _TOPIC_ATTEMPTS, "made")


async def _create_branch(operator: Operator, source: str, name: str) -> bool:
    row = {
        "name": name,
        "num_partitions": USE_DEFAULT,
        "replication_factor": USE_DEFAULT,
        "configs": [{"name": BRANCH_OF, "value": source}],
    }
    return await _create_topic(operator, row, _BRANCH_ATTEMPTS, "branched")


async def _create_topic(
    operator: Operator, row: Mapping[str, object], attempts: int, told_as: str
) -> bool:
    """Whether it was made for sure, and by an answer to this operator."""
    values: dict[str, object] = {
        "topics": [{"assignments": [], **row}],
        "timeout": 1500,
        "validate_only": False,
    }
    for _ in range(attempts):
        code = await operator.ask_controller(_CREATE_TOPICS, values, _new_topic_codes)
        operator.note(f"{row['name']} is {told_as}: {code}")
        if code == 0:
            return True
        await operator.sleep(_PAUSE_SECONDS)
    return False


async def _delete_topic(operator: Operator, topic: str) -> bool:
    row = {"name": topic, "topic_id": None}
    values: dict[str, object] = {"topics": [row], "timeout": 1500}
    code = await operator.ask_controller(_DELETE_TOPICS, values, _deleted_topic_codes)
    operator.note(f"{topic} is deleted: {code}")
    return code in (0, ErrorCode.unknown_topic_or_partition.value)


def _new_topic_codes(answer: object) -> list[ErrorCode]:
    return [row.error_code for row in cast("CreateTopicsResponse", answer).topics]


def _deleted_topic_codes(answer: object) -> list[ErrorCode]:
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
    if not await _delete_topic(operator, partition.topic):
        return
    await operator.sleep(operator.random.choice((0.0, 0.05, 1.0)))
    if await _create(operator, partition.topic) and await _is_heard_of(operator, partition.topic):
        operator.cluster.workload.serve_partition(partition)


async def _is_heard_of(operator: Operator, topic: str) -> bool:
    """Whether nobody serves the first life any more: clients ask by name, and one that was paused
    through all of it would show them what is gone."""
    for _ in range(_TOPIC_ATTEMPTS):
        node = operator.cluster.world.service.find(znodes.topic_path(topic))
        if node is None:
            return False
        wanted = znodes.decode_topic(topic, node.data).topic_id
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


# Operations that branch a topic while leaders die and move, and what a branch has to be.
#
# A branch has the records of its origin up to some offset, byte for byte, and its own behind them
# (BRA-2). Up to where is up to its leader: at least as far as this one knew of what was promised,
# if it has lived on since. What was promised of the origin up to there is then promised of the
# branch, and clients work on it as on any other topic.


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
    if not await _create_branch(operator, source, name):
        return
    for number, before in sorted(led.items()):
        _promise(operator, TopicPartition(source, number), TopicPartition(name, number), before)
    served = operator.random.choice(sorted(led)) if led else 0
    operator.cluster.workload.serve_partition(TopicPartition(name, served))


async def branch_and_delete(operator: Operator) -> None:
    """What both share stays with the origin."""
    name = f"{TOPIC}.d{operator.random.randrange(1000)}"
    await _create_branch(operator, TOPIC, name)
    await operator.sleep(operator.random.choice((0.0, 0.5, 2.0)))
    await _delete_topic(operator, name)


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
        node = cluster.world.service.find(znodes.topic_path(name))
        origin = None if node is None else znodes.decode_topic(name, node.data).origin
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


# Does the operations of a plan in a simulated cluster. A shell.
#
# To add operations: write functions that take an `Operator`, put them into an
# `OperationFamily`, and name it in `FAMILIES`. Each family has its own random source, so the plans
# of the others stay as they are. What an operation promises or takes away (a topic that is deleted,
# records before an offset) is told to `ClusterHistory`, which knows what must not be; what the
# coordination store says is heard of by `ClusterObserver` without being told.

FAMILIES: Final[tuple[OperationFamily, ...]] = (MOVES, TOPICS, BRANCHES)
"""All families."""


class ClusterOperations:
    """Owned by the story's task."""

    def __init__(
        self, cluster: OperatedCluster, families: Sequence[OperationFamily] | None = None
    ) -> None:
        """`families` that the seed may choose from; all without them, none with an empty list."""
        self._cluster = cluster
        self._is_forced = families is not None  # a story's own: every seed has them
        self._families = {each.name: each for each in (FAMILIES if families is None else families)}
        self._operators: list[Operator] = []
        self._tasks: list[asyncio.Task[None]] = []

    def draw(self, start_seconds: float, end_seconds: float) -> list[PlannedOperation]:
        streams = self._cluster.world.streams
        if not has_operations(streams.stream("operations")) and not self._is_forced:
            return []
        plan: list[PlannedOperation] = []
        for family in self._families.values():
            plan += draw_operations(
                streams.stream(f"operations {family.name}"),
                family.name,
                family.weights,
                share=1.0 if self._is_forced else family.share,
                fewest=family.fewest,
                most=family.most,
                start_seconds=start_seconds,
                end_seconds=end_seconds,
            )
        return sorted(plan, key=lambda each: (each.at_seconds, each.family))

    def start_operation(self, planned: PlannedOperation) -> None:
        """Let an operator do it, beside everything else."""
        _, operation = self._families[planned.family].kinds[planned.kind]
        operator = Operator(
            f"operator-{len(self._tasks)}",
            self._cluster,
            Random(f"{planned.kind}/{planned.number}"),  # noqa: S311 not a secret
        )
        self._cluster.world.log.note(f"operation: {planned}")
        self._operators.append(operator)
        self._tasks.append(self._cluster.world.story.spawn(operation(operator)))

    async def wait_until_done(self) -> None:
        """Return when each of them has been done or given up."""
        for task in self._tasks:
            await task

    def release_operators(self) -> None:
        """At the end of the run, whatever became of it."""
        self._operators.clear()
        self._tasks.clear()
