"""What the takers of a simulated share group were told, and what must never be. A rule.

Takers tell of every record that a broker has given them, whether they came to see it or not, of
what they are about to say of it, and of what was confirmed; whoever looks into the brokers tells
what a leader knows. So it can be said:

- A record that was accepted or rejected with the broker's word for it is given to nobody whose
  request was sent after that, whoever leads (SHR-8).
- In the end every record was accepted, rejected, or delivered as often as the group allows; with a
  dead-letter topic, what was not accepted has a letter (SHR-9).
- A record is delivered `delivery.count.limit` times at most (SHR-5).
- Once an alteration of the group's offsets was confirmed, a member that joins later is given no
  record before the new offset, and every record from there on comes to its end once more, whatever
  was said of it before (SHR-13).
- A group that reads committed records only gets none of a transaction that was aborted or has no
  end (SHR-12).
- Under one leader, while its session lasts, the delivery count of a record does not go down
  (SHR-10); and the start offset never goes back, whoever leads, while nobody alters it (SHR-2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from moldau.model import AcknowledgeType, TopicPartition
from moldau.shares.rules.offset_runs import OffsetRun

_FINAL = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})


class SeenLeader(NamedTuple):
    """What a leader knows of a share partition."""

    host: str
    leader_epoch: int
    start_offset: int
    runs: tuple[OffsetRun, ...]
    state_epoch: int = 0
    """Who alters the group's offsets begins another one."""
    loads: int = 1
    """How often leaders have loaded the share partition: one whose session was lost does it again,
    under the same epoch, and knows what was stored."""


@dataclass(slots=True)
class _Alteration:
    """Where the group begins since its offsets were altered, and what is not told of it."""

    number: int
    start_offset: int
    lost_answers: int
    confirmed_at: float = inf


_UNALTERED: Final = _Alteration(0, 0, 0)


@dataclass(slots=True)
class _Told:
    """Of one record."""

    deliveries: int = 0  # that takers have heard of
    was_accepted: bool = False  # somebody was about to say so; whether it arrived or not
    was_rejected: bool = False
    confirmed_at: float | None = None
    confirmed: AcknowledgeType | None = None


