"""Lines of bytes from a file, a pipe or a terminal, as they arrive.

Whoever reads is told when nothing more is there at the moment, so that it can send what it has:
`tail -f | moldau produce` should not wait for a full batch.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from moldau.records.lines import LINE_END, TextLines

_CHUNK_BYTES = 256 * 1024
_IDLE_SECONDS = 0.01


def read_lines(descriptor: int, delimiter: bytes = LINE_END) -> Iterator[TextLines]:
    """Lines in bunches; an empty bunch says that no more is there now.

    With a delimiter of their own the pieces are exact: a carriage return is part of one.
    """
    unfinished: list[bytes] = []  # pieces of a line whose end has not been read
    while True:
        if not _has_input(descriptor):
            yield TextLines(b"", delimiter)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        unfinished.append(chunk)
        if delimiter not in chunk and len(delimiter) == 1:
            continue
        text = b"".join(unfinished)
        rest = _behind_last(delimiter, text)
        unfinished = [rest]
        if len(rest) < len(text):
            yield TextLines(text[: len(text) - len(rest)], delimiter)
    last = b"".join(unfinished)
    if last:
        yield TextLines(last + delimiter, delimiter)


def _behind_last(delimiter: bytes, text: bytes) -> bytes:
    if len(delimiter) == 1:
        return text[text.rfind(delimiter) + 1 :]
    return text.split(delimiter)[-1]  # it may overlap itself: from the beginning


def _has_input(descriptor: int) -> bool:
    """Whether a read would return at once; files always have input, if only their end."""
    readable, _, _ = select.select([descriptor], [], [], _IDLE_SECONDS)
    return bool(readable)
