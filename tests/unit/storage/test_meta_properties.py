"""`meta.properties`, as we write it and as Kafka wrote it over the years."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import DamagedFileError
from moldau.storage.files import RealFiles
from moldau.storage.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    read_meta_properties,
    write_meta_properties,
)

cluster_ids = st.text("abcXYZ019_-", min_size=22, max_size=22)


def test_the_text_is_kafkas():
    properties = MetaProperties(
        broker_id=1,
        cluster_id="5q7mWlOxRyS9hrrX9e3zrA",
        directory_id=UUID(bytes=bytes(range(16))),
    )

    assert encode_meta_properties(properties).decode().splitlines() == [
        "version=1",
        "node.id=1",
        "cluster.id=5q7mWlOxRyS9hrrX9e3zrA",
        "directory.id=AAECAwQFBgcICQoLDA0ODw",
    ]


@given(
    st.builds(
        MetaProperties,
        broker_id=st.none() | st.integers(0, 2**31 - 1),
        cluster_id=st.none() | cluster_ids,
        directory_id=st.none() | st.uuids(),
    )
)
def test_what_is_written_is_read_back(properties):
    assert decode_meta_properties(encode_meta_properties(properties)) == properties


def test_version_0_of_the_zookeeper_days_is_read():
    text = b"#\n#Tue Nov 14 22:13:20 UTC 2023\nbroker.id=3\nversion=0\ncluster.id=abc\n"

    found = MetaProperties(broker_id=3, cluster_id="abc", version=0)
    assert decode_meta_properties(text) == found


def test_escapes_and_spaces_of_java_are_read():
    text = b"! comment\r\n\r\nversion = 1\r\nnode.id = 3\r\ncluster.id = a\\=\\:b\r\n"

    assert decode_meta_properties(text) == MetaProperties(broker_id=3, cluster_id="a=:b")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"node.id=1\n",
        b"version=2\nnode.id=1\n",
        b"version=1\nnode.id=one\n",
        b"version=1\ndirectory.id=!\n",
        b"\xff\xff",
    ],
)
def test_damage_is_said_to_be_damage(data):
    with pytest.raises(DamagedFileError):
        decode_meta_properties(data)


def test_properties_go_through_a_file(tmp_path):
    path = tmp_path / "meta.properties"
    properties = MetaProperties(broker_id=1, cluster_id="c")

    assert read_meta_properties(RealFiles(), path) is None
    write_meta_properties(RealFiles(), path, properties)
    assert read_meta_properties(RealFiles(), path) == properties


def test_a_folder_of_an_older_kafka_keeps_its_version_and_its_lines():
    text = b"#Mon\nversion=0\nbroker.id=7\ncluster.id=abc\nlater.invention=x\n"
    found = decode_meta_properties(text)
    assert encode_meta_properties(found).splitlines() == [
        b"version=0",
        b"broker.id=7",
        b"cluster.id=abc",
        b"later.invention=x",
    ]
