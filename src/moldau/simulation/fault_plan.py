"""Faults on request, and the faults and operations of a run, drawn from its seed. Rules."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, Generic, TypeVar

# A plan says what is tried. Whether a fault that destroys data may happen at its time is decided by
# the cluster, which knows who is in sync (`docs/replication.md`, the fault model).


class FaultKind(Enum):
    """The name is what a schedule prints."""

    CRASH = "crash"  # the process is killed; what it wrote stays
    CRASH_CONTROLLER = "crash the controller"
    CRASH_ALL = "crash all"
    POWER_LOSS = "power loss"  # what was not flushed may vanish
    EMPTY_DISK = "empty disk"  # the disk was replaced
    UNMOUNT = "unmounted disk"  # the broker finds an empty folder for a while
    STOP = "stop"  # a controlled shutdown
    PAUSE = "pause"
    CUT = "cut"
    CUT_ONE_WAY = "cut one way"
    ISOLATE = "isolate"
    CUT_COORDINATION = "cut from coordination"
    CUT_COORDINATION_ONE_WAY = "cut from coordination one way"
    DROP_COORDINATION = "drop the coordination connection"
    COORDINATION_OUTAGE = "coordination outage"
    EXPIRE = "expire the session"
    DROP_CONNECTIONS = "drop connections"
    SLOW_LINK = "slow link"
    SLOW_DISK = "slow disk"
    FAIL_WRITE = "failing write"
    FAIL_SYNC = "failing sync"
    CLOCK_JUMP = "clock jump"
    LOSE_FILES = "lost files"  # somebody removes or cuts files of a log while its broker is stopped
    ELECT_COORDINATION = "coordination election"  # another leader; writes under way are done or not
    CUT_OFF_COORDINATION = "coordination server off"  # one server of the ensemble, with its clients
    KILL_SUPERVISOR = "kill the supervisor"  # of brokers on one machine (`served_store`)
    PAUSE_SUPERVISOR = "pause the supervisor"


HARMLESS: Final = tuple(
    kind
    for kind in FaultKind
    if kind
    not in (
        FaultKind.POWER_LOSS,
        FaultKind.EMPTY_DISK,
        FaultKind.UNMOUNT,
        FaultKind.FAIL_WRITE,
        FaultKind.FAIL_SYNC,
        FaultKind.LOSE_FILES,
        FaultKind.ELECT_COORDINATION,
        FaultKind.CUT_OFF_COORDINATION,
        FaultKind.KILL_SUPERVISOR,
        FaultKind.PAUSE_SUPERVISOR,
    )
)
"""No disk loses anything by them."""

ON_ONE_MACHINE: Final = (
    FaultKind.CRASH,
    FaultKind.CRASH_CONTROLLER,
    FaultKind.CRASH_ALL,
    FaultKind.STOP,
    FaultKind.PAUSE,
    FaultKind.DROP_CONNECTIONS,
    FaultKind.SLOW_DISK,
    FaultKind.FAIL_WRITE,
    FaultKind.CLOCK_JUMP,
    FaultKind.KILL_SUPERVISOR,
    FaultKind.PAUSE_SUPERVISOR,
)
"""What happens to the processes of `moldau start --brokers`."""

_WEIGHTS: Final = {
    FaultKind.CRASH: 10,
    FaultKind.CRASH_CONTROLLER: 5,
    FaultKind.CRASH_ALL: 2,
    FaultKind.POWER_LOSS: 12,
    FaultKind.EMPTY_DISK: 3,
    FaultKind.UNMOUNT: 5,
    FaultKind.STOP: 5,
    FaultKind.PAUSE: 10,
    FaultKind.CUT: 6,
    FaultKind.CUT_ONE_WAY: 6,
    FaultKind.ISOLATE: 5,
    FaultKind.CUT_COORDINATION: 6,
    FaultKind.CUT_COORDINATION_ONE_WAY: 4,
    FaultKind.DROP_COORDINATION: 4,
    FaultKind.COORDINATION_OUTAGE: 2,
    FaultKind.EXPIRE: 6,
    FaultKind.DROP_CONNECTIONS: 3,
    FaultKind.SLOW_LINK: 4,
    FaultKind.SLOW_DISK: 3,
    FaultKind.FAIL_WRITE: 2,
    FaultKind.FAIL_SYNC: 2,
    FaultKind.CLOCK_JUMP: 2,
    FaultKind.LOSE_FILES: 5,
    FaultKind.ELECT_COORDINATION: 5,
    FaultKind.CUT_OFF_COORDINATION: 5,
    FaultKind.KILL_SUPERVISOR: 15,
    FaultKind.PAUSE_SUPERVISOR: 10,
}
_EXTRAS: Final = (
    (0.25, 1, (FaultKind.LOSE_FILES,)),
    (0.2, 3, (FaultKind.ELECT_COORDINATION, FaultKind.CUT_OFF_COORDINATION)),
)
"""Share of the seeds, how many faults, and their kinds: in addition, so that what the seeds
had before they still have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    at_seconds: float
    kind: FaultKind
    broker: int
    other: int  # the second broker of a link
    seconds: float  # how long it lasts, or until the broker comes back
    amount: float  # from 0 to 1; what it means depends on the kind

    def __str__(self) -> str:
        pair = f"{self.broker}-{self.other}" if "cut" in self.kind.value else f"{self.broker}"
        return f"{self.at_seconds:8.3f} {self.kind.value} {pair} for {self.seconds:.3f} s"


