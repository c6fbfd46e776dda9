"""Lines of bytes from a file, a pipe or a terminal, as they arrive.

Whoever reads is told when nothing more is there at the moment, so that it can send what it has:
`tail -f | moldau produce` should not wait for a full batch.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Sequence

_CHUNK_BYTES = 256 * 1024
_IDLE_SECONDS = 0.01


def read_lines(descriptor: int) -> Iterator[Sequence[bytes]]:
    """Lines without their ends, in bunches; an empty bunch says that no more is there now."""
    unfinished: list[bytes] = []  # pieces of a line whose end has not been read
    while True:
        if not _has_input(descriptor):
            yield ()
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        unfinished.append(chunk)
        if b"\n" not in chunk:
            continue
        text = b"".join(unfinished)
        lines = text.split(b"\n")
        unfinished = [lines.pop()]
        yield [line.removesuffix(b"\r") for line in lines] if b"\r" in text else lines
    last = b"".join(unfinished)
    if last:
        yield [last.removesuffix(b"\r")]


def _has_input(descriptor: int) -> bool:
    """Whether a read would return at once; files always have input, if only their end."""
    readable, _, _ = select.select([descriptor], [], [], _IDLE_SECONDS)
    return bool(readable)
