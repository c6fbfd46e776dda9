"""Brokers as rows, and what keeps the cluster together. Rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin_values import ClusterDescription, LogDirDescription
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """A broker that is there, or one that partitions still name."""

    id: int
    address: str | None  # None: it is away
    rack: str | None
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int
    size_bytes: int | None
    free_bytes: int | None  # of the fullest of its disks
    total_bytes: int | None
    failed_dirs: tuple[str, ...] = ()


Disks = Mapping[int, Sequence[LogDirDescription | KafkaError]]


def broker_rows(
    cluster: ClusterDescription, topics: Collection[TopicMetadata], disks: Disks
) -> list[BrokerRow]:
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions:
            leads[partition.leader_id] += 1
            replicas.update(partition.replicas)
            in_sync.update(partition.in_sync_replicas)
    alive = {broker.id: broker for broker in cluster.brokers}
    rows = []
    for broker_id in sorted({*alive, *replicas}):
        broker = alive.get(broker_id)
        folders = disks.get(broker_id, ())
        read = [one for one in folders if isinstance(one, LogDirDescription)]
        fullest = min(
            (one for one in read if one.total_bytes > 0),
            key=lambda one: one.usable_bytes / one.total_bytes,
            default=None,
        )
        rows.append(
            BrokerRow(
                id=broker_id,
                address=None if broker is None else str(broker.address),
                rack=None if broker is None else broker.rack,
                is_controller=broker_id == cluster.controller_id,
                leads=leads[broker_id],
                replicas=replicas[broker_id],
                in_sync=in_sync[broker_id],
                size_bytes=_sum_sizes(read) if read else None,
                free_bytes=None if fullest is None else fullest.usable_bytes,
                total_bytes=None if fullest is None else fullest.total_bytes,
                failed_dirs=tuple(str(one) for one in folders if isinstance(one, KafkaError)),
            )
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirRow:
    """A folder of a broker with what is in it; `failure` stands where it is offline."""

    path: str
    replicas: int | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    moving: int = 0  # copies that will take the place of a replica in another folder
    failure: str = ""


def log_dir_rows(folders: Collection[LogDirDescription | KafkaError]) -> list[LogDirRow]:
    rows = []
    for one in folders:
        if isinstance(one, KafkaError):
            rows.append(LogDirRow(path="a folder that is offline", failure=str(one)))
            continue
        is_measured = one.total_bytes > 0  # older brokers do not say
        rows.append(
            LogDirRow(
                path=one.path,
                replicas=len(one.replicas),
                size_bytes=_sum_sizes([one]),
                free_bytes=one.usable_bytes if is_measured else None,
                total_bytes=one.total_bytes if is_measured else None,
                moving=sum(replica.is_future for replica in one.replicas),
            )
        )
    return sorted(rows, key=lambda row: row.path)


def _sum_sizes(folders: Collection[LogDirDescription]) -> int:
    return sum(replica.size_bytes for folder in folders for replica in folder.replicas)


def coordination_text(settings: Mapping[str, str | None]) -> str:
    """What a broker's own settings say about where the cluster keeps its state."""
    zookeeper = settings.get("zookeeper.connect")
    if zookeeper:
        return f"ZooKeeper at {zookeeper}"
    if settings.get("process.roles"):
        voters = settings.get("controller.quorum.voters") or settings.get(
            "controller.quorum.bootstrap.servers"
        )
        return f"KRaft quorum of {voters}" if voters else "KRaft quorum"
    if settings.get("coordination.socket"):
        return "a store on this machine, shared by its brokers"
    return "a store inside the broker"
