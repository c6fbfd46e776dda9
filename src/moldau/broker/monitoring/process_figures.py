"""What the operating system says of this process. Blocks for a moment: run it in a worker."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

_OWN = Path("/proc/self")
_START_FIELD = 19
"""Of /proc/self/stat, counted behind the name of the program: when it began, in ticks."""


class ProcessFigures(NamedTuple):
    """None where the system does not tell."""

    cpu_seconds: float
    memory_bytes: int
    open_files: int | None
    max_files: int
    started_at: float  # seconds since 1970


def read_process() -> ProcessFigures:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessFigures(
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        memory_bytes=_read_memory(usage.ru_maxrss),
        open_files=_count_files(),
        max_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        started_at=_STARTED_AT,
    )


def _read_memory(most: int) -> int:
    """What is in memory now; where only the most so far is known, that."""
    try:
        pages = int((_OWN / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def _count_files() -> int | None:
    for folder in (_OWN / "fd", Path("/dev/fd")):
        try:
            return len(os.listdir(folder))  # noqa: PTH208 thousands of names, and no paths of them
        except OSError:
            continue
    return None


def _find_start() -> float:
    try:
        text = (_OWN / "stat").read_text().rpartition(")")[2]
        ticks = int(text.split()[_START_FIELD])
        return (
            time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
        )
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()  # of the import, which is among the first things that happen


_STARTED_AT = _find_start()
