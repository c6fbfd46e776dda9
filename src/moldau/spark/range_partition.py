"""What one task reads, as Spark passes it around. Pickled, so plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from moldau.model import TopicPartition
from moldau.spark.rules.ranges import PartitionRange
from moldau.spark.rules.task_planning import Task, pack_tasks, plan_tasks

if TYPE_CHECKING:
    from moldau.spark.options import SourceOptions


class RangePartition(InputPartition):
    """Ranges of offsets, each of one partition of a topic."""

    def __init__(self, task: Task) -> None:
        super().__init__(tuple((*one.partition, *one[1:]) for one in task))


def make_partitions(
    ranges: Iterable[PartitionRange], options: SourceOptions
) -> list[InputPartition]:
    """The tasks that read these ranges."""
    planned = plan_tasks(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    packed = pack_tasks(
        planned,
        min_records_per_partition=options.min_records_per_partition,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [RangePartition(task) for task in packed]


def find_task(given: InputPartition) -> Task:
    """What is to be read; nothing where Spark made a task though there was nothing to plan."""
    return tuple(
        PartitionRange(TopicPartition(topic, number), *rest)
        for topic, number, *rest in given.value or ()
    )
