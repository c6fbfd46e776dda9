"""What the machine of a producer is told, and what it has its shells do. Values.

Every instruction to ask somebody comes back as exactly one event, an answer or a failure; every
batch of a `Send` is in exactly one call of `answered`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeAlias

from moldau.client.offset_values import ConsumerGroupMetadata, GroupOffset
from moldau.client.rules.producer_batches import P, ProducerBatch, ProducerIdentity
from moldau.errors import KafkaError, MoldauError
from moldau.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition

_NO_FAULTS: Mapping[int, str] = MappingProxyType({})


class PartitionAnswer(NamedTuple):
    """What a broker said about one batch, or what kept it from saying anything."""

    error: MoldauError | None = None
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    record_faults: Mapping[int, str] = _NO_FAULTS  # by place in the batch


# How a batch ends


class Delivered(NamedTuple):
    """The batch is in the log. The offset is -1 where it was not told."""

    base_offset: int
    log_append_time_ms: int = NO_TIMESTAMP


class NotDelivered(NamedTuple):
    """The batch was refused or given up. `record_faults` are the records that were to blame."""

    error: MoldauError
    record_faults: Mapping[int, str] = _NO_FAULTS


class Divided(NamedTuple, Generic[P]):
    """The batch went on in parts: the place of each part's first record, and its promise."""

    parts: tuple[tuple[int, P], ...]


# Instructions


class Send(NamedTuple, Generic[P]):
    """Send these batches in one request; they follow what was sent to this broker before."""

    broker_id: int
    batches: Sequence[ProducerBatch[P]]


class Finish(NamedTuple, Generic[P]):
    """A batch has come to its end: tell whoever waits for it. Given once for each batch."""

    batch: ProducerBatch[P]
    outcome: Delivered | NotDelivered | Divided[P]


class RefreshTopics(NamedTuple):
    """Ask for the metadata of these topics."""

    topics: Collection[str]


class AskIdentity(NamedTuple):
    """Ask for a producer id."""


class GroupOffsets(NamedTuple):
    """Offsets that a group commits within a transaction."""

    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, GroupOffset]


class AskProducerId(NamedTuple):
    """Ask the transaction coordinator for a producer id, or for a new epoch of this one."""

    transactional_id: str
    identity: ProducerIdentity | None


class AskToAddPartitions(NamedTuple):
    """Have partitions belong to the transaction (before version 2)."""

    transactional_id: str
    identity: ProducerIdentity
    partitions: tuple[TopicPartition, ...]


class AskToAddOffsets(NamedTuple):
    """Have the offsets of a group belong to the transaction (before version 2)."""

    transactional_id: str
    identity: ProducerIdentity
    group_id: str


class AskToCommitOffsets(NamedTuple):
    """Ask the group's coordinator to commit offsets when the transaction is committed."""

    transactional_id: str
    identity: ProducerIdentity
    offsets: GroupOffsets


class AskToEnd(NamedTuple):
    transactional_id: str
    identity: ProducerIdentity
    is_commit: bool


TransactionRequest: TypeAlias = (
    AskProducerId | AskToAddPartitions | AskToAddOffsets | AskToCommitOffsets | AskToEnd
)


class AskCoordinator(NamedTuple):
    """Ask a coordinator, once: it comes back as `initialized`, `granted` or `refused`."""

    request: TransactionRequest


class FinishCall(NamedTuple):
    """How what the program asked of the transaction has ended."""

    call_id: int
    failure: MoldauError | None


class FinishFlush(NamedTuple):
    """Everything that was collected when this flush began has come to its end."""

    flush_id: int


class ReportRefusal(NamedTuple):
    """A partition cannot be written to at the moment; it is tried again."""

    partition: TopicPartition
    error: KafkaError


class ReportSuccess(NamedTuple):
    """A partition that could not be written to can be again."""

    partition: TopicPartition


Instruction: TypeAlias = (
    Send[P]
    | Finish[P]
    | RefreshTopics
    | AskIdentity
    | AskCoordinator
    | FinishCall
    | FinishFlush
    | ReportRefusal
    | ReportSuccess
)
