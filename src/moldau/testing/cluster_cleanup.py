"""Topics of a simulated cluster from which records go: compaction, retention and DeleteRecords.

In some seeds the brokers clean up (the others have their cleaner and retention off, as before), and
there are two more topics with clients of their own: one that is compacted, with few keys, and one
that is trimmed by DeleteRecords and by size or age. `__consumer_offsets` is compacted there, too.
What must be there all the same is for `cleanup_history`. A shell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Final

from moldau.model import (
    GROUP_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from moldau.testing.cleanup_clients import KeyedProducer, KeyedReader, TrimmedReader, Trimmer
from moldau.testing.cleanup_history import CleanupHistory, from_common_start, one_by_one
from moldau.testing.cluster_history import ClusterHistory, StoredBatch
from moldau.testing.replica_logs import read_log, values_of
from moldau.testing.simulated_clients import Client
from moldau.testing.simulated_machine import DATA_FOLDER, SimulatedMachine
from moldau.testing.simulated_producers import SimulatedProducer
from moldau.testing.simulated_workload import Workload

KEYED: Final = TopicPartition("keyed", 0)
TRIMMED: Final = TopicPartition("trimmed", 0)
_COMPACTED: Final = frozenset({KEYED.topic, GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
_SHARE_OF_SEEDS: Final = 0.35

_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "400",
        "log.retention.ms": "-1",  # of the topics that keep everything
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "300",
    }
)
_KEYED_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "400",
    "min.cleanable.dirty.ratio": "0.3",
}
_RETENTION_BYTES: Final = 700


class ClusterCleanup:
    """One for each run."""

    def __init__(self, random: Random, history: ClusterHistory) -> None:
        self.is_on = random.random() < _SHARE_OF_SEEDS
        self.told = CleanupHistory(history)
        self._by_size = random.random() < 0.6
        self._history = history

    def options(self, replicas: str, min_in_sync: str) -> Mapping[str, str]:
        """What brokers are told beside all that holds for every seed."""
        return _OPTIONS if self.is_on else {}

    async def make_topics(self, workload: Workload) -> None:
        if not self.is_on:
            return
        trimmed = {"segment.ms": "400", "cleanup.policy": "delete", **self._retention}
        for topic, config in ((KEYED.topic, _KEYED_CONFIG), (TRIMMED.topic, trimmed)):
            await workload.make_topic("cleanup", topic, 1, config)
        self.told.begin_keyed(KEYED)
        self.told.begin_trimmed(TRIMMED, _RETENTION_BYTES if self._by_size else None)

    @property
    def _retention(self) -> Mapping[str, str]:
        if self._by_size:
            return {"retention.bytes": str(_RETENTION_BYTES), "retention.ms": "-1"}
        return {"retention.ms": "2500"}

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        """Those who work on these topics; the suffix of their names tells generations apart."""
        if not self.is_on:
            return ()
        keyed = workload.make_producer(f"k{suffix}", KEYED, KeyedProducer)
        keyed_reader = workload.make_reader(f"ck{suffix}", KEYED, KeyedReader)
        keyed.cleanup = keyed_reader.cleanup = self.told
        trimmed_reader = workload.make_reader(f"ct{suffix}", TRIMMED, TrimmedReader)
        trimmed_reader.find_start = partial(_find_start, workload.machines.values())
        trimmer = f"trimmer{suffix}"
        return (
            keyed,
            keyed_reader,
            workload.make_producer(f"at{suffix}", TRIMMED, SimulatedProducer),
            trimmed_reader,
            Trimmer(
                trimmer,
                workload.open_admin(trimmer),
                self.told,
                workload.random_of(trimmer),
                partition=TRIMMED,
                clock=workload.world.clock,
            ),
        )

    # Looking

    def is_compacted(self, partition: TopicPartition) -> bool:
        return self.is_on and partition.topic in _COMPACTED

    def comparable(
        self, partition: TopicPartition, log: Sequence[StoredBatch]
    ) -> Sequence[StoredBatch]:
        """A log as it may be compared with what was seen of it before."""
        return one_by_one(log) if self.is_compacted(partition) else log

    def check_equal(
        self, partition: TopicPartition, logs: Mapping[str, Sequence[StoredBatch]], end: int
    ) -> None:
        """All replicas are equal below an offset, as far as they have to be."""
        if self.is_compacted(partition):
            self.told.check_equal_tables(partition, logs, end)
        elif partition in self.told.trimmed or partition.topic == SHARE_GROUP_STATE_TOPIC:
            self._history.check_equal(partition, from_common_start(logs), end)
        else:
            self._history.check_equal(partition, logs, end)

    def check_replicas(
        self,
        machines: Mapping[int, SimulatedMachine],
        replicas: Mapping[TopicPartition, Sequence[int]],
    ) -> None:
        """Everything that was acknowledged and may not be gone is on every replica."""
        if not self.is_on:
            return
        for broker_id in replicas.get(KEYED, ()):
            machine = machines[broker_id]
            log = read_log(machine.files, DATA_FOLDER, KEYED)
            self.told.check_keyed(KEYED, machine.host, log)
        for broker_id in replicas.get(TRIMMED, ()):
            self._check_trimmed(machines[broker_id])

    def _check_trimmed(self, machine: SimulatedMachine) -> None:
        broker = machine.broker
        held = None if broker is None else broker.services.partitions.find(*TRIMMED)
        if held is None:
            return
        start = held.log.log_start_offset
        self.told.check_start(TRIMMED, machine.host, start, held.log.size_bytes)
        values = values_of(read_log(machine.files, DATA_FOLDER, TRIMMED))
        self._history.check_final_log(TRIMMED, machine.host, values, start)
        # A replica that begins behind a deleted batch knows nothing of its producer, and takes the
        # batch once more if it is sent again, as Kafka's do: only what is left is in order.
        left = (value for offset, value in values.items() if offset >= start)
        self._history.check_order(TRIMMED, left)


def _find_start(machines: Collection[SimulatedMachine], partition: TopicPartition) -> int | None:
    """The last offset at which a replica begins; None while a machine has none."""
    brokers = [machine.broker for machine in machines if machine.broker is not None]
    held = [broker.services.partitions.find(*partition) for broker in brokers]
    starts = [one.log.log_start_offset for one in held if one is not None]
    return max(starts) if len(starts) == len(machines) else None
