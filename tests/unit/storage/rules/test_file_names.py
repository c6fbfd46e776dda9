"""Names of files and folders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.storage.rules.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    FolderKind,
    PartitionFolder,
    SegmentFile,
    deleted_folder_name,
    find_partition_folder,
    find_segment_file,
    partition_folder_name,
    segment_file_name,
    stray_folder_name,
)

UNIQUE_ID = "0123456789abcdef" * 2
SUFFIXES = [
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
]
topics = st.text("abcXYZ019._-", min_size=1, max_size=249)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


def test_segment_files_have_twenty_digits():
    assert segment_file_name(1234, LOG_SUFFIX) == "00000000000000001234.log"


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from(SUFFIXES),
    st.sampled_from(["", ".deleted", ".cleaned", ".swap", ".unshared"]),
)
def test_segment_names_are_read_back(base_offset, suffix, stage):
    name = segment_file_name(base_offset, suffix) + stage

    assert find_segment_file(name) == SegmentFile(base_offset, suffix, stage)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "123.log",
        "00000000000000001234",
        "00000000000000001234.txt",
        "00000000000000001234.log.bak",
        "00000000000000001234.log\n",
        "leader-epoch-checkpoint",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٢٣٤.log",
    ],
)
def test_other_names_are_no_segment_files(name):
    assert find_segment_file(name) is None


def test_folder_names_are_kafkas():
    partition = TopicPartition("clicks", 3)

    assert partition_folder_name(partition) == "clicks-3"
    assert deleted_folder_name(partition, UNIQUE_ID) == f"clicks-3.{UNIQUE_ID}-delete"
    assert stray_folder_name(partition, UNIQUE_ID) == f"clicks-3.{UNIQUE_ID}-stray"


@given(partitions)
def test_folder_names_are_read_back(partition):
    current = find_partition_folder(partition_folder_name(partition))
    future = find_partition_folder(f"{partition_folder_name(partition)}.{UNIQUE_ID}-future")

    assert current == PartitionFolder(partition, FolderKind.CURRENT)
    assert future == PartitionFolder(partition, FolderKind.FUTURE)


def test_a_long_topic_name_is_cut_to_255_characters():
    name = deleted_folder_name(TopicPartition("t" * 249, 12), UNIQUE_ID)

    assert len(name) == 255
    assert name.endswith(f"t-12.{UNIQUE_ID}-delete")


@given(partitions)
def test_names_of_deleted_and_stray_folders_fit_a_file_system(partition):
    for make, kind in [
        (deleted_folder_name, FolderKind.DELETED),
        (stray_folder_name, FolderKind.STRAY),
    ]:
        name = make(partition, UNIQUE_ID)
        found = find_partition_folder(name)
        assert len(name) <= 255
        assert found is not None
        assert found.kind is kind
        assert found.partition.partition == partition.partition
        assert partition.topic.startswith(found.partition.topic)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a-b-0", TopicPartition("a-b", 0)),
        ("a.b-12", TopicPartition("a.b", 12)),
        ("-0", None),
        ("a-", None),
        ("a", None),
        ("a-01", None),
        ("a--1", TopicPartition("a-", 1)),
        ("a b-0", None),
        ("lost+found", None),
        ("a-2147483647", TopicPartition("a", 2**31 - 1)),
        ("backup-2147483648", None),
        ("__cluster_metadata-0", TopicPartition("__cluster_metadata", 0)),
    ],
)
def test_folders_are_told_from_others(name, partition):
    found = find_partition_folder(name)

    assert (found and found.partition) == partition
