"""What `moldau reassign` reads, tells and sets: plans, progress, throttles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer

from moldau.cli.placement import read_log_dirs, read_plan, to_document
from moldau.client.admin.values import (
    ClusterDescription,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    Reassignment,
)
from moldau.client.rules.cluster_metadata import Address, Broker
from moldau.model import TopicPartition
from moldau.ops.reassignment import MoveProgress, progress_of, remove_throttle, set_throttle

CLICKS_0, CLICKS_1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


class NotingAdmin:
    """Takes note of the settings that are changed."""

    def __init__(self) -> None:
        self.changes: dict[str, list[tuple[str, str | None]]] = {}

    async def alter_configs(
        self, changes: Mapping[ConfigResource, list[ConfigChange]]
    ) -> Mapping[ConfigResource, None]:
        for resource, rows in changes.items():
            assert all((r.operation is ConfigOperation.DELETE) == (r.value is None) for r in rows)
            self.changes[str(resource)] = [(row.name, row.value) for row in rows]
        return dict.fromkeys(changes)

    async def describe_cluster(self) -> ClusterDescription:
        brokers = tuple(Broker(id=n, address=Address("h", 1)) for n in (1, 2, 3))
        return ClusterDescription(cluster_id="c", controller_id=1, brokers=brokers)


def test_a_plan_is_written_and_read_as_kafkas_tool_does(tmp_path: Path) -> None:
    plan = {CLICKS_1: (2, 3), CLICKS_0: (1, 2)}
    document = to_document(plan)
    assert document == {
        "version": 1,
        "partitions": [
            {"topic": "clicks", "partition": 0, "replicas": [1, 2]},
            {"topic": "clicks", "partition": 1, "replicas": [2, 3]},
        ],
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert read_plan(path) == plan


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        "{}",
        '{"partitions":[]}',
        '{"partitions":[7]}',
        '{"partitions":[{"topic":"t","partition":"0","replicas":[1]}]}',
        '{"partitions":[{"topic":"t","partition":0,"replicas":[true]}]}',
        '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
        '{"topic":"t","partition":0,"replicas":[2]}]}',
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(typer.BadParameter):
        read_plan(path)


def test_a_plan_may_say_in_which_directories_replicas_are(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    row = {"topic": "clicks", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/disk2"]}
    bare = {"topic": "clicks", "partition": 1, "replicas": [1]}
    path.write_text(json.dumps({"version": 1, "partitions": [row, bare]}))
    assert read_plan(path) == {CLICKS_0: (1, 2), CLICKS_1: (1,)}
    assert read_log_dirs(path) == {(2, CLICKS_0): "/disk2"}
    row["log_dirs"] = ["/disk2"]
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    with pytest.raises(typer.BadParameter, match="as many"):
        read_log_dirs(path)


def test_progress_is_told_for_each_partition() -> None:
    placement = {CLICKS_0: (2,), CLICKS_1: (2, 1)}
    moving = {CLICKS_1: Reassignment(replicas=(2, 1), adding_replicas=(2,), removing_replicas=(1,))}
    unknown = TopicPartition("other", 0)
    assert progress_of(CLICKS_0, (2,), placement, moving) is MoveProgress.COMPLETE
    assert progress_of(CLICKS_0, (3,), placement, moving) is MoveProgress.NOT_BEGUN
    assert progress_of(CLICKS_1, (2,), placement, moving) is MoveProgress.MOVING
    assert progress_of(CLICKS_1, (3,), placement, moving) is MoveProgress.NOT_BEGUN
    assert progress_of(unknown, (3,), placement, moving) is MoveProgress.MISSING


def test_a_throttle_is_set_for_all_that_take_part_and_removed_everywhere() -> None:
    admin = NotingAdmin()
    plan = {CLICKS_0: (3, 2)}
    placement = {CLICKS_0: (1, 2), CLICKS_1: (1, 2)}
    asyncio.run(set_throttle(admin, plan, placement, 1000))  # type: ignore[arg-type]
    rates = [
        ("leader.replication.throttled.rate", "1000"),
        ("follower.replication.throttled.rate", "1000"),
    ]
    assert admin.changes == {
        "broker 1": rates,
        "broker 2": rates,
        "broker 3": rates,
        "topic clicks": [
            ("leader.replication.throttled.replicas", "0:1,0:2"),
            ("follower.replication.throttled.replicas", "0:3"),
        ],
    }
    asyncio.run(remove_throttle(admin, plan, placement))  # type: ignore[arg-type]
    assert all(value is None for rows in admin.changes.values() for _, value in rows)
    assert set(admin.changes) == {"broker 1", "broker 2", "broker 3", "topic clicks"}
