"""Share groups in a simulated cluster: those who take, and a look at all of it. A shell.

In some seeds consumers of a share group deal with what the producers write (`share_consumers`), and
with a topic of their own in some of these. Whenever one is told something, what the leaders know is
looked at, and what was confirmed has to be in the log of the share coordinator (SHR-3). When
everything has healed, a consumer that accepts whatever comes takes what is left: the group comes to
the end of every partition, and `ShareHistory` says what must have become of each record (SHR-9).
Where there are transactions, too, some groups read committed records only, and those of the
transactions' results with them: none of the others comes to anybody (SHR-12). In some seeds the
consumers go for a while, and the offsets of the group are altered (SHR-13).
What each share coordinator knows then is what its log says (SHS-5).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

from moldau.client.admin.values import ConfigResource
from moldau.config.alterations import ConfigChange
from moldau.coordinators.runtime.internal_topic import partition_for
from moldau.coordinators.shares.dead_letters import OFFSET_HEADER, PARTITION_HEADER, TOPIC_HEADER
from moldau.coordinators.shares.rules.records import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateRecord,
    ShareUpdate,
    coordinator_key,
    decode_share_state,
)
from moldau.coordinators.shares.rules.share_states import ShareStates
from moldau.coordinators.shares.share_partition import SharePartition
from moldau.errors import ClientError, KafkaError, NotLeaderError
from moldau.model import SHARE_GROUP_STATE_TOPIC, AcknowledgeType, TopicPartition
from moldau.records.record_batch import records_of
from moldau.simulation.clients import Client
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.machine import DATA_FOLDER, committed_offsets_of, read_log, values_of
from moldau.simulation.observer import ClusterObserver
from moldau.simulation.share_consumers import (
    OffsetAlterer,
    SeenLeader,
    ShareHistory,
    SimulatedShareConsumer,
)
from moldau.simulation.transactions import SINKS, ClusterTransactions
from moldau.simulation.workload import TOPIC, Workload

JOBS: Final = TopicPartition("jobs", 0)
LETTERS: Final = TopicPartition("dlq.letters", 0)
_SHARE_OF_SEEDS: Final = 0.25
_ALTERED_SHARE: Final = 0.4  # of the seeds with a share group
_COMMITTED_SHARE: Final = 0.6  # of the seeds that have transactions, too
_DRAINING_SECONDS: Final = 20.0
_LETTERS_ALLOWED: Final = "errors.deadletterqueue.group.enable"
_PAUSE_SECONDS: Final = 0.1

_STORED_AS: Final = {
    AcknowledgeType.ACCEPT: (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED),
    AcknowledgeType.REJECT: (DeliveryState.ARCHIVED, DeliveryState.ACKNOWLEDGED),
    AcknowledgeType.RELEASE: tuple(DeliveryState),
}
"""What a confirmed word leaves behind. A record that is done may have been done by another."""


class ClusterShares:
    """One for each run."""

    def __init__(
        self,
        random: Random,
        history: ClusterHistory,
        observer: ClusterObserver,
        transactions: ClusterTransactions,
        is_on: bool | None,
    ) -> None:
        """`is_on` is for the seed to say if it is None."""
        drawn = random.random() < _SHARE_OF_SEEDS
        self.is_on = drawn if is_on is None else is_on
        self._consumers = random.choice((2, 2, 3))
        self._topics = (TOPIC, JOBS.topic) if random.random() < 0.4 else (TOPIC,)
        self._has_letters = random.random() < 0.6
        self._delivery_limit = random.choice((2, 3, 5, 10))
        self._state_partitions = random.choice((1, 2))
        self._options = {
            "group.share.record.lock.duration.ms": random.choice(("1000", "1500")),
            "group.share.partition.max.record.locks": random.choice(("100", "2000")),
            "share.coordinator.snapshot.update.records.per.snapshot": random.choice(
                ("0", "4", "500")
            ),
            "share.coordinator.state.topic.prune.interval.ms": random.choice(("700", "300000")),
            "share.coordinator.cold.partition.snapshot.interval.ms": random.choice(
                ("900", "300000")
            ),
        }
        reads_committed = random.random() < _COMMITTED_SHARE
        self.reads_committed = reads_committed and self.is_on and transactions.is_on
        if self.reads_committed:
            self._topics = *self._topics, SINKS[0].topic
        self.alters_offsets = random.random() < _ALTERED_SHARE and self.is_on
        self._history = history
        self._observer = observer
        self._transactions = transactions
        self._told: ShareHistory | None = None  # of the present consumers
        self._book: _ShareLogs | None = None

    @property
    def confirmed(self) -> int:
        """Records that the present consumers have accepted or rejected, with the broker's word."""
        return 0 if self._told is None else self._told.confirmed

    def options(self, replicas: str, min_in_sync: str) -> Mapping[str, str]:
        """What brokers are told beside all that holds for every seed."""
        return {
            "group.share.min.session.timeout.ms": "500",
            "group.share.session.timeout.ms": "1000",
            "group.share.min.heartbeat.interval.ms": "100",
            "group.share.heartbeat.interval.ms": "250",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.delivery.count.limit": str(self._delivery_limit),
            "share.coordinator.state.topic.num.partitions": str(self._state_partitions),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": min_in_sync,
            "share.coordinator.write.timeout.ms": "1500",
            **self._options,
        }

    async def make_topics(self, workload: Workload) -> None:
        name = "shares"
        if JOBS.topic in self._topics:
            await workload.make_topic(name, JOBS.topic, 1, {})
        config = {"share.auto.offset.reset": "earliest"}
        if self.reads_committed:
            config["share.isolation.level"] = "read_committed"
        if self._has_letters:
            await workload.make_topic(name, LETTERS.topic, 1, {_LETTERS_ALLOWED: "true"})
            config["errors.deadletterqueue.topic.name"] = LETTERS.topic
        for generation in ("", "'"):
            await _set_config(workload, ConfigResource.group(f"s0{generation}"), config)

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        """Consumers, and who writes to their own topic. After a power loss of all machines there is
        another group: what the former one was told may be gone."""
        self._told = ShareHistory(f"s{suffix}", self._delivery_limit, self._history.report)
        self._book = _ShareLogs(
            workload, self._observer, self._history, self._told, self._transactions
        )
        consumers = [
            self._make_consumer(workload, f"s{suffix}-{number}")
            for number in range(self._consumers)
        ]
        clients: list[Client] = [*consumers]
        if self.alters_offsets:
            name = f"alterer{suffix}"
            clients.append(
                OffsetAlterer(
                    workload.setup(name),
                    told=self._told,
                    book=self._book,
                    consumers=consumers,
                    admin=workload.open_admin(name),
                )
            )
        if JOBS.topic in self._topics:
            clients.append(workload.make_producer(f"as{suffix}", JOBS))
        return clients

    def _make_consumer(
        self, workload: Workload, name: str, *, is_diligent: bool = False
    ) -> SimulatedShareConsumer:
        if self._told is None or self._book is None:
            raise RuntimeError("nobody takes anything")
        return SimulatedShareConsumer(
            workload.setup(name),
            told=self._told,
            book=self._book,
            topics=self._topics,
            broker_count=len(workload.machines),
            is_diligent=is_diligent,
        )

    # At the end

    async def check_end(self, workload: Workload) -> None:
        """All consumers have come to their end."""
        if self._told is None or self._book is None:
            return
        consumer = self._make_consumer(workload, f"{self._told.group}-last", is_diligent=True)
        task = asyncio.ensure_future(consumer.run())
        end = workload.world.loop.time() + _DRAINING_SECONDS
        flaw: str | None = ""
        while flaw is not None and workload.world.loop.time() < end:
            await workload.world.clock.sleep(0.2)
            flaw = self._find_undone(workload)
        consumer.is_stopping = True
        await task
        if flaw is not None:
            self._history.report("SHR-9", flaw)
            return
        present: dict[TopicPartition, list[int]] = {}
        withheld: dict[TopicPartition, list[int]] = {}
        for machine, partition in workload.leaders():
            place = partition.topic_partition
            if place.topic in self._topics:
                log = read_log(machine.files, DATA_FOLDER, place)
                values = values_of(log)
                readable = committed_offsets_of(log) if self.reads_committed else values.keys()
                present[place] = [offset for offset in values if offset in readable]
                withheld[place] = [offset for offset in values if offset not in readable]
        letters = self._read_letters(workload) if self._has_letters else None
        self._told.check_end(present, letters, withheld)
        self._book.check_coordinators()

    def _find_undone(self, workload: Workload) -> str | None:
        """A partition of which something is left to be done."""
        if self._told is None:
            return None
        for machine, partition in workload.leaders():
            place = partition.topic_partition
            if place.topic not in self._topics or machine.broker is None:
                continue
            found = machine.broker.services.shares.partitions.find(place, self._told.group)
            in_flight = None if found is None else found.in_flight
            if found is None or in_flight is None:
                return f"{machine.host} leads {place}, and nobody takes from it"
            end_offset = partition.log.log_end_offset
            if self.reads_committed:  # after a power loss of all machines a transaction may hang
                end_offset = partition.last_stable_offset
            if in_flight.start_offset < end_offset:
                return (
                    f"{machine.host} has {place} for {self._told.group} from "
                    f"{in_flight.start_offset} on, and what it may read ends at {end_offset}: "
                    f"{[*in_flight.runs][:3]}"
                )
        return None

    def _read_letters(self, workload: Workload) -> set[tuple[TopicPartition, int]]:
        letters: set[tuple[TopicPartition, int]] = set()
        for machine, partition in workload.leaders():
            if partition.topic_partition == LETTERS:
                for batch in read_log(machine.files, DATA_FOLDER, LETTERS):
                    for record in records_of(batch.content):
                        says = {
                            name: bytes(value or b"").decode() for name, value in record.headers
                        }
                        place = TopicPartition(says[TOPIC_HEADER], int(says[PARTITION_HEADER]))
                        letters.add((place, int(says[OFFSET_HEADER])))
        return letters


