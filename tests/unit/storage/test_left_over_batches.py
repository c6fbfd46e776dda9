"""What a truncation took away and a power loss brings back is not taken for a part of the log."""

from __future__ import annotations

from pathlib import Path

from moldau.records.record_batch import build_batch
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.file_records import walk_valid_batches


def batch(offset: int, leader_epoch: int) -> bytes:
    return bytes(build_batch([(0, None, b"v", ())], base_offset=offset, leader_epoch=leader_epoch))


def walked(*batches: bytes) -> list[int]:
    file = MemoryFiles().open(Path("/segment"), create=True)
    data = b"".join(batches)
    file.write_at(0, data)
    return [header.base_offset for _, header in walk_valid_batches(file, len(data))]


def test_batches_of_growing_epochs_are_sound() -> None:
    assert walked(batch(0, 0), batch(1, 0), batch(2, 3)) == [0, 1, 2]


def test_a_batch_of_an_older_epoch_than_the_one_before_it_is_left_over() -> None:
    assert walked(batch(0, 0), batch(1, 1), batch(2, 0), batch(3, 1)) == [0, 1]
