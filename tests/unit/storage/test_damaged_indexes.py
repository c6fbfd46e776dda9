"""Indexes whose bytes are not what was written (IDX-4): nobody misses a record for them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from log_bench import START_MS, a_memory_bench, headers_in, read_all

from moldau.records.batch_header import BatchHeader
from moldau.storage.log import Log

WIDTHS = {".index": 8, ".timeindex": 12}
INTERVAL_MS = 1000
Damage = Callable[[Random, bytes, int], bytes]


def turn_a_bit(chance: Random, data: bytes, width: int) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def shift_an_entry(chance: Random, data: bytes, width: int) -> bytes:
    """Its last byte: by a little, so that all else still looks right."""
    at = chance.randrange(len(data) // width) * width + width - 1
    return data[:at] + bytes([(data[at] + chance.choice((1, 7, -3))) % 256]) + data[at + 1 :]


def shuffle(chance: Random, data: bytes, width: int) -> bytes:
    entries = [data[at : at + width] for at in range(0, len(data), width)]
    return b"".join(chance.sample(entries, len(entries)))


DAMAGES: dict[str, Damage] = {
    "a turned bit": turn_a_bit,
    "a shifted entry": shift_an_entry,
    "another order": shuffle,
    "garbage": lambda chance, data, width: chance.randbytes(len(data)),
    "a last entry of garbage": lambda chance, data, width: data[:-width] + chance.randbytes(width),
    "zeros": lambda chance, data, width: bytes(len(data)),
    "a lost end": lambda chance, data, width: data[: chance.randrange(len(data))],
    "garbage behind it": lambda chance, data, width: data + chance.randbytes(width * 3 + 1),
}


class Stage:
    """A log of seven segments whose clock ticks once for each batch, after a clean stop."""

    def __init__(self) -> None:
        self.bench = a_memory_bench()
        log = self.bench.create(segment_bytes=8000, index_interval_bytes=300)
        chance = Random(3)
        for number in range(150):
            self.bench.append(
                log,
                chance.randrange(1, 5),
                value=bytes(chance.randrange(1, 200)),
                timestamp_ms=START_MS + number * INTERVAL_MS,
            )
        self.end_offset = log.log_end_offset
        self.batches = read_all(log)
        log.segments[-1].write_out_indexes()
        log.close()

    def damage(self, suffix: str, segment: int, damage: Damage, chance: Random) -> None:
        files, folder = self.bench.files, self.bench.folder
        names = [name for name in sorted(files.list_folder(folder)) if name.endswith(suffix)]
        path = folder / names[segment]
        files.replace(path, damage(chance, bytes(files.read(path)), WIDTHS[suffix]))

    def start(self) -> Log:
        return self.bench.load(clean=True, recovery_point=self.end_offset)


@pytest.mark.parametrize("segment", [2, -1], ids=["sealed", "active"])
@pytest.mark.parametrize("suffix", WIDTHS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_hides_no_record(damage: str, suffix: str, segment: int) -> None:
    for seed in range(5):
        stage = Stage()
        stage.damage(suffix, segment, DAMAGES[damage], Random(seed))
        log = stage.start()
        assert log.log_end_offset == stage.end_offset
        assert read_all(log) == stage.batches
        assert read_all(log, max_bytes=700) == stage.batches
        for batch in stage.batches:
            assert_found_by_offset(log, batch)
        for batch in stage.batches[::9]:
            found = log.find_offset_by_timestamp(batch.base_timestamp)
            assert found is not None
            assert found.offset == batch.base_offset


def assert_found_by_offset(log: Log, batch: BatchHeader) -> None:
    read = log.read(batch.last_offset, 300, end_offset=log.log_end_offset, min_one=True)
    assert read.slice is not None
    assert headers_in(read.slice.read())[0] == batch


@pytest.mark.parametrize("segment", [2, -1], ids=["sealed", "active"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_time_index_makes_no_segment_older(damage: str, segment: int) -> None:
    """Retention would delete it before its time."""
    expected = [one.largest_timestamp() for one in Stage().start().segments]
    for seed in range(5):
        stage = Stage()
        stage.damage(".timeindex", segment, DAMAGES[damage], Random(seed))
        log = stage.start()
        assert [one.largest_timestamp() for one in log.segments] == expected


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_log_goes_on_behind_a_damaged_index(damage: str) -> None:
    for seed in range(3):
        stage = Stage()
        stage.damage(".index", -1, DAMAGES[damage], Random(seed))
        log = stage.start()
        last = stage.bench.append(log, 3, timestamp_ms=START_MS + 1_000_000)
        assert last.first_offset == stage.end_offset
        assert len(read_all(log)) == len(stage.batches) + 1
        log.truncate_to(stage.end_offset - 20)
        assert log.log_end_offset <= stage.end_offset - 20
        assert read_all(log) == stage.batches[: len(read_all(log))]
