"""Has the disk begin with what was written before anybody asks it to keep it all.

A sync of a gigabyte that waits in memory hands the disk all of it at once, and whoever else needs
the disk queues behind it. Handed over step by step, nobody waits for more than a step. Linux has
`sync_file_range` for it, which touches no journal and no cache of the drive, so that it costs
nothing else; nothing is durable before a sync, which comes afterwards all the same. Elsewhere
nothing is done. A tiny shell.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

STEP_BYTES: Final = 8 << 20
"""Enough to keep a disk busy; a few milliseconds of its time, or some tens of a slow one's."""

_WAIT_WRITE_AND_WAIT: Final = 1 | 2 | 4
_NOT_THE_DISK: Final = frozenset(
    {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP, errno.EINTR}
)
"""Not every file system, and not every sandbox, knows the call, or lets it through."""


def write_back(descriptor: int, position: int, length: int) -> None:
    """Wait until the disk has taken a range. Blocks: call it in a worker.

    Raises `OSError` where the disk has failed: the next sync would not tell of it any more.
    """
    call = _find_call()
    if call is None:
        return
    error = call(descriptor, position, length)
    if error and error not in _NOT_THE_DISK:
        raise OSError(error, os.strerror(error))


@cache
def _find_call() -> Callable[[int, int, int], int] | None:
    """Gives the number of an error, or 0."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # takes its time, and few segments are so large

        library = ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):  # a Python that was built without it, or in one piece
        return None
    found = getattr(library, "sync_file_range", None)
    if found is None:
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def call(descriptor: int, position: int, length: int) -> int:
        return (
            ctypes.get_errno() if found(descriptor, position, length, _WAIT_WRITE_AND_WAIT) else 0
        )

    return call
