"""Faults on request, and faults from a seed.

`FaultTable` holds what shall go wrong and is asked at every step where something can: the memory
file system and the memory network have one each, and so may anything else that takes faults (an
API of a broker, by its name). `SeededStreams` turns one seed into as many independent random
sources as are wanted, so that a failing run can be repeated from its seed alone.

Not here: when faults happen in a run of a whole cluster. That is a schedule, and its owner draws
it from a stream.
"""

from __future__ import annotations

import fnmatch
from random import Random
from typing import Generic, TypeVar

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
