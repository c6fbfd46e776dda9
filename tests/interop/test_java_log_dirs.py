"""Kafka's own tools move replicas between log directories (kafka-reassign-partitions.sh) and show
them (kafka-log-dirs.sh)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import moldau
import moldau.testing
from support.kafka_jars import JarsUnavailableError, require_class_path
from support.waiting import eventually

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return require_class_path()
    except JarsUnavailableError as error:
        pytest.skip(str(error))


def run_tool(class_path: str, tool: str, bootstrap: str, *arguments: str) -> str:
    command = ["java", "-cp", class_path, tool, "--bootstrap-server", bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_reassign_partitions_moves_a_replica_to_another_directory(
    class_path: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    config = {"log.dirs": f"{first},{second}"}
    with moldau.testing.broker(config, data_folder=first) as broker:
        topic = broker.create_topic()
        broker.produce(topic, *[b"%d" % number for number in range(100)])
        with moldau.Admin(broker.bootstrap) as admin:
            ((broker_id,),) = [one.replicas for one in admin.list_topics()[topic].partitions]
        source = next(each for each in (first, second) if (each / f"{topic}-0").exists())
        target = second if source == first else first
        row = {"topic": topic, "partition": 0, "replicas": [broker_id], "log_dirs": [str(target)]}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [row]}))

        def reassign(*arguments: str) -> str:
            named = ("--reassignment-json-file", str(plan))
            return run_tool(class_path, REASSIGN, broker.bootstrap, *named, *arguments)

        throttle = ("--replica-alter-log-dirs-throttle", "100000000")
        assert "move" in reassign("--execute", *throttle)
        eventually(lambda: not (source / f"{topic}-0").exists(), "the replica has moved")
        assert "completed successfully" in reassign("--verify")
        shown = run_tool(
            class_path, LOG_DIRS, broker.bootstrap, "--describe", "--topic-list", topic
        )
        document = json.loads(shown[shown.index("{") :])
        places = {
            one["logDir"]: [row["partition"] for row in one["partitions"]]
            for one in document["brokers"][0]["logDirs"]
        }
        assert places == {str(source): [], str(target): [f"{topic}-0"]}
        assert [one.value for one in broker.records(topic)] == [b"%d" % n for n in range(100)]
