"""Memory for large frames, used again when nobody looks into it any more.

A fresh buffer of megabytes is zeroed by Python and, page by page, by the kernel: that costs several
times what receiving into it does. So a channel keeps some, and finds out from the reference count
which of them are free: whoever holds a view of a frame, or of a part of it, holds the buffer.
Nobody has to give anything back. Owned by one channel, used on its loop.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Final

_KIB: Final = 1024
_STEP_BYTES: Final = 256 * _KIB
"""Sizes are multiples of it, so that answers of about the same size can take the same buffer."""
_MOST_KEPT_BYTES: Final = 16 * 1024 * _KIB


class FrameBuffers:
    """Gives views of buffers that nobody else uses."""

    def __init__(self, most_kept_bytes: int = _MOST_KEPT_BYTES) -> None:
        self._most_kept_bytes = most_kept_bytes
        self._kept: list[bytearray] = []  # free or in use, the least recently used first
        self._kept_bytes = 0  # at most `most_kept_bytes`

    def take(self, size: int) -> memoryview:
        """A writable view of so many bytes, with anything in them."""
        for number in reversed(range(len(self._kept))):  # what was used last is still in caches
            if len(self._kept[number]) >= size and _is_free(self._kept, number):
                buffer = self._kept.pop(number)
                self._kept.append(buffer)
                return memoryview(buffer)[:size]
        buffer = bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
        self._maybe_keep(buffer)
        return memoryview(buffer)[:size]

    def _maybe_keep(self, buffer: bytearray) -> None:
        if len(buffer) > self._most_kept_bytes:
            return
        self._kept.append(buffer)
        self._kept_bytes += len(buffer)
        while self._kept_bytes > self._most_kept_bytes:
            self._kept_bytes -= len(self._kept.pop(0))


def _is_free(buffers: list[bytearray], number: int) -> bool:
    return getrefcount(buffers[number]) <= _FREE


# What a buffer counts in which nobody but the list has a part, by this interpreter's way to count.
_FREE: Final = (lambda buffers, number: getrefcount(buffers[number]))([bytearray()], 0)