def draw_plan(
    random: Random,
    brokers: Sequence[int],
    *,
    start_seconds: float,
    end_seconds: float,
    session_seconds: float,
    kinds: Sequence[FaultKind] | None = None,
) -> list[PlannedFault]:
    """Three to nine faults, and sometimes a few more. About half of the seeds keep to a few kinds,
    which then meet."""
    has_extra = kinds is None
    if kinds is None:
        extra = {kind for _, _, kinds in _EXTRAS for kind in kinds}
        extra |= {FaultKind.KILL_SUPERVISOR, FaultKind.PAUSE_SUPERVISOR}
        kinds = [kind for kind in FaultKind if kind not in extra]
        if random.random() < 0.5:
            kinds = random.sample(kinds, 4)
    weights = [_WEIGHTS[kind] for kind in kinds]
    times = sorted(random.uniform(start_seconds, end_seconds) for _ in range(random.randint(3, 9)))

    def draw(at_seconds: float, kinds: Sequence[FaultKind], weights: Sequence[int]) -> PlannedFault:
        broker, other = random.sample(list(brokers), 2)
        return PlannedFault(
            at_seconds=at_seconds,
            kind=random.choices(kinds, weights)[0],
            broker=broker,
            other=other,
            seconds=_draw_seconds(random, session_seconds),
            amount=random.random(),
        )

    faults = [draw(at_seconds, kinds, weights) for at_seconds in times]
    for share, number, extra_kinds in _EXTRAS if has_extra else ():
        if random.random() < share:
            weights = [_WEIGHTS[kind] for kind in extra_kinds]
            for _ in range(number):
                at_seconds = random.uniform(start_seconds, end_seconds)
                faults.append(draw(at_seconds, extra_kinds, weights))
    return sorted(faults, key=lambda fault: fault.at_seconds)


def _draw_seconds(random: Random, session_seconds: float) -> float:
    """Shorter than a lease, around the end of a session, or well beyond it."""
    shortest, longest = random.choice(((0.05, 0.5), (0.5, 1.2), (1.2, 3.0)))
    return random.uniform(shortest, longest) * session_seconds


# What the operators of a simulated cluster do, and when: drawn from a seed. A rule.
#
# Operations are what people ask of a healthy cluster (move a partition, elect, add partitions), as
# faults are what happens to it. They come in families, one for each subject. Every
# family draws from a random source of its own: a family that is added, or draws one number more,
# changes neither the faults of a seed nor the operations of the others.
#
# A plan says what is tried, and when. What exactly (which partition, where to) depends on what the
# cluster looks like then, and is drawn by the operation itself from the number it was given.


