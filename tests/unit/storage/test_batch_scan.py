"""Walking the batches of a file."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from log_bench import batch_of

from moldau.errors import StorageError
from moldau.records.batch_header import stamp
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.file_records import walk_batches, walk_valid_batches
from moldau.storage.files import File


def a_file(data: bytes) -> File:
    file = MemoryFiles().open(Path("a.log"), create=True)
    file.write_at(0, data)
    return file


def some_batches(count: int, size: int = 50) -> list[bytes]:
    found = []
    for number in range(count):
        batch, _ = batch_of(1, value=b"v" * size)
        stamp(batch, number, 0)
        found.append(bytes(batch))
    return found


@pytest.mark.parametrize("size", [0, 50, 5000, 9000, 2_000_000])
def test_both_walks_see_every_batch_whatever_its_size(size: int):
    batches = some_batches(5, size)
    data = b"".join(batches)
    positions = [sum(map(len, batches[:number])) for number in range(5)]
    file = a_file(data)
    assert [position for position, _ in walk_batches(file, 0, len(data))] == positions
    assert [position for position, _ in walk_valid_batches(file, len(data))] == positions


def test_a_walk_ends_where_the_file_was_cut_meanwhile():
    batches = some_batches(3)
    file = a_file(b"".join(batches[:2]))
    size = len(b"".join(batches))
    assert [h.base_offset for _, h in walk_batches(file, 0, size)] == [0, 1]


def test_a_changed_byte_ends_the_walk_of_sound_batches():
    batches = some_batches(3)
    data = bytearray(b"".join(batches))
    data[len(batches[0]) + 70] ^= 1
    assert [h.base_offset for _, h in walk_valid_batches(a_file(data), len(data))] == [0]


def test_offsets_that_go_back_end_the_walk_of_sound_batches():
    batches = some_batches(3)
    data = batches[0] + batches[2] + batches[1]
    assert [h.base_offset for _, h in walk_valid_batches(a_file(data), len(data))] == [0, 2]


def test_zeros_at_the_end_are_damage():
    batches = some_batches(2)
    data = b"".join(batches) + bytes(4096)
    assert [h.base_offset for _, h in walk_valid_batches(a_file(data), len(data))] == [0, 1]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_sound_message_of_an_old_format_is_not_taken_for_damage(magic: int):
    body = bytes([magic, 0]) + (b"" if magic == 0 else bytes(8))
    body += (-1).to_bytes(4, "big", signed=True) + (3).to_bytes(4, "big") + b"old"
    message = zlib.crc32(body).to_bytes(4, "big") + body
    data = (0).to_bytes(8, "big") + len(message).to_bytes(4, "big") + message
    # Padded so that a header of format 2 would fit.
    data = b"".join(some_batches(1)) + data * 4
    with pytest.raises(StorageError, match=f"format {magic}"):
        list(walk_valid_batches(a_file(data), len(data)))
