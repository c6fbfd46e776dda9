"""What shall go wrong in a simulated cluster, and when: drawn from a seed. A rule.

A plan says what is tried. Whether a fault that destroys data may happen at its time is decided by
the cluster, which knows who is in sync (`docs/replication.md`, the fault model).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final


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
