"""The text format that Kafka's checkpoint files share (its `CheckpointFile`).

    0            the version
    2            how many lines follow
    clicks 0 17
    clicks 1 23

A rule: lines in, bytes out, and back.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.errors import DamagedFileError

VERSION = "0"


def encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, str(len(lines)), *lines)).encode()


def decode_lines(data: bytes) -> list[str]:
    """An empty file is an empty checkpoint, as Kafka reads it; anything torn is damage."""
    if not data:
        return []
    try:
        version, count, *lines = data.decode().splitlines()
        expected = int(count)
    except ValueError as error:
        raise DamagedFileError(f"a checkpoint file does not begin as one: {data[:40]!r}") from error
    if version != VERSION:
        raise DamagedFileError(f"a checkpoint file has version {version!r}, not {VERSION!r}")
    if len(lines) != expected:
        raise DamagedFileError(f"a checkpoint file has {len(lines)} of its {expected} lines")
    return lines