class _FoundLog(NamedTuple):
    key: SharePartitionKey
    place: TopicPartition
    broker_id: int
    log: list[StoredBatch]


class _ShareLogs:
    """What leaders and share coordinators know, and what is on their disks."""

    def __init__(
        self,
        workload: Workload,
        observer: ClusterObserver,
        history: ClusterHistory,
        told: ShareHistory,
        transactions: ClusterTransactions,
    ) -> None:
        self._machines = workload.machines
        self._transactions = transactions
        self._observer = observer
        self._history = history
        self._told = told
        self._keep = workload.world.story.kept.append
        # The last one that was loaded, and how many there were. What lived must not outlive a run.
        self._loaded: dict[TopicPartition, tuple[weakref.ref[SharePartition], int]] = {}

    def _count_loads(self, partition: TopicPartition, found: SharePartition) -> int:
        known = self._loaded.get(partition)
        if known is not None and known[0]() is found:
            return known[1]
        former = None if known is None else known[0]()
        if former is not None and _was_thrown_away(former, found):
            self._history.report(
                "SHR-11",
                f"{self._told.group} has records of {partition}, and its leader reads the state "
                f"again in the same epoch {found.leader_epoch}",
            )
        loads = 1 if known is None else known[1] + 1
        self._keep(found)
        self._loaded[partition] = weakref.ref(found), loads
        return loads

    def observe_leaders(self, partition: TopicPartition) -> None:
        for machine in self._machines.values():
            broker = machine.broker
            if broker is None:
                continue
            found = broker.services.shares.partitions.find(partition, self._told.group)
            if found is not None and found.is_current and found.in_flight is not None:
                in_flight = found.in_flight
                self._told.see_leader(
                    partition,
                    SeenLeader(
                        machine.host,
                        found.leader_epoch,
                        in_flight.start_offset,
                        tuple(in_flight.runs),
                        found._state_epoch,
                        self._count_loads(partition, found),
                    ),
                )

    def see_record(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        self._transactions.deliver(self._told.group, partition, offset, value)

    def require_stored(
        self, partition: TopicPartition, offsets: Collection[int], kind: AcknowledgeType
    ) -> None:
        """In the log of somebody who is in sync with the coordinator's partition; and since that is
        promised then, in those of all others."""
        found = self._find_log(partition)
        if found is None:
            return
        missing, end_offset = find_missing(found.log, found.key, offsets, _STORED_AS[kind])
        if missing:
            self._history.report(
                "SHR-3",
                f"{kind.name} of {partition}@{sorted(missing)} was confirmed to "
                f"{self._told.group}, and is not in the log of broker {found.broker_id}, which is "
                f"in sync in {found.place}",
            )
        else:
            self._history.promise(found.place, end_offset)

    def require_altered(self, partition: TopicPartition, start_offset: int | None) -> None:
        found = self._find_log(partition)
        if found is None:
            return
        states, end_offset = ShareStates(), 0
        for record in (one for batch in found.log for one in _records_in(batch)):
            states.apply(record)
            if record.key == found.key:
                end_offset = record.offset + 1
        state = states.find(found.key)
        if (None if state is None else (state.start_offset, state.batches)) != (
            None if start_offset is None else (start_offset, ())
        ):
            self._history.report(
                "SHR-13",
                f"{self._told.group} was told to begin at {start_offset} in {partition}, and the "
                f"log of broker {found.broker_id}, which is in sync in {found.place}, says {state}",
            )
        else:
            self._history.promise(found.place, end_offset)

    def _find_log(self, partition: TopicPartition) -> _FoundLog | None:
        """Of the share coordinator, at somebody who is in sync with it."""
        key = self._find_key(partition)
        if key is None:
            return None
        count = sum(1 for each in self._observer.states if each.topic == SHARE_GROUP_STATE_TOPIC)
        place = TopicPartition(SHARE_GROUP_STATE_TOPIC, partition_for(coordinator_key(key), count))
        state = self._observer.states.get(place)
        well = [] if state is None else self._observer.those_who_kept(state.in_sync)
        if not well:
            return None
        log = read_log(self._machines[well[0]].files, DATA_FOLDER, place)
        return _FoundLog(key, place, well[0], log)

    def _find_key(self, partition: TopicPartition) -> SharePartitionKey | None:
        for machine in self._machines.values():
            broker = machine.broker
            topic = (
                None
                if broker is None
                else broker.services.publisher.image.topics.get(partition.topic)
            )
            if topic is not None:
                return SharePartitionKey(self._told.group, topic.topic_id, partition.partition)
        return None

    def check_coordinators(self) -> None:
        for place, state in sorted(self._observer.states.items()):
            machine = self._machines.get(state.leader)
            if place.topic != SHARE_GROUP_STATE_TOPIC or machine is None or machine.broker is None:
                continue
            shard = machine.broker.services.share_coordinator.find_shard(place.partition)
            logged = ShareStates()
            for batch in read_log(machine.files, DATA_FOLDER, place):
                for record in _records_in(batch):
                    logged.apply(record)
            for key in sorted({*logged, *(() if shard is None else shard.keys)}):
                known = None if shard is None else shard._machine.find(key)
                if known != logged.find(key):
                    self._history.report(
                        "SHS-5",
                        f"{machine.host} knows {known} of {key}; its log says {logged.find(key)}",
                    )


def _was_thrown_away(former: SharePartition, found: SharePartition) -> bool:
    """Whether members had records of the former one, and nothing but a lost session ended it: its
    replica leads in the same epoch, and the share coordinator has refused nothing."""
    in_flight = former.in_flight
    return (
        former.partition is found.partition
        and former.leader_epoch == found.leader_epoch
        and type(former.failure) is NotLeaderError
        and in_flight is not None
        and any(
            not (run.record_state.is_available or run.record_state.is_final)
            for run in in_flight.runs
        )
    )


async def _set_config(
    workload: Workload, resource: ConfigResource, config: Mapping[str, str]
) -> None:
    """However often it has to be asked for."""
    changes = [ConfigChange(name=name, value=value) for name, value in config.items()]
    admin = workload.open_admin("shares")
    while True:
        try:
            if (await admin.alter_configs({resource: changes}))[resource] is None:
                return await admin.close()
        except (KafkaError, ClientError):
            pass
        await workload.world.clock.sleep(_PAUSE_SECONDS)


def find_missing(
    batches: Sequence[StoredBatch],
    key: SharePartitionKey,
    offsets: Collection[int],
    allowed: Collection[DeliveryState],
) -> tuple[set[int], int]:
    """The offsets that a log says nothing of, or other things; and the end of the first batch with
    which everything is said."""
    missing = set(offsets)
    name = key.group_id.encode()
    for batch in batches:
        if name not in batch.content:
            continue
        for record in _records_in(batch):
            if record.key == key and record.value is not None:
                missing -= _said_by(record.value, missing, allowed)
        if not missing:
            return missing, batch.end_offset
    return missing, 0


def _said_by(
    value: ShareState | ShareUpdate, offsets: Collection[int], allowed: Collection[DeliveryState]
) -> set[int]:
    said = {offset for offset in offsets if offset < value.start_offset}
    for first, last, state, _ in value.batches:
        if state in allowed:
            said.update(offset for offset in offsets if first <= offset <= last)
    return said


@lru_cache(maxsize=4096)
def _records_in(batch: StoredBatch) -> tuple[ShareStateRecord, ...]:
    """Decoded once: the log is looked through for each word that is confirmed."""
    rows = enumerate(records_of(batch.content), start=batch.base_offset)
    found = ((offset, decode_share_state(row.key, row.value)) for offset, row in rows)
    return tuple(one._replace(offset=offset) for offset, one in found if one is not None)
