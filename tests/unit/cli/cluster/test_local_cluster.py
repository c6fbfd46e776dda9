"""Where the files of a cluster are. A cluster that cannot be started leaves nothing behind that
decides for the next attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.cli.local_cluster import ClusterPlan, open_cluster
from moldau.coordination.zookeeper import server
from moldau.errors import StartupError
from moldau.testing.free_ports import take_port


def test_without_a_zookeeper_to_run_no_cluster_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_jar_folder", lambda: None)
    plan = ClusterPlan(brokers=1, base_port=take_port(100), zookeeper_nodes=1)
    said: list[str] = []
    with pytest.raises(StartupError, match="PySpark"):
        open_cluster(tmp_path, plan).start((), said.append)
    assert said == []
    assert ClusterPlan.find(tmp_path) is None


@pytest.mark.parametrize(
    ("nodes", "beside", "elsewhere"),
    [
        (0, ["brokers.log", "brokers.log"], ["brokers.log", "brokers.log"]),
        (
            1,
            ["broker-1/broker.log", "broker-2/broker.log"],
            ["broker-1.log", "broker-2.log"],
        ),
    ],
    ids=["one supervisor", "zookeeper"],
)
def test_logs_are_beside_the_data_or_on_another_disk(
    tmp_path: Path, nodes: int, beside: list[str], elsewhere: list[str]
) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    for log_dir, folder, names in ((None, data, beside), (str(logs), logs, elsewhere)):
        plan = ClusterPlan(brokers=2, base_port=9092, zookeeper_nodes=nodes, log_dir=log_dir)
        cluster = open_cluster(data, plan)
        assert [one.process.log_file for one in cluster.brokers] == [folder / one for one in names]
        assert all(one.process.pid_file.is_relative_to(data) for one in cluster.brokers)
