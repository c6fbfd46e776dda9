"""What the transactions of a simulated cluster were told to be, and what must never be. A rule.

Workers read a topic and write two records for each that they were given, with the group's offsets,
in transactions; each says what it is about to do before it does it:

- Nothing is read with `read_committed` of a transaction that was aborted, or that nobody has asked
  to commit (TXP-4).
- At the end all of a transaction can be read, or nothing; all if its commit was confirmed (TXN-4).
- What the group has committed and what can be read are the same: each record before the committed
  offset has its results once, in order, and none behind it has any (TXN-4).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from moldau.model import TopicPartition

COPIES: Final = 2
"""Results of one record, each in a partition of its own."""


class ToldEnd(Enum):
    """What is known of a transaction's end."""

    OPEN = "nobody asked to commit it"
    PREPARED = "it is prepared, and nobody has decided"
    ASKED = "its commit was asked for"
    COMMITTED = "its commit was confirmed"
    ABORTED = "it was aborted"


_MAY_BE_READ: Final = frozenset({ToldEnd.ASKED, ToldEnd.COMMITTED})


class WorkerResult(NamedTuple):
    """What a record says that was made from another: in whose transaction, and from which."""

    transaction: str
    source_partition: int
    source_offset: int
    copy: int

    def encode(self) -> bytes:
        return ":".join(map(str, self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> WorkerResult:
        name, *numbers = value.decode().split(":")
        return cls(name, *map(int, numbers))


class ReadRecord(NamedTuple):
    offset: int
    value: bytes


@dataclass(slots=True)
class _Told:
    outcome: ToldEnd = ToldEnd.OPEN
    written: list[bytes] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)  # of the group


class TransactionHistory:
    """Of the workers of one group. `report(rule, text)` hears of what must not be."""

    def __init__(
        self,
        group: str,
        report: Callable[[str, str], None],
        former: TransactionHistory | None = None,
    ) -> None:
        """Nothing is asked of what workers have done of whom a `former` history was told."""
        self.group = group
        self._former: set[str] = set()  # the names of their transactions
        if former is not None:
            self._former = former._former | former._told.keys()
        self._report = report
        self._told: dict[str, _Told] = {}
        self._seen: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)

    # Told by workers

    def begin(self, name: str) -> None:
        self._told[name] = _Told()

    def write(self, result: WorkerResult) -> None:
        """About to be sent."""
        self._told[result.transaction].written.append(result.encode())

    def send_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """About to be sent."""
        self._told[name].offsets.update(offsets)

    def end(self, name: str, outcome: ToldEnd) -> None:
        self._told[name].outcome = outcome

    def count(self, outcome: ToldEnd) -> int:
        return sum(1 for told in self._told.values() if told.outcome is outcome)

    # Told by readers

    def see(
        self, partition: TopicPartition, offset: int, value: bytes, *, by: str = "a consumer"
    ) -> None:
        """A reader of committed records was given one."""
        self._require_readable(partition, offset, value, by)
        self._seen[partition][offset] = value

    def _require_readable(
        self, partition: TopicPartition, offset: int, value: bytes, by: str = "a consumer"
    ) -> None:
        if self._is_former(value):
            return
        told = self._told.get(WorkerResult.decode(value).transaction)
        if told is None:
            self._report(
                "TXP-2", f"{partition}@{offset}: {by} reads {value!r}, which belongs nowhere"
            )
        elif told.outcome not in _MAY_BE_READ:
            self._report(
                "TXP-4",
                f"{partition}@{offset}: {by} reads {value!r} of a transaction: "
                f"{told.outcome.value}",
            )

    def _is_former(self, value: bytes) -> bool:
        return WorkerResult.decode(value).transaction in self._former

    # At the end

    def check_end(
        self,
        readable: Mapping[TopicPartition, Sequence[ReadRecord]],
        committed: Mapping[TopicPartition, int],
        given: Mapping[TopicPartition, Collection[int]],
    ) -> None:
        """`readable` is all that can be read with `read_committed`, `committed` are the group's
        offsets, and `given` the offsets of all records that there are to work on."""
        values: Counter[bytes] = Counter()
        for partition, records in readable.items():
            for record in records:
                self._require_readable(partition, *record)
            self._check_seen(partition, {each.offset: each.value for each in records})
            present = [each for each in records if not self._is_former(each.value)]
            self._check_order(partition, present)
            values.update(each.value for each in present)
        for name, told in self._told.items():
            self._check_whole(name, told, values, committed)
        self._check_sources(values, committed, given)

    def _check_seen(self, partition: TopicPartition, readable: Mapping[int, bytes]) -> None:
        for offset, value in self._seen[partition].items():
            if readable.get(offset) != value:
                self._report(
                    "TXP-4",
                    f"{partition}@{offset} read {value!r} once, and reads {readable.get(offset)!r}",
                )

    def _check_order(self, partition: TopicPartition, records: Sequence[ReadRecord]) -> None:
        last: dict[int, int] = {}  # by partition of the source
        for record in records:
            result = WorkerResult.decode(record.value)
            if result.source_offset <= last.get(result.source_partition, -1):
                self._report(
                    "TXN-4", f"{partition}@{record.offset}: {record.value!r} comes again, or late"
                )
            last[result.source_partition] = result.source_offset

    def _check_whole(
        self,
        name: str,
        told: _Told,
        values: Mapping[bytes, int],
        committed: Mapping[TopicPartition, int],
    ) -> None:
        missing = [value for value in told.written if not values.get(value)]
        is_there = len(missing) < len(told.written)
        if missing and (is_there or told.outcome is ToldEnd.COMMITTED):
            self._report(
                "TXN-4",
                f"{name} ({told.outcome.value}): {len(missing)} of {len(told.written)} records "
                f"cannot be read, {missing[0]!r} and others",
            )
        if not is_there and told.outcome is not ToldEnd.COMMITTED:
            return
        for partition, offset in told.offsets.items():
            if committed.get(partition, -1) < offset:
                self._report(
                    "TXN-4",
                    f"{name} can be read and has offset {offset} of {partition}; "
                    f"{self.group} has {committed.get(partition)}",
                )

    def _check_sources(
        self,
        values: Mapping[bytes, int],
        committed: Mapping[TopicPartition, int],
        given: Mapping[TopicPartition, Collection[int]],
    ) -> None:
        made: Counter[tuple[int, int]] = Counter()
        for value, count in values.items():
            result = WorkerResult.decode(value)
            made[result.source_partition, result.source_offset] += count
        for partition, offsets in given.items():
            end = committed.get(partition, 0)
            for offset in offsets:
                expected = COPIES if offset < end else 0
                found = made[partition.partition, offset]
                if found != expected:
                    self._report(
                        "TXN-4",
                        f"{partition}@{offset} has {found} results where {expected} have to be: "
                        f"{self.group} has committed {end}",
                    )
