"""`partition.metadata`."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import DamagedFileError
from moldau.storage.checkpoint_files import (
    decode_partition_metadata,
    encode_partition_metadata,
    read_partition_metadata,
)
from moldau.storage.files import RealFiles

TOPIC_ID = UUID(bytes=bytes(range(16)))


def test_the_text_is_kafkas():
    text = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"

    assert encode_partition_metadata(TOPIC_ID) == text
    assert decode_partition_metadata(text.rstrip()) == TOPIC_ID


@given(st.uuids(allow_nil=False))
def test_what_is_written_is_read_back(topic_id):
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0\n",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OD",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        bytes(40),
        b"\xff",
    ],
)
def test_damage_is_said_to_be_damage(data):
    with pytest.raises(DamagedFileError):
        decode_partition_metadata(data)


def test_the_id_goes_through_a_file(tmp_path):
    path = tmp_path / "partition.metadata"

    assert read_partition_metadata(RealFiles(), path) is None
    path.write_bytes(encode_partition_metadata(TOPIC_ID))
    assert read_partition_metadata(RealFiles(), path) == TOPIC_ID
