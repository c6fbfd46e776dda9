"""What one task reads, as Spark passes it around. Pickled, so plain values."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from moldau.model import TopicPartition
from moldau.spark.rules.ranges import PartitionRange


class RangePartition(InputPartition):
    """A range of offsets of one partition of a topic."""

    def __init__(self, wanted: PartitionRange) -> None:
        partition, start_offset, end_offset = wanted
        super().__init__((partition.topic, partition.partition, start_offset, end_offset))


def find_range(given: InputPartition) -> PartitionRange | None:
    """What is to be read; None where Spark made a task though there was nothing to plan."""
    if given.value is None:
        return None
    topic, number, start_offset, end_offset = given.value
    return PartitionRange(TopicPartition(topic, number), start_offset, end_offset)
