"""What a local cluster consists of, from command to command."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.cli.local_cluster import ClusterPlan
from moldau.errors import StartupError


def choose(
    folder: Path,
    brokers: int | None = None,
    base_port: int | None = None,
    zookeeper_nodes: int | None = None,
    with_zookeeper: bool = False,
) -> ClusterPlan:
    return ClusterPlan.choose(
        folder,
        brokers=brokers,
        base_port=base_port,
        zookeeper_nodes=zookeeper_nodes,
        with_zookeeper=with_zookeeper,
    )


def test_what_nobody_says_is_the_default(tmp_path: Path) -> None:
    plan = choose(tmp_path)
    assert plan == ClusterPlan(brokers=3, base_port=9092, zookeeper_nodes=0)
    assert [plan.broker_port(number) for number in (1, 2, 3)] == [9092, 9093, 9094]
    assert plan.zookeeper_port == 9192


def test_what_is_there_goes_before_the_defaults(tmp_path: Path) -> None:
    plan = ClusterPlan(brokers=5, base_port=7000, zookeeper_nodes=3)
    plan.save(tmp_path)
    assert choose(tmp_path) == ClusterPlan.require(tmp_path) == plan


@pytest.mark.parametrize(
    ("wish", "nodes"),
    [
        ({"with_zookeeper": True}, 1),
        ({"zookeeper_nodes": 3}, 3),
        ({"zookeeper_nodes": 3, "with_zookeeper": True}, 3),
    ],
)
def test_zookeeper_is_there_when_somebody_wants_it(
    tmp_path: Path, wish: dict[str, int], nodes: int
) -> None:
    plan = choose(tmp_path, **wish)
    assert plan.zookeeper_nodes == nodes
    plan.save(tmp_path)
    assert choose(tmp_path) == choose(tmp_path, with_zookeeper=True) == plan


def test_a_cluster_without_zookeeper_does_not_get_one_later(tmp_path: Path) -> None:
    choose(tmp_path).save(tmp_path)
    with pytest.raises(StartupError, match="no ZooKeeper"):
        choose(tmp_path, with_zookeeper=True)


def test_the_folder_of_the_logs_is_kept_until_another_one_is_given(tmp_path: Path) -> None:
    def choose_logs(log_dir: Path | None) -> ClusterPlan:
        return ClusterPlan.choose(
            tmp_path, brokers=1, base_port=None, zookeeper_nodes=None, log_dir=log_dir
        )

    for given, expected in ((None, None), ("one", "one"), (None, "one"), ("two", "two")):
        plan = choose_logs(None if given is None else tmp_path / given)
        assert plan.log_dir == (None if expected is None else str(tmp_path / expected))
        plan.save(tmp_path)


def test_brokers_can_be_added_and_ports_moved(tmp_path: Path) -> None:
    ClusterPlan(brokers=2, base_port=7000, zookeeper_nodes=1).save(tmp_path)
    grown = ClusterPlan(brokers=4, base_port=8000, zookeeper_nodes=1)
    assert choose(tmp_path, brokers=4, base_port=8000) == grown


@pytest.mark.parametrize("wish", [{"brokers": 1}, {"zookeeper_nodes": 3}])
def test_brokers_and_nodes_with_data_are_not_dropped(tmp_path: Path, wish: dict[str, int]) -> None:
    ClusterPlan(brokers=2, base_port=7000, zookeeper_nodes=1).save(tmp_path)
    with pytest.raises(StartupError, match="--data-dir"):
        choose(tmp_path, **wish)


def test_a_folder_without_a_cluster_or_with_a_broken_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="no cluster"):
        ClusterPlan.require(tmp_path)
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(StartupError, match="not readable"):
        ClusterPlan.require(tmp_path)
