"""A cluster that cannot be started leaves nothing behind that decides for the next attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.cli.cluster.local_cluster import open_cluster
from moldau.cli.cluster.plan import ClusterPlan
from moldau.coordination import zookeeper_java
from moldau.errors import StartupError
from moldau.testing.free_ports import take_port


def test_without_a_zookeeper_to_run_no_cluster_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_java, "_jar_folder", lambda: None)
    plan = ClusterPlan(brokers=1, base_port=take_port(100), zookeeper_nodes=1)
    said: list[str] = []
    with pytest.raises(StartupError, match="PySpark"):
        open_cluster(tmp_path, plan).start((), said.append)
    assert said == []
    assert ClusterPlan.find(tmp_path) is None
