"""What the clients of a simulated cluster saw, and what must never be seen. A rule over values.

Clients report what they were told; the history compares it with all that was told before and
notes a `Violation` where a promise of `docs/replication.md` was broken:

- a record acknowledged with acks=all is in the log of every member of the in-sync set in force,
  and is at its offset, with its bytes, for ever (REP-3);
- what a consumer saw at an offset does not change and does not vanish (HW-3);
- nothing of an idempotent producer is there twice, nor out of order (SEQ-1);
- a committed position of a group does not go back;
- there is one leader for each epoch of a partition, and epochs grow (REP-1);
- two replicas have the same bytes where they have the same offset and epoch, and everywhere
  below the high watermark (REP-2).

Partitions come and go: one that was never heard of has an empty history, `forget_topic` ends those
of a topic that is deleted, and `delete_before` tells that records may be gone up to an offset.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from moldau.model import Offset, TopicPartition


class Violation(NamedTuple):
    """A broken promise."""

    at_seconds: float
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.at_seconds:9.4f} {self.rule}: {self.text}"


class StoredBatch(NamedTuple):
    """A batch in the log of a replica."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    content: bytes


@dataclass(slots=True)
class _PartitionHistory:
    acknowledged: dict[int, bytes] = field(default_factory=dict)  # by offset; acks=all
    seen: dict[int, bytes] = field(default_factory=dict)  # by offset; by any consumer
    leaders: dict[int, int] = field(default_factory=dict)  # by leader epoch
    newest_epoch: int = -1
    batches: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by offset and epoch
    promised_end: int = 0  # behind the last record that was acknowledged or seen
    deleted_before: int = 0  # records before this offset may be gone
    kept_end: int | None = None  # all machines have lost power, and more was not kept


@dataclass(slots=True)
class _GroupHistory:
    acknowledged: int = -1  # the highest offset that a commit was answered for
    attempted: int = -1


