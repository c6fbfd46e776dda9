"""Every client writes what every other client reads, byte for byte."""

from __future__ import annotations

from types import ModuleType

import pytest

from compat.conftest import CLIENTS
from support.rows import CREATE_TIME, VARIED_ROWS, Row, numbered_rows, rows_of
from support.topics import Topics

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_read_by_every_client(
    bootstrap: str, topic: str, client: ModuleType, codec: str
) -> None:
    rows = numbered_rows(500)

    offsets = client.produce(bootstrap, topic, rows, codec=codec)

    assert offsets == list(range(500))
    for reader in CLIENTS:
        got = reader.consume(bootstrap, topic, 500)
        assert rows_of(got) == rows, f"as {reader.NAME} reads it"
        assert [one.offset for one in got] == offsets
        assert {one.timestamp_type for one in got} == {CREATE_TIME}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_kind_of_acks_delivers(
    bootstrap: str, topic: str, client: ModuleType, acks: str
) -> None:
    rows = numbered_rows(200)

    client.produce(bootstrap, topic, rows, acks=acks)

    for reader in CLIENTS:
        assert rows_of(reader.consume(bootstrap, topic, 200)) == rows, reader.NAME


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_kind_come_back_as_they_were(
    bootstrap: str, topic: str, client: ModuleType, codec: str
) -> None:
    rows = [*VARIED_ROWS, *client.ODD_ROWS]

    client.produce(bootstrap, topic, rows, codec=codec)

    for reader in CLIENTS:
        assert rows_of(reader.consume(bootstrap, topic, len(rows))) == rows, reader.NAME


def test_many_partitions_keep_their_records_apart(
    bootstrap: str, topics: Topics, client: ModuleType
) -> None:
    topic = topics.create(partitions=5)
    for partition in range(5):
        rows = [Row(b"%d" % partition, b"in partition %d" % partition, (), 1_700_000_000_000)]
        client.produce(bootstrap, topic, rows, partition=partition)

    for partition in range(5):
        (got,) = client.consume(bootstrap, topic, 1, partition=partition)
        assert (got.offset, got.key) == (0, b"%d" % partition)
