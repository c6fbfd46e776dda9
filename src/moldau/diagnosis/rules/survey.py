"""What was found out about a cluster before anything is made of it. Values.

What could not be found out is None, and `unchecked` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.client.admin_values import GroupState, LogDirDescription, Reassignment
from moldau.client.rules.cluster_metadata import Broker, TopicMetadata
from moldau.client.transaction_values import HangingTransaction, TransactionDescription
from moldau.errors import KafkaError
from moldau.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSurvey:
    """One broker."""

    broker: Broker
    unreachable: str | None = None  # why its advertised address cannot be reached from here
    log_dirs: tuple[LogDirDescription | KafkaError, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] | None = None  # sums over labels; None without an endpoint
    clock_ahead_seconds: float | None = None  # of ours; negative when it is behind


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """A group at one moment."""

    state: GroupState
    members: frozenset[str] = frozenset()
    idle_members: int = 0  # without partitions
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    unfinished: Mapping[TopicPartition, int] | None = None
    """Of a share group: how many records are not finished, as its coordinator counts them. Records
    behind the start offset may be finished already. None for other groups."""

    @property
    def lags(self) -> Mapping[TopicPartition, int]:
        """Of each partition, as `moldau groups describe` shows it."""
        if self.unfinished is not None:
            return self.unfinished
        return {
            one: max(0, self.ends[one] - offset)
            for one, offset in self.committed.items()
            if one in self.ends
        }

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """A group, looked at twice, `seconds` apart."""

    group_id: str
    first: GroupLook
    second: GroupLook
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSurvey:
    """All of it."""

    now_ms: int
    controller_id: int
    brokers: Mapping[int, BrokerSurvey]
    topics: Mapping[str, TopicMetadata]
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    max_timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, Reassignment] = field(default_factory=dict)
    groups: tuple[GroupSurvey, ...] = ()
    hanging: tuple[HangingTransaction, ...] = ()
    open_transactions: tuple[TransactionDescription, ...] = ()
    unchecked: tuple[str, ...] = ()