class ClusterHistory:
    """All that was told. One for each run."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self.now = now
        self.violations: list[Violation] = []
        self.is_muted = False  # a story does what no broker may do
        self.commits_answered = 0
        self.power_losses = 0  # of all machines at once
        self.on_promise: Callable[[TopicPartition], None] | None = None  # more was promised
        self._partitions: defaultdict[TopicPartition, _PartitionHistory]
        self._partitions = defaultdict(_PartitionHistory)
        self._groups: dict[str, _GroupHistory] = {}
        self.moves = MoveTargets()

    def report(self, rule: str, text: str) -> None:
        if not self.is_muted:
            self.violations.append(Violation(self.now(), rule, text))

    @contextlib.contextmanager
    def muted(self) -> Iterator[None]:
        """While a story does something to the store that no broker may do."""
        self.is_muted = True
        yield
        self.is_muted = False

    def _of(self, partition: TopicPartition) -> _PartitionHistory:
        return self._partitions[partition]

    # Told by operators

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted; one of the same name that is made later is another one."""
        for partition in [each for each in self._partitions if each.topic == topic]:
            del self._partitions[partition]
        self.moves.forget_topic(topic)

    def delete_before(self, partition: TopicPartition, offset: int) -> None:
        """Somebody asks to delete the records before an offset; tell it before it is asked."""
        history = self._of(partition)
        history.deleted_before = max(history.deleted_before, offset)

    def branch(self, source: TopicPartition, target: TopicPartition, end_offset: int) -> None:
        """A branch was made that has the records before an offset: what was promised of them to
        the clients of its origin is promised to its own."""
        origin, history = self._of(source), self._of(target)
        for told, taken in (
            (origin.acknowledged, history.acknowledged),
            (origin.seen, history.seen),
        ):
            taken.update({one: value for one, value in told.items() if one < end_offset})
        self.promise(target, end_offset)

    # Told by clients

    def acknowledge(
        self, partition: TopicPartition, base_offset: int, values: Sequence[bytes]
    ) -> None:
        """A produce request with acks=all was answered without an error."""
        history = self._of(partition)
        for offset, value in enumerate(values, base_offset):
            for told, by in ((history.acknowledged, "acknowledged"), (history.seen, "seen")):
                former = told.get(offset)
                if former not in (None, value):
                    self.report(
                        "REP-3",
                        f"{partition}@{offset} was {by} as {former!r} and is acknowledged as "
                        f"{value!r}",
                    )
            history.acknowledged[offset] = value
        history.promised_end = max(history.promised_end, base_offset + len(values))
        if self.on_promise is not None:
            self.on_promise(partition)

    def see(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A consumer read a record."""
        history = self._of(partition)
        for told, by in ((history.acknowledged, "acknowledged"), (history.seen, "seen")):
            former = told.get(offset)
            if former not in (None, value):
                self.report(
                    "REP-3", f"{partition}@{offset} was {by} as {former!r} and reads {value!r}"
                )
        history.seen[offset] = value
        history.promised_end = max(history.promised_end, offset + 1)
        if self.on_promise is not None:
            self.on_promise(partition)

    def attempt_commit(self, group: str, offset: int) -> None:
        told = self._groups.setdefault(group, _GroupHistory())
        told.attempted = max(told.attempted, offset)

    def acknowledge_commit(self, group: str, offset: int) -> None:
        told = self._groups.setdefault(group, _GroupHistory())
        told.acknowledged = max(told.acknowledged, offset)
        self.commits_answered += 1

    def committed_offset(self, group: str) -> int:
        """The highest that was ever answered; what is read from now on is not below it."""
        return self._groups.setdefault(group, _GroupHistory()).acknowledged

    def see_committed(self, group: str, offset: int, at_least: int) -> None:
        """The group's committed offset was read; `at_least` was it before it was asked for."""
        told = self._groups.setdefault(group, _GroupHistory())
        if offset < at_least:
            self.report("GRP", f"the offset of {group} went back from {at_least} to {offset}")
        if offset > told.attempted:
            self.report("GRP", f"the offset of {group} is {offset}, which nobody committed")
        told.acknowledged = max(told.acknowledged, offset)

    # Told by the coordination service and the disks

    def forgive_after(self, partition: TopicPartition, end_offset: int) -> None:
        """All machines lost power, and no disk kept more than this."""
        history = self._of(partition)
        history.promised_end = min(history.promised_end, end_offset)
        former = end_offset if history.kept_end is None else history.kept_end
        history.kept_end = min(former, end_offset)
        for told in (history.acknowledged, history.seen):
            for offset in [each for each in told if each >= end_offset]:
                del told[offset]

    def kept_end(self, partition: TopicPartition) -> int | None:
        """Up to where a power loss of all machines has left it; None when there was none."""
        return self._of(partition).kept_end

    def is_acknowledged(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record at this offset was promised, and not forgiven since."""
        return offset in self._of(partition).acknowledged

    def promised_end(self, partition: TopicPartition) -> int:
        """The offset behind the last record that was acknowledged or seen."""
        return self._of(partition).promised_end

    def promise(self, partition: TopicPartition, end_offset: int) -> None:
        """Somebody was told of something in the log before this offset."""
        history = self._of(partition)
        history.promised_end = max(history.promised_end, end_offset)
        if self.on_promise is not None:
            self.on_promise(partition)

    def see_in_sync(self, partition: TopicPartition, replica: int, end_offset: int) -> None:
        """The log of a member of the in-sync set in force ends there."""
        promised = self._of(partition).promised_end
        if end_offset < promised:
            self.report(
                "REP-3",
                f"broker {replica} is in sync in {partition} and its log ends at {end_offset}, "
                f"before the promised {promised}",
            )

    def see_state(self, partition: TopicPartition, leader: int, leader_epoch: int) -> None:
        history = self._of(partition)
        if leader_epoch < history.newest_epoch:
            self.report(
                "REP-1",
                f"the epoch of {partition} went back from {history.newest_epoch} to {leader_epoch}",
            )
        history.newest_epoch = max(history.newest_epoch, leader_epoch)
        former = history.leaders.setdefault(leader_epoch, leader)
        if leader >= 0 and former not in (leader, -1):
            self.report(
                "REP-1",
                f"both {former} and {leader} lead {partition} in epoch {leader_epoch}",
            )
        if leader >= 0:
            history.leaders[leader_epoch] = leader

    def see_log(
        self, partition: TopicPartition, replica: str, batches: Iterable[StoredBatch]
    ) -> None:
        """One leader per epoch writes an offset once: equal offset and epoch, equal bytes."""
        known = self._of(partition).batches
        for batch in batches:
            place = (batch.base_offset, batch.leader_epoch)
            former = known.setdefault(place, batch.content)
            if former != batch.content:
                self.report(
                    "REP-1",
                    f"{replica} has another batch of epoch {batch.leader_epoch} at "
                    f"{partition}@{batch.base_offset} than was seen before",
                )

    # At the end

    def check_final_log(
        self, partition: TopicPartition, reader: str, values: Mapping[int, bytes], start: int
    ) -> None:
        """`values` is what can be read now, by offset, from `start` on."""
        history = self._of(partition)
        start = max(start, history.deleted_before)
        for told, by in ((history.acknowledged, "acknowledged"), (history.seen, "seen")):
            for offset, value in told.items():
                if offset >= start and values.get(offset) != value:
                    self.report(
                        "REP-3",
                        f"{partition}@{offset} was {by} as {value!r}; {reader} has "
                        f"{values.get(offset)!r}",
                    )

    def check_order(self, partition: TopicPartition, values: Iterable[bytes]) -> None:
        """Values of idempotent producers, `name:number`, come once and in order."""
        last: dict[str, int] = {}
        for value in values:
            name, _, number = value.decode().partition(":")
            if int(number) <= last.get(name, -1):
                self.report("SEQ-1", f"{value!r} comes again, or late, in {partition}")
            last[name] = max(int(number), last.get(name, -1))

    def check_equal(
        self, partition: TopicPartition, logs: Mapping[str, Sequence[StoredBatch]], end: int
    ) -> None:
        """All replicas are equal below `end`."""
        first: tuple[str, list[StoredBatch]] | None = None
        for replica, batches in logs.items():
            below = [batch for batch in batches if batch.base_offset < end]
            if first is None:
                first = replica, below
            elif below != first[1]:
                self.report(
                    "REP-2",
                    f"{replica} and {first[0]} differ in {partition} below {end}: "
                    f"{_first_difference(below, first[1])}",
                )

    def check_moves(self, replicas: Mapping[TopicPartition, Collection[int]]) -> None:
        """What was sent somewhere is there, when nothing is on its way any more."""
        for text in self.moves.find_lost(replicas):
            self.report("MOVE", text)

    @property
    def acknowledged_records(self) -> int:
        return sum(len(each.acknowledged) for each in self._partitions.values())

    @property
    def seen_records(self) -> int:
        return sum(len(each.seen) for each in self._partitions.values())


def _first_difference(left: Sequence[StoredBatch], right: Sequence[StoredBatch]) -> str:
    for one, other in zip(left, right, strict=False):
        if one != other:
            return f"{one[:3]} and {other[:3]}"
    return f"{len(left)} and {len(right)} batches"


# Where partitions may be in the end, by what operators asked for and were told. A rule.
#
# A move that was acknowledged comes about, unless somebody asks for another one. One that was given
# up may come about or not, at any later time. A cancellation goes back to where the partition was
# before, which depends on how far it had come: after one, it may be anywhere.


@dataclass(slots=True, eq=False)
class AskedMove:
    """One request, as its operator sees it."""

    partition: TopicPartition
    replicas: frozenset[int] | None  # None: back to where it was
    began: int
    ended: int | None = None  # None: it is under way, or in doubt
    is_acknowledged: bool = False


@dataclass(slots=True)
class MoveTargets:
    """All moves of a run. Requests are numbered in the order in which they begin and end."""

    _moves: list[AskedMove] = field(default_factory=list)
    _events: int = 0

    def ask_move(self, partition: TopicPartition, replicas: Iterable[int] | None) -> AskedMove:
        self._events += 1
        wanted = None if replicas is None else frozenset(replicas)
        move = AskedMove(partition, wanted, began=self._events)
        self._moves.append(move)
        return move

    def answer(self, move: AskedMove, error_code: int | None, *, is_in_doubt: bool = False) -> None:
        """0: it was accepted; another code: it was refused; None: it was given up.

        What was asked for more than once, without an answer, may come about again later.
        """
        self._events += 1
        move.is_acknowledged = error_code == 0
        if error_code is not None and not is_in_doubt:
            move.ended = self._events

    def forget_topic(self, topic: str) -> None:
        self._moves = [move for move in self._moves if move.partition.topic != topic]

    def may_leave(self, partition: TopicPartition, replicas: Iterable[int]) -> frozenset[int]:
        """Those of a partition's replicas that a request may take away at any moment.

        Of an acknowledged move nobody but the cluster knows how far it is, so the last one counts;
        and where a cancellation leads to is not known at all.
        """
        moves = [move for move in self._moves if move.partition == partition]
        acknowledged = [move for move in moves if move.is_acknowledged]
        open_moves = [*(move for move in moves if move.ended is None), *acknowledged[-1:]]
        present = frozenset(replicas)
        return frozenset().union(*(present - (move.replicas or frozenset()) for move in open_moves))

    def find_lost(self, replicas: Mapping[TopicPartition, Collection[int]]) -> list[str]:
        """The partitions that are where nobody sent them, after an acknowledged move."""
        lost = []
        for partition, present in sorted(replicas.items()):
            moves = [move for move in self._moves if move.partition == partition]
            possible = self._possible(moves)
            if possible is not None and frozenset(present) not in possible:
                wanted = sorted(sorted(each) for each in possible)
                lost.append(f"{partition} is on {sorted(present)}, and was sent to {wanted}")
        return lost

    def _possible(self, moves: list[AskedMove]) -> list[frozenset[int]] | None:
        """None when it may be anywhere."""
        accepted = [move for move in moves if move.is_acknowledged]
        if not accepted:
            return None
        last = max(accepted, key=lambda move: move.began)
        late = [move for move in moves if _may_follow(move, last)]
        targets = [move.replicas for move in (last, *late)]
        return None if None in targets else [each for each in targets if each is not None]


def _may_follow(move: AskedMove, last: AskedMove) -> bool:
    """Whether a move may have come about after another one."""
    if move is last or (move.ended is not None and not move.is_acknowledged):
        return False
    return move.ended is None or move.ended > last.began


# Looks at the offsets that the brokers of a simulated cluster keep in memory (HW-1, HW-2, HW-4).
#
# What is wrong there may never be seen by a client, or much later, when the replica happens to
# lead; so it is looked at where it is, whenever something was promised. A rule over what brokers
# hold; it changes nothing and waits for nothing.


class HeldLog(Protocol):
    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...


class HeldReplica(Protocol):
    """As much as is looked at of `moldau.replication.partition.Partition`."""

    @property
    def log(self) -> HeldLog: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def last_stable_offset(self) -> Offset: ...


class _Led(NamedTuple):
    leader_epoch: int
    high_watermark: int


class ClusterWatermarks:
    """One for each run."""

    def __init__(self, history: ClusterHistory) -> None:
        self._history = history
        self._led: dict[tuple[str, UUID, int], _Led] = {}  # by broker and partition

    def see(self, host: str, replicas: Iterable[HeldReplica]) -> None:
        for replica in replicas:
            self._see_bounds(host, replica)
            if replica.is_leader:
                self._see_leader(host, replica)

    def _see_bounds(self, host: str, replica: HeldReplica) -> None:
        start, end = replica.log.log_start_offset, replica.log.log_end_offset
        high_watermark, stable = replica.high_watermark, replica.last_stable_offset
        if not start <= high_watermark <= end:
            self._history.report(
                "HW-1",
                f"{host} has the high watermark {high_watermark} of {replica.topic_partition}, "
                f"whose log goes from {start} to {end}",
            )
        if stable > high_watermark:
            self._history.report(
                "HW-4",
                f"{host} has the last stable offset {stable} of {replica.topic_partition} past "
                f"the high watermark {high_watermark}",
            )

    def _see_leader(self, host: str, replica: HeldReplica) -> None:
        place = host, replica.topic_id, replica.topic_partition.partition
        now = _Led(replica.leader_epoch, replica.high_watermark)
        former = self._led.get(place)
        is_same = former is not None and former.leader_epoch == now.leader_epoch
        if former is not None and is_same and now.high_watermark < former.high_watermark:
            self._history.report(
                "HW-2",
                f"{host}, leader of {replica.topic_partition} in epoch {now.leader_epoch}, "
                f"went back from {former.high_watermark} to {now.high_watermark}",
            )
        self._led[place] = now
