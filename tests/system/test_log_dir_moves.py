"""Replicas moved between two log directories of a running broker, by our command line, while
records come."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random

import pytest

import moldau
import moldau.testing
from moldau.client.admin.values import ConfigChange, ConfigOperation, ConfigResource, NewTopic
from moldau.model import TopicPartition
from support.broker_process import broker_process
from support.command_line import Cli
from support.confluent_client import consume
from support.waiting import PATIENCE_SECONDS, eventually

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_is_killed_again_and_again_while_replicas_move_and_records_come(
    folder: Path, seed: int
) -> None:
    """kill -9 at moments of chance: every acknowledged record is there once, in its order, in one
    folder, and each move is completed in the end or can be asked for again."""
    random = Random(seed)
    paths = [folder / name for name in ("first", "second")]
    settings = {
        "log.dirs": ",".join(map(str, paths)),
        "log.segment.bytes": str(1 << 20),
        RATE: "2000000",
    }
    partitions = [TopicPartition("t", number) for number in range(3)]
    sent: dict[TopicPartition, list[bytes]] = {one: [] for one in partitions}
    targets = dict.fromkeys(partitions, paths[0])
    with broker_process(folder / "broker", settings=settings) as broker:
        broker.start()
        with moldau.Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name="t", partitions=3)])
        with moldau.Producer(broker.bootstrap, delivery_timeout_ms=60_000) as producer:
            for _ in range(4):
                with moldau.Admin(broker.bootstrap) as admin:
                    (broker_id,) = admin.describe_log_dirs()
                    moved = random.sample(partitions, 2)
                    targets.update((one, random.choice(paths)) for one in moved)
                    wanted = {(broker_id, one): str(targets[one]) for one in moved}
                    eventually(partial(begin_moves, admin, wanted), "the moves have begun")
                waiting = []
                for one, values in sent.items():
                    for _ in range(40):
                        values.append(b"%06d" % len(values) + bytes(20_000))
                        waiting.append(
                            producer.send("t", value=values[-1], partition=one.partition)
                        )
                time.sleep(random.uniform(0.0, 0.5))  # a moment of chance
                broker.kill()
                broker.start()
                for each in waiting:
                    each.result(PATIENCE_SECONDS)
            with moldau.Admin(broker.bootstrap) as admin:
                wanted = {(broker_id, one): str(path) for one, path in targets.items()}
                eventually(partial(begin_moves, admin, wanted), "the moves have begun")
                fast = ConfigChange(name=RATE, operation=ConfigOperation.DELETE)
                admin.alter_configs({ConfigResource.broker(broker_id): [fast]})

        def find_folders() -> dict[TopicPartition, list[Path]]:
            return {
                one: [path for path in paths if list(path.glob(f"t-{one[1]}*"))] for one in sent
            }

        wanted_folders = {one: [path] for one, path in targets.items()}
        eventually(lambda: find_folders() == wanted_folders, "every log is where it belongs")
        for one, values in sent.items():
            read = consume(broker.bootstrap, "t", len(values), partition=one.partition)
            assert [record.value for record in read] == values
        assert broker.stop() == 0


def begin_moves(admin: moldau.Admin, wanted: Mapping[tuple[int, TopicPartition], str]) -> bool:
    """A replica that is being opened has to be asked for again."""
    return not any(admin.alter_replica_log_dirs(wanted).values())


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
