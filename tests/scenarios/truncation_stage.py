"""Plays stories about truncation: how the log of a follower becomes that of its leader.

There are two logs, which are nothing but the leader epochs of their records: `0-9@1` is ten records
that were written in epoch 1. The stage appends, asks and truncates as a partition does; the rules
decide where.

    leader 10@1 5@3             the leader's log: ten records of epoch 1, five of epoch 3
    follower 12@1               the follower's
    elect 4                     the leader leads in epoch 4, and has written nothing in it
    write 3@4                   the leader writes
    end of 2                    OffsetForLeaderEpoch: where an epoch ends on the leader
    fetch                       the follower asks for what is at its end, and does what it is told
    fetch all                   until it has the leader's log
    delete leader 5             the leader's log begins at an offset (or the follower's)
    compact follower 8          compaction has compared the follower's records up to an offset
    drop leader 6               the leader has dropped tombstones up to an offset
"""

from __future__ import annotations

from itertools import groupby

from moldau.replication.rules.truncation import (
    decide_truncation,
    find_cut,
    find_divergence,
    find_last_epoch,
    find_missed_deletions,
)
from moldau.storage.rules.epoch_cache import EpochCache, EpochEnd

_MOST_FETCHES = 10


class ReplicaLog:
    """A log, as far as truncation goes."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.records: list[tuple[int, int]] = []  # offset, epoch
        self.epochs = EpochCache()
        self.compared_offset = 0
        self.dropped_offset = 0

    @property
    def end_offset(self) -> int:
        return self.records[-1][0] + 1 if self.records else self.start_offset

    @property
    def last_epoch(self) -> int:
        return find_last_epoch(self.epochs, self.start_offset, self.end_offset)

    def append(self, offset: int, epoch: int) -> None:
        assert offset == self.end_offset
        self.records.append((offset, epoch))
        self.epochs = self.epochs.assign(epoch, offset)

    def truncate(self, end_offset: int) -> None:
        self.records = [one for one in self.records if one[0] < end_offset]
        self.epochs = self.epochs.truncate_from_end(end_offset)

    def delete_before(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.records = [one for one in self.records if one[0] >= start_offset]
        self.epochs = self.epochs.truncate_from_start(start_offset)

    def __str__(self) -> str:
        return _ranges(self.records)


class TruncationStage:
    """One story being played."""

    def __init__(self) -> None:
        self.leader, self.follower = ReplicaLog(), ReplicaLog()
        self._lines: list[str] = []

    def play(self, line: str) -> list[str]:
        """Run one command; return the lines that it leads to."""
        self._lines = []
        command, *words = line.split()
        getattr(self, f"_do_{command}")(words)
        return self._lines

    # Commands

    def _do_leader(self, words: list[str]) -> None:
        self.leader = _replica_log(words)
        self._lines.append(f"leader has {self.leader}")

    def _do_follower(self, words: list[str]) -> None:
        self.follower = _replica_log(words)
        self._lines.append(f"follower has {self.follower}")

    def _do_elect(self, words: list[str]) -> None:
        leader = self.leader
        leader.epochs = leader.epochs.assign(int(words[0]), leader.end_offset)

    def _do_write(self, words: list[str]) -> None:
        _append(self.leader, words)
        self._lines.append(f"leader has {self.leader}")

    def _do_end(self, words: list[str]) -> None:
        found = self.leader.epochs.end_offset_for(int(words[-1]), self.leader.end_offset)
        known = f"epoch {found.epoch} ends at {found.end_offset}"
        self._lines.append(f"leader: {'not known' if found.epoch < 0 else known}")

    def _do_delete(self, words: list[str]) -> None:
        self._log(words[0]).delete_before(int(words[1]))

    def _do_compact(self, words: list[str]) -> None:
        self._log(words[0]).compared_offset = int(words[1])

    def _do_drop(self, words: list[str]) -> None:
        self._log(words[0]).dropped_offset = int(words[1])

    def _do_fetch(self, words: list[str]) -> None:
        if not words:
            self._fetch()
            return
        for _ in range(_MOST_FETCHES):
            before = self.follower.end_offset, self.follower.last_epoch
            self._fetch()
            if before == (self.follower.end_offset, self.follower.last_epoch):
                break
        leader_part = [one for one in self.leader.records if one[0] >= self.follower.start_offset]
        is_same = leader_part == self.follower.records
        self._lines.append(
            f"follower has {self.follower}, {'as' if is_same else 'not as'} its leader"
        )

    # Between leader and follower

    def _fetch(self) -> None:
        leader, follower = self.leader, self.follower
        offset, last_epoch = follower.end_offset, follower.last_epoch
        self._lines.append(f"follower -> fetch at {offset}, last epoch {last_epoch}")
        diverging = find_divergence(leader.epochs, leader.end_offset, offset, last_epoch)
        diverging = diverging or find_missed_deletions(
            leader.start_offset, leader.dropped_offset, offset, last_epoch
        )
        if diverging is not None:
            self._lines.append(
                f"leader: diverges, epoch {diverging.epoch} ends at {diverging.end_offset}"
            )
            self._truncate(diverging)
        elif not leader.start_offset <= offset <= leader.end_offset:
            bounds = f"{leader.start_offset} to {leader.end_offset}"
            self._lines.append(f"leader: OFFSET_OUT_OF_RANGE, has {bounds}")
        else:
            new = [one for one in leader.records if one[0] >= offset]
            self._lines.append(f"leader: {_ranges(new)}")
            for one in new:
                follower.append(*one)
            if follower.start_offset < leader.start_offset:
                follower.delete_before(leader.start_offset)
                self._lines.append(f"follower begins at {leader.start_offset}")

    def _truncate(self, diverging: EpochEnd) -> None:
        follower = self.follower
        offset = decide_truncation(follower.epochs, follower.end_offset, *diverging)
        compared = follower.compared_offset
        cut = find_cut(offset, follower.start_offset, compared, compared)
        why = "" if cut == offset else f", since records before {offset} may be compacted away"
        self._lines.append(f"follower truncates to {cut}{why}")
        follower.truncate(cut)
        known = [f"{epoch} from {start}" for epoch, start in follower.epochs.entries]
        self._lines.append(f"follower knows epochs {', '.join(known) or 'none'}")

    def _log(self, name: str) -> ReplicaLog:
        return {"leader": self.leader, "follower": self.follower}[name]


def _replica_log(words: list[str]) -> ReplicaLog:
    log = ReplicaLog()
    _append(log, words)
    return log


def _append(log: ReplicaLog, words: list[str]) -> None:
    for word in words:
        count, epoch = map(int, word.split("@"))
        for _ in range(count):
            log.append(log.end_offset, epoch)


def _ranges(records: list[tuple[int, int]]) -> str:
    parts = []
    for epoch, some in groupby(records, key=lambda one: one[1]):
        offsets = [offset for offset, _ in some]
        parts.append(f"{offsets[0]}-{offsets[-1]}@{epoch}")
    return " ".join(parts) or "nothing"