OPERATED_SHARE: Final = 0.5
"""Of the seeds, in how many somebody operates the cluster at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOperation:
    at_seconds: float
    family: str
    kind: str
    number: int  # the seed of all that the operation chooses

    def __str__(self) -> str:
        return f"{self.at_seconds:8.3f} {self.family}: {self.kind} ({self.number})"


def has_operations(random: Random) -> bool:
    """Whether a seed has operations; each family then decides for itself."""
    return random.random() < OPERATED_SHARE


def draw_operations(
    random: Random,
    family: str,
    weights: Mapping[str, int],
    *,
    share: float,
    fewest: int,
    most: int,
    start_seconds: float,
    end_seconds: float,
) -> list[PlannedOperation]:
    """The operations of one family, in the order of their times; none where the seed has none.

    `share` is how many of the seeds with operations have some of this family. In every second of
    these, operations come close to each other, so that they meet.
    """
    if random.random() >= share:
        return []
    count = random.randint(fewest, most)
    if random.random() < 0.5:
        start_seconds = random.uniform(start_seconds, (start_seconds + end_seconds) / 2)
        end_seconds = min(end_seconds, start_seconds + 0.4 * count)
    times = sorted(random.uniform(start_seconds, end_seconds) for _ in range(count))
    kinds, chances = list(weights), list(weights.values())
    return [
        PlannedOperation(
            at_seconds=at_seconds,
            family=family,
            kind=random.choices(kinds, chances)[0],
            number=random.randrange(1 << 32),
        )
        for at_seconds in times
    ]


# Faults on request, and faults from a seed.
#
# `FaultTable` holds what shall go wrong and is asked at every step where something can: the memory
# file system and the memory network have one each, and so may anything else that takes faults (an
# API of a broker, by its name). `SeededStreams` turns one seed into as many independent random
# sources as are wanted, so that a failing run can be repeated from its seed alone.
#
# Not here: when faults happen in a run of a whole cluster. That is a schedule, and its owner draws
# it from a stream.


Outcome = TypeVar("Outcome")

ANY_OPERATION = "*"


class SeededStreams:
    """Random sources by name, all from one seed.

    A source depends on the seed and its own name only: drawing one more number for the network
    does not change what happens to the disks.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def stream(self, name: str) -> Random:
        """The source of this name; the same object for every caller."""
        found = self._streams.get(name)
        if found is None:
            # A string is hashed with SHA-512 by Random, so the sources are unrelated and do not
            # depend on the process (as `hash` would).
            found = self._streams[name] = Random(f"{self.seed}/{name}")  # noqa: S311 not a secret
        return found


class Fault(Generic[Outcome]):
    """One entry of a `FaultTable`, for the test to look at or to take back."""

    def __init__(
        self,
        *,
        operation: str,
        outcome: Outcome,
        matching: str,
        skip: int,
        count: int | None,
        chance: float,
    ) -> None:
        self.operation = operation
        self.outcome = outcome
        self.matching = matching
        self.times_met = 0  # how often it has happened
        self._chance = chance
        self._skip = skip  # matches to let pass before the first
        self._left = count  # times that it may still happen; None: for ever

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def cancel(self) -> None:
        self._left = 0

    def _matches(self, operation: str, subject: str) -> bool:
        return self.operation in (operation, ANY_OPERATION) and fnmatch.fnmatchcase(
            subject, self.matching
        )

    def happens(self, operation: str, subject: str, random: Random) -> bool:
        """Whether it strikes here; counts when it does."""
        if self.is_over or not self._matches(operation, subject):
            return False
        if self._skip:
            self._skip -= 1
            return False
        if self._chance < 1 and random.random() >= self._chance:
            return False
        self.times_met += 1
        if self._left is not None:
            self._left -= 1
        return True


class FaultTable(Generic[Outcome]):
    """What shall go wrong. Entries are tried in the order in which they were added."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random(0)  # noqa: S311 not a secret
        self._faults: list[Fault[Outcome]] = []

    def add(
        self,
        operation: str,
        outcome: Outcome,
        *,
        matching: str = "*",
        skip: int = 0,
        count: int | None = 1,
        chance: float = 1.0,
    ) -> Fault[Outcome]:
        """Let `operation` (`*`: any) on subjects `matching` a shell pattern end in `outcome`.

        The first `skip` matches pass; then it happens `count` times (None: always), each time
        with this `chance`.
        """
        fault = Fault(
            operation=operation,
            outcome=outcome,
            matching=matching,
            skip=skip,
            count=count,
            chance=chance,
        )
        self._faults.append(fault)
        return fault

    def find(self, operation: str, subject: str) -> Outcome | None:
        """What goes wrong with this operation now, if anything. Asking is what uses a fault up."""
        fault = self.find_fault(operation, subject)
        return None if fault is None else fault.outcome

    def find_fault(self, operation: str, subject: str) -> Fault[Outcome] | None:
        """The same, for outcomes that may themselves be None."""
        if not self._faults:
            return None
        for fault in self._faults:
            if fault.happens(operation, subject, self._random):
                return fault
        return None

    def clear(self) -> None:
        for fault in self._faults:
            fault.cancel()
        self._faults.clear()
