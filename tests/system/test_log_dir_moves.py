"""Replicas moved between two log directories of a running broker, by our command line, while
records come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import moldau
import moldau.testing
from moldau.client.admin_values import ConfigChange, ConfigOperation, ConfigResource
from support.command_line import Cli
from support.waiting import eventually

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def test_a_replica_moves_under_load_and_nothing_is_lost(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    config = {"log.dirs": f"{first},{second}"}
    with moldau.testing.broker(config, data_folder=first) as broker:
        moldau_cli = Cli(broker.bootstrap, capfdbinary)
        topic = broker.create_topic(config={"segment.bytes": "1048576"})
        sent = [f"{number:06d}".encode() + b"x" * 1_000 for number in range(6_000)]
        broker.produce(topic, *sent[:3_000])
        (source,) = [each for each in (first, second) if (each / f"{topic}-0").exists()]
        target = second if source == first else first
        plan = tmp_path / "plan.json"
        with moldau.Admin(broker.bootstrap) as admin:
            ((broker_id,),) = [one.replicas for one in admin.list_topics()[topic].partitions]
        row = {"topic": topic, "partition": 0, "replicas": [broker_id], "log_dirs": [str(target)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [row]}))

        moldau_cli("reassign", "execute", "--plan", str(plan), "--log-dirs-throttle", "1000000")
        shown = moldau_cli.json("log", "dirs")
        futures = [
            (each["path"], one["topic"])
            for each in shown
            for one in each["replicas"]
            if one["is_future"]
        ]
        assert futures == [(str(target), topic)]
        assert "moving" in moldau_cli("reassign", "verify", "--plan", str(plan), code=1)
        broker.produce(topic, *sent[3_000:])
        no_throttle = ConfigChange(name=RATE, operation=ConfigOperation.DELETE)
        with moldau.Admin(broker.bootstrap) as admin:
            admin.alter_configs({ConfigResource.broker(broker_id): [no_throttle]})
        eventually(lambda: (target / f"{topic}-0").exists(), "the replica is there")
        eventually(lambda: not (source / f"{topic}-0").exists(), "the old one is gone")

        assert "complete" in moldau_cli("reassign", "verify", "--plan", str(plan))
        assert [one.value for one in broker.records(topic)] == sent
        assert str(target) in moldau_cli("log", "dirs", "--replicas", "--topic", topic)
