"""`aborted-transactions-checkpoint`: what the indexes of aborted transactions in a folder hold.

Not Kafka's. Nothing in a `.txnindex` file says whether it is whole, and one that is missing looks
as if no transaction had been aborted: readers of committed records would be given aborted ones. So
each log directory has `topic partition base-offset entries crc` for each segment with aborted
transactions. An index that is another one when its log is opened is made anew from the batches;
that is all that comes of a file that is absent, old or damaged. A codec and a tiny shell.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from moldau.errors import DamagedFileError
from moldau.model import TopicPartition
from moldau.storage.files import Files
from moldau.storage.rules.checkpoint_format import decode_lines, encode_lines
from moldau.storage.rules.file_names import ABORTED_TRANSACTIONS_FILE
from moldau.storage.transaction_index import AbortedDigest

_log = logging.getLogger("moldau.storage.recovery")

AbortedBySegment: TypeAlias = Mapping[int, AbortedDigest]
"""Of a log: by the base offset of each segment that has aborted transactions."""


def encode_aborted(aborted: Mapping[TopicPartition, AbortedBySegment]) -> bytes:
    return encode_lines(
        [
            f"{partition.topic} {partition.partition} {base_offset} {digest.entries} {digest.crc}"
            for partition, segments in sorted(aborted.items())
            for base_offset, digest in sorted(segments.items())
        ]
    )


def decode_aborted(data: bytes) -> dict[TopicPartition, dict[int, AbortedDigest]]:
    found: dict[TopicPartition, dict[int, AbortedDigest]] = {}
    for line in decode_lines(data):
        try:
            topic, *numbers = line.split()
            partition, base_offset, count, crc = map(int, numbers)
        except ValueError as error:
            raise DamagedFileError(f"a checkpoint of transactions has the line {line!r}") from error
        of_log = found.setdefault(TopicPartition(topic, partition), {})
        of_log[base_offset] = AbortedDigest(count, crc)
    return found


def read_aborted(files: Files, folder: Path) -> Mapping[TopicPartition, AbortedBySegment]:
    """A damaged file is passed over: it says nothing."""
    path = folder / ABORTED_TRANSACTIONS_FILE
    try:
        return decode_aborted(files.read(path)) if files.exists(path) else {}
    except DamagedFileError as error:
        _log.warning("%s is passed over: %s", path, error)
        return {}
