"""Offset checkpoint files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import DamagedFileError
from moldau.model import TopicPartition
from moldau.storage.checkpoint_files import decode_offsets, encode_offsets, read_offset_checkpoint
from moldau.storage.files import RealFiles

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


def test_the_text_is_kafkas():
    offsets = {TopicPartition("b", 0): 7, TopicPartition("a", 1): 5, TopicPartition("a", 0): 0}

    assert encode_offsets(offsets) == b"0\n3\na 0 0\na 1 5\nb 0 7\n"


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=8))
def test_what_is_written_is_read_back(offsets):
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_an_empty_file_is_an_empty_checkpoint():
    assert decode_offsets(b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"0\n",
        b"1\n0\n",
        b"0\nx\n",
        b"0\n2\na 0 1\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na x 1\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na -1 0\n",
        b"\xff\xfe",
        bytes(30),
    ],
)
def test_damage_is_said_to_be_damage(data):
    with pytest.raises(DamagedFileError):
        decode_offsets(data)


def test_a_checkpoint_goes_through_a_file(tmp_path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("clicks", 3): 12}

    assert read_offset_checkpoint(RealFiles(), path) == {}
    RealFiles().replace(path, encode_offsets(offsets))
    assert read_offset_checkpoint(RealFiles(), path) == offsets
