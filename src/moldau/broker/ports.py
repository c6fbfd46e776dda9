"""The outside world as one broker sees it: what a test or a simulation replaces."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from moldau.clock import Clock
from moldau.coordination.port import Coordination
from moldau.net.port import Network
from moldau.storage.files import Files
from moldau.workers import Workers

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ASK_MACOS = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
_ASK_SECONDS = 5.0


def read_boot_id() -> str:
    """Which run of this machine it is, empty where the machine does not tell: then it may have
    been restarted at any time."""
    try:
        if _BOOT_ID.exists():
            return _BOOT_ID.read_text(encoding="ascii").strip()
        asked = subprocess.run(  # noqa: S603 a fixed command
            _ASK_MACOS, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
        return asked.stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


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