class ShareHistory:
    """Of one group. `report(rule, text)` hears of what must not be."""

    def __init__(self, group: str, delivery_limit: int, report: Callable[[str, str], None]) -> None:
        self.group = group
        self.confirmed = 0  # accepted or rejected, with the broker's word for it
        self._limit = delivery_limit
        self._report = report
        self._told: defaultdict[tuple[TopicPartition, int], _Told] = defaultdict(_Told)
        self._lost_answers = 0  # each may have had records
        self._altered: dict[TopicPartition, _Alteration] = {}
        self._newest: dict[TopicPartition, SeenLeader] = {}
        self._counts: dict[tuple[TopicPartition, int], int] = {}  # of the newest leader, locked

    # Told by takers

    def receive(
        self,
        partition: TopicPartition,
        offsets: Iterable[int],
        delivery_count: int,
        sent_at: float,
        member_since: float = inf,
    ) -> None:
        """An answer has these records; its request was sent then, and not before. Who is a member
        no more since it was frozen may not have heard so yet."""
        altered = self._altered.get(partition, _UNALTERED)
        for offset in offsets:
            if offset < altered.start_offset and altered.confirmed_at < min(sent_at, member_since):
                self._report(
                    "SHR-13",
                    f"{partition}@{offset} is delivered to {self.group} on a request of "
                    f"{sent_at:.3f}, after it was confirmed at {altered.confirmed_at:.3f} that the "
                    f"group begins at {altered.start_offset}",
                )
            told = self._told[partition, offset]
            told.deliveries += 1
            if told.confirmed_at is not None and told.confirmed_at < sent_at:
                self._report(
                    "SHR-8",
                    f"{partition}@{offset} is delivered to {self.group} on a request of "
                    f"{sent_at:.3f}, after {told.confirmed} was confirmed at "
                    f"{told.confirmed_at:.3f}",
                )
            if delivery_count > self._limit:
                self._report(
                    "SHR-5",
                    f"{partition}@{offset} is delivered {delivery_count} times, and "
                    f"{self._limit} are allowed",
                )

    def lose_answers(self, count: int = 1) -> None:
        """So many requests for records may have had answers that nobody saw."""
        self._lost_answers += count

    def attempt(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """A taker is about to say what became of a record."""
        told = self._told[partition, offset]
        told.was_accepted |= kind is AcknowledgeType.ACCEPT
        told.was_rejected |= kind is AcknowledgeType.REJECT

    def confirm(
        self, partition: TopicPartition, offset: int, kind: AcknowledgeType, now: float
    ) -> None:
        """The broker has said that it counts."""
        told = self._told[partition, offset]
        if kind in _FINAL and told.confirmed_at is None:
            told.confirmed_at, told.confirmed = now, kind
            self.confirmed += 1

    # Told by whoever alters offsets

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those of which takers have had records."""
        return sorted({partition for partition, _ in self._told})

    def alteration(self, partition: TopicPartition) -> int:
        """How often it was altered: what is said of records from before does not count."""
        return self._altered.get(partition, _UNALTERED).number

    def alter(self, partition: TopicPartition, start_offset: int) -> None:
        """Somebody is about to have the group begin there; nobody takes anything meanwhile."""
        number = self.alteration(partition) + 1
        self._altered[partition] = _Alteration(number, start_offset, self._lost_answers)
        for place in [place for place in self._told if place[0] == partition]:
            del self._told[place]

    def confirm_alteration(self, partition: TopicPartition, now: float) -> None:
        self._altered[partition].confirmed_at = now

    # Told by whoever looks into the brokers

    def see_leader(self, partition: TopicPartition, seen: SeenLeader) -> None:
        former = self._newest.get(partition)
        if former is not None and seen.state_epoch > former.state_epoch:
            former = None
        if former is not None and (
            seen.leader_epoch < former.leader_epoch or seen.state_epoch < former.state_epoch
        ):
            return  # it does not know yet that it was replaced, or that the offsets were altered
        if former is not None and seen.start_offset < former.start_offset:
            self._report(
                "SHR-2",
                f"{seen.host} begins at {seen.start_offset} of {partition} for {self.group}, and "
                f"{former.host} began at {former.start_offset}",
            )
        if former is None or (seen.leader_epoch, seen.loads) > (
            former.leader_epoch,
            former.loads,
        ):
            self._counts = {
                place: count for place, count in self._counts.items() if place[0] != partition
            }
        self._newest[partition] = seen
        for run in seen.runs:
            if not run.lot.is_final:
                self._see_run(partition, seen, run)

    def _see_run(self, partition: TopicPartition, seen: SeenLeader, run: OffsetRun) -> None:
        count = run.lot.delivery_count
        for offset in range(run.first, run.end):
            known = self._counts.get((partition, offset), 0)
            if count < known:
                self._report(
                    "SHR-10",
                    f"{seen.host} has delivered {partition}@{offset} {count} times to "
                    f"{self.group}, and had {known} times in epoch {seen.leader_epoch}",
                )
            if count and not run.lot.is_available:
                self._counts[partition, offset] = max(known, count)

    # At the end

    def check_end(
        self,
        present: Mapping[TopicPartition, Collection[int]],
        letters: Collection[tuple[TopicPartition, int]] | None,
        withheld: Mapping[TopicPartition, Collection[int]] = MappingProxyType({}),
    ) -> None:
        """`present` are the offsets of all records that the group has to have had; `letters` are
        those with a dead letter, None without a topic for these. The group may not have had those
        that are `withheld`."""
        for partition, offsets in withheld.items():
            for offset in offsets:
                if (partition, offset) in self._told and self._told[partition, offset].deliveries:
                    self._report(
                        "SHR-12",
                        f"{partition}@{offset} was delivered to {self.group}, and is no record of "
                        "a committed transaction",
                    )
        for partition, offsets in present.items():
            start_offset = self._altered.get(partition, _UNALTERED).start_offset
            for offset in offsets:
                if offset >= start_offset:
                    self._check_fate(partition, offset, letters)

    def _check_fate(
        self,
        partition: TopicPartition,
        offset: int,
        letters: Collection[tuple[TopicPartition, int]] | None,
    ) -> None:
        told = self._told[partition, offset]
        if told.was_accepted:
            return
        if letters is not None and (partition, offset) not in letters:
            self._report(
                "SHR-9",
                f"{partition}@{offset} was never accepted in {self.group}, and has no dead letter",
            )
        altered = self._altered.get(partition, _UNALTERED)
        most = told.deliveries + self._lost_answers - altered.lost_answers
        if not told.was_rejected and most < self._limit:
            self._report(
                "SHR-9",
                f"{partition}@{offset} was delivered {most} times to {self.group} at most, and "
                "never accepted or rejected",
            )
