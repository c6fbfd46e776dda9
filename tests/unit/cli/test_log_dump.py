"""`moldau log dump`: segments whole and damaged, and the files beside them."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.log_dump import (
    Damage,
    Preallocated,
    WalkedBatch,
    WalkedMessage,
    show_bytes,
    show_time,
    walk_segment,
)
from moldau.cli.main import run
from moldau.model import Offset, TopicPartition
from moldau.records.compression import Codec
from moldau.records.record import NewRecord
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_batch,
    build_marker_batch,
)
from moldau.storage.checkpoint_files import encode_offsets
from moldau.storage.producer_snapshots import encode_snapshot
from moldau.storage.rules.producer_state import ProducerEntry, RememberedBatch

BASE = "00000000000000000100"


def batch(base_offset: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
    rows = [NewRecord(1_700_000_000_000, b"k", value, (("h", b"1"),)) for value in values]
    return bytes(build_batch(rows, base_offset=base_offset, codec=codec, leader_epoch=2))


def old_message(offset: int, magic: int, value: bytes) -> bytes:
    head = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1234) if magic else b"")
    body = head + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def walk(data: bytes) -> list[object]:
    return list(walk_segment(io.BytesIO(data), len(data)))


def test_batches_are_walked_one_after_the_other() -> None:
    first, second = batch(100, b"a", b"b"), batch(102, b"c", codec=Codec.ZSTD)
    walked = walk(first + second)
    assert [one.position for one in walked] == [0, len(first)]  # type: ignore[attr-defined]
    assert all(isinstance(one, WalkedBatch) and one.is_crc_right for one in walked)


def test_a_wrong_crc_is_told_and_the_walk_goes_on() -> None:
    damaged = bytearray(batch(100, b"a"))
    damaged[-1] ^= 1
    first, second = walk(bytes(damaged) + batch(101, b"b"))
    assert isinstance(first, WalkedBatch)
    assert not first.is_crc_right
    assert isinstance(second, WalkedBatch)
    assert second.is_crc_right


@given(st.integers(min_value=1, max_value=len(batch(101, b"bb")) - 1))
def test_a_tail_cut_at_any_byte_is_damage_after_the_last_whole_batch(kept: int) -> None:
    whole = batch(100, b"a")
    first, second = walk(whole + batch(101, b"bb")[:kept])
    assert isinstance(first, WalkedBatch)
    if isinstance(second, Preallocated):  # the first bytes of an offset are zeros
        assert kept < 8
    else:
        assert isinstance(second, Damage)
    assert second.position == len(whole)
    assert second.left_bytes == kept


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_walked_without_failing(data: bytes) -> None:
    for one in walk(data)[:-1]:
        assert isinstance(one, WalkedBatch | WalkedMessage)


def test_preallocated_zeros_are_no_damage() -> None:
    walked = walk(batch(100, b"a") + bytes(5000))
    assert walked[1] == Preallocated(position=len(batch(100, b"a")), left_bytes=5000)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_older_formats_are_shown(magic: int) -> None:
    first, second = walk(old_message(7, magic, b"old") + old_message(8, magic, b"older"))
    assert isinstance(first, WalkedMessage)
    assert (first.offset, first.magic, first.is_crc_right) == (7, magic, True)
    assert first.timestamp_ms == (1234 if magic else -1)
    assert isinstance(second, WalkedMessage)
    assert second.offset == 8


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / f"{BASE}.log"
    marker = EndTransactionMarker(ControlType.ABORT, 9)
    path.write_bytes(
        batch(100, b"one", b"two")
        + batch(102, b"\xff", codec=Codec.GZIP)
        + bytes(
            build_marker_batch(
                marker, timestamp_ms=5, producer_id=77, producer_epoch=1, base_offset=103
            )
        )
    )
    return path


def test_each_batch_is_a_line(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(segment)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("offset 100..101  2 records  at 0  ")
    assert lines[0].endswith("none  epoch 2  CreateTime 2023-11-14T22:13:20.000Z  crc ok")
    assert "gzip" in lines[1]
    assert "producer 77/1" in lines[2]
    assert "transactional  control" in lines[2]


def test_a_file_without_anything_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = tmp_path / f"{BASE}.log"
    nothing.touch()
    assert run(["log", "dump", str(nothing)]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"{nothing} is empty\n")


def test_records_are_shown_when_asked_for(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "dump", str(segment), "--records"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  |")]
    assert lines[0] == (
        "  | offset 100  2023-11-14T22:13:20.000Z  key 'k'  value 'one'  headers h='1'"
    )
    assert lines[2].endswith(r"value b'\xff'  headers h='1'")
    assert lines[3].endswith("ABORT marker of coordinator epoch 9")


def test_json_is_an_object_for_each_batch(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "dump", str(segment), "--records", "--json"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["type"] == "batch"
    assert (first["base_offset"], first["last_offset"], first["record_count"]) == (100, 101, 2)
    assert first["records"][1]["value"] == "two"
    assert second["codec"] == "gzip"
    assert second["records"][0]["value_base64"] == "/w=="
    assert third["control"]
    assert third["crc_ok"]


def test_a_damaged_tail_is_reported_and_fails(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.write_bytes(segment.read_bytes()[:-3])
    assert run(["log", "dump", str(segment)]) == 1
    out, err = capsys.readouterr()
    assert "DAMAGED at" in out.splitlines()[-1]
    assert "but only" in out.splitlines()[-1]
    assert "Traceback" not in err
    assert run(["log", "dump", str(segment), "--json"]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["type"] == "damage"


def test_records_that_cannot_be_read_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray(batch(0, b"some value", codec=Codec.GZIP))
    damaged[65:75] = bytes(10)
    path = tmp_path / "any.log"
    path.write_bytes(damaged)
    assert run(["log", "dump", str(path), "--records"]) == 1
    out = capsys.readouterr().out
    assert "CRC WRONG" in out
    assert "records cannot be read" in out


def test_an_empty_segment_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{BASE}.log"
    path.touch()
    assert run(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out == ""


def dump(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert run(["log", "dump", str(path), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_an_offset_index_is_shown_up_to_its_zeros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{BASE}.index"
    path.write_bytes(struct.pack(">IIII", 5, 4096, 9, 8192) + bytes(8 * 5000))
    assert dump(path, capsys) == [
        {"offset": 105, "position": 4096},
        {"offset": 109, "position": 8192},
    ]
    assert run(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "offset 105  position 4096"


def test_a_time_index_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{BASE}.timeindex"
    path.write_bytes(struct.pack(">qi", 1234, 3))
    assert dump(path, capsys) == [{"timestamp_ms": 1234, "offset": 103}]


def test_an_index_cut_short_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{BASE}.index"
    path.write_bytes(struct.pack(">II", 5, 4096) + b"\x01\x02")
    assert run(["log", "dump", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "offset 105  position 4096\n"
    assert "ends with 2 of 8 bytes" in err


def test_aborted_transactions_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{BASE}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 77, 100, 110, 111))
    assert dump(path, capsys) == [
        {"producer_id": 77, "first_offset": 100, "last_offset": 110, "last_stable_offset": 111}
    ]


def test_a_producer_snapshot_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{BASE}.snapshot"
    entry = ProducerEntry(77, 1, (RememberedBatch(9, 50, 4, 1234),), 1234, -1, None)
    path.write_bytes(encode_snapshot([entry]))
    (row,) = dump(path, capsys)
    assert (row["producer_id"], row["last_sequence"], row["last_offset"]) == (77, 9, 50)
    path.write_bytes(encode_snapshot([entry])[:-1])
    assert run(["log", "dump", str(path)]) == 1
    assert "moldau: a producer snapshot" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_checkpoints_are_shown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(encode_offsets({TopicPartition("clicks", 1): Offset(5)}))
    assert dump(path, capsys) == [{"topic": "clicks", "partition": 1, "offset": 5}]
    path.write_text("0\n1\nclicks one 5\n")
    assert run(["log", "dump", str(path)]) == 1
    assert "damaged" in capsys.readouterr().err


def test_leader_epochs_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n3 100\n")
    assert dump(path, capsys)[1] == {"leader_epoch": 3, "start_offset": 100}


def test_several_files_are_shown_under_their_names(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "leader-epoch-checkpoint"
    other.write_text("0\n1\n0 0\n")
    assert run(["log", "dump", str(segment), str(other)]) == 0
    out = capsys.readouterr().out
    assert f"{segment}:" in out
    assert f"{other}:" in out


def test_files_on_their_way_out_are_read_like_the_others(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deleted = segment.rename(segment.with_name(segment.name + ".deleted"))
    assert run(["log", "dump", str(deleted)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_other_files_are_refused_with_what_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.touch()
    assert run(["log", "dump", str(path)]) == 1
    assert ".timeindex" in capsys.readouterr().err


def test_times_and_bytes_are_shown_as_what_they_are() -> None:
    assert show_time(0) == "1970-01-01T00:00:00.000Z"
    assert show_time(-1) == "-1"
    assert show_time(1 << 62) == str(1 << 62)
    assert show_bytes(None) == "null"
    assert show_bytes("ř\n".encode()) == r"'ř\n'"
    assert show_bytes(b"\xff") == r"b'\xff'"
