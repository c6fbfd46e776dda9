"""The outside world as one broker sees it: what a test or a simulation replaces. Values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from moldau.broker.boot_id import read_boot_id
from moldau.clock import Clock
from moldau.coordination.port import Coordination
from moldau.net.port import Network
from moldau.storage.files import Files
from moldau.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """See the module. The same code runs over them in production, in tests and in simulations."""

    clock: Clock
    files: Files
    network: Network
    workers: Workers
    unpacking_workers: Workers | None = None
    """For looking inside batches, apart from those that flush; None for the same."""
    open_coordination: Callable[[Path], AbstractAsyncContextManager[Coordination]]
    """Given the first data folder."""
    random: Random = field(default_factory=SystemRandom)
    """For ids, places and jitter; from a seed in simulations."""
    boot_id: Callable[[], str] = read_boot_id
    """Another one after every restart of the machine."""

    def close(self) -> None:
        """End the workers, after the broker."""
        self.workers.close()
        if self.unpacking_workers is not None:
            self.unpacking_workers.close()
