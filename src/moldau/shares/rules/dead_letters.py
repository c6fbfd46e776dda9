"""What is written to the dead-letter topic of a share group (KIP-1191): why a record came to its
end without having been accepted, where it is, and if asked for, the record itself.

The names of the headers are Kafka's. A rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from moldau.model import TopicPartition
from moldau.records.record import NewRecord, Record
from moldau.shares.rules.in_flight import DeadRange

TOPIC_HEADER: Final = "__dlq.errors.topic"
PARTITION_HEADER: Final = "__dlq.errors.partition"
OFFSET_HEADER: Final = "__dlq.errors.offset"
GROUP_HEADER: Final = "__dlq.errors.group"
COUNT_HEADER: Final = "__dlq.errors.delivery.count"
MESSAGE_HEADER: Final = "__dlq.errors.message"

_REJECTED: Final = b"The record was rejected by a member of the group."
_TOO_OFTEN: Final = b"The record was delivered as often as the group allows."


class DeadLetterSettings(NamedTuple):
    """What a group has set."""

    topic: str = ""  # none without
    copies: bool = False  # the record too, not only where it is


def write_letters(
    source: TopicPartition,
    group_id: str,
    records: Iterable[Record],
    dead: Sequence[DeadRange],
    *,
    copies: bool,
    now_ms: int,
) -> Iterator[NewRecord]:
    """One for each record that is dead; the others are passed over."""
    for record in records:
        for first, end, delivery_count, is_rejected in dead:
            if first <= record.offset < end:
                yield NewRecord(
                    now_ms,
                    record.key if copies else None,
                    record.value if copies else None,
                    (
                        *(record.headers if copies else ()),
                        (TOPIC_HEADER, source.topic.encode()),
                        (PARTITION_HEADER, str(source.partition).encode()),
                        (OFFSET_HEADER, str(record.offset).encode()),
                        (GROUP_HEADER, group_id.encode()),
                        (COUNT_HEADER, str(delivery_count).encode()),
                        (MESSAGE_HEADER, _REJECTED if is_rejected else _TOO_OFTEN),
                    ),
                )
                break
