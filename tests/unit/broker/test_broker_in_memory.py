"""A whole broker, the production code, on a virtual clock, files in memory and a memory network.

What takes days in production takes milliseconds here, and disks fail on request.
"""

import asyncio
import contextlib
import errno
import json
from pathlib import Path
from random import Random

import pytest
from kio.index import load_request_schema

from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.cluster.znodes import encode_config
from moldau.coordination.embedded import EmbeddedStore
from moldau.errors import ErrorCode, StartupError
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import build_batch, records_of
from moldau.simulation.manual_clock import wait_until_idle
from moldau.storage.rules.file_names import CLEAN_SHUTDOWN_FILE
from moldau.testing import ManualClock, MemoryFiles, MemoryNetwork
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.workers import InlineWorkers, Workers
from support.memory_stores import open_memory_store

HOUR_MS = 3_600_000


class World:
    """The machine of one broker; it outlives the broker."""

    def __init__(self, **config: str) -> None:
        self.clock = ManualClock()
        self.files = MemoryFiles(self.clock)
        self.network = MemoryNetwork(self.clock)
        self.config = {name.replace("_", "."): value for name, value in config.items()}
        self.store: EmbeddedStore | None = None

    @contextlib.asynccontextmanager
    async def coordination(self, folder: Path):
        if self.store is None:
            self.store = await open_memory_store(self.clock)
        session = self.store.session()
        yield session
        await session.close()

    def make_workers(self) -> Workers:
        return InlineWorkers()

    async def start(self) -> BrokerServer:
        ports = Ports(
            clock=self.clock,
            files=self.files,
            network=self.network.host("broker"),
            workers=self.make_workers(),
            open_coordination=self.coordination,
        )
        static = {
            "listeners": "PLAINTEXT://broker:9092",
            "log.dirs": "/data",
            "log.flush.offset.checkpoint.interval.ms": str(HOUR_MS),
            "log.flush.start.offset.checkpoint.interval.ms": str(HOUR_MS),
            "replica.high.watermark.checkpoint.interval.ms": str(HOUR_MS),
            "log.retention.check.interval.ms": str(HOUR_MS),
            **self.config,
        }
        broker = BrokerServer(static, ports)
        await broker.start()
        return broker

    async def ask(self, key: int, version: int, **values: object):
        request = fit(load_request_schema(key, version), values)
        channel = await self.network.host("client").connect("broker", 9092, timeout=5)
        try:
            await channel.send([encode_request(request, 1, "test")])
            return parse_response(key, version, memoryview(await channel.receive()))[1]
        finally:
            await channel.close()

    async def create(self, topic: str, **configs: str) -> None:
        answer = await self.ask(
            19,
            5,
            topics=[
                {
                    "name": topic,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [
                        {"name": name.replace("_", "."), "value": value}
                        for name, value in configs.items()
                    ],
                }
            ],
            timeout=1000,
            validate_only=False,
        )
        assert answer.topics[0].error_code is ErrorCode.none, answer.topics[0].error_message

    async def produce(self, topic: str, *values: bytes, timestamp_ms: int | None = None):
        now = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        batch = build_batch([(now, None, value, ()) for value in values])
        answer = await self.ask(
            0,
            8,
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}],
        )
        return answer.responses[0].partition_responses[0]

    async def offsets(self, topic: str) -> tuple[int, int]:
        found = []
        for special in (-2, -1):
            wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": special}
            answer = await self.ask(
                2,
                5,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": topic, "partitions": [wanted]}],
            )
            found.append(answer.topics[0].partitions[0].offset)
        return found[0], found[1]

    async def values(self, topic: str, offset: int = 0) -> list[bytes]:
        answer = await self.ask(
            1,
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
        partition = answer.responses[0].partitions[0]
        assert partition.error_code is ErrorCode.none
        data = partition.records or b""
        return [
            record.value
            for position, header in walk_headers(data)
            for record in records_of(data[position : position + header.size_bytes])
        ]


def run(story, **config: str) -> None:
    async def tell() -> None:
        world = World(**config)
        await story(world)

    asyncio.run(tell())


def test_a_record_comes_back():
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        assert (await world.produce("clicks", b"a", b"b")).base_offset == 0
        assert (await world.produce("clicks", b"c")).base_offset == 2
        assert await world.values("clicks") == [b"a", b"b", b"c"]
        await broker.stop()
        assert not world.files.open_files

    run(story)


def test_a_week_of_retention_passes_in_no_time():
    async def story(world):
        broker = await world.start()
        await world.create("clicks", retention_ms=str(7 * 24 * HOUR_MS))
        await world.produce("clicks", b"old")
        await world.clock.advance(7 * 24 * 3600 - 60)
        assert await world.offsets("clicks") == (0, 1)
        await world.clock.advance(2 * 3600)
        assert await world.offsets("clicks") == (1, 1)
        await world.produce("clicks", b"new")
        assert await world.values("clicks", 1) == [b"new"]
        await broker.stop()

    run(story)


def test_topics_and_records_survive_a_clean_restart():
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        await world.produce("clicks", b"a")
        await broker.stop()
        world.files.lose_power()
        broker = await world.start()
        assert await world.values("clicks") == [b"a"]
        await broker.stop()

    run(story)


async def crash(world, broker) -> None:
    """The process ends here and now; what it would still do cannot reach the files."""
    world.files.crash_process()
    world.network.crash("broker")
    with contextlib.suppress(Exception):
        await broker.stop()


def test_a_broker_that_is_thrown_away_while_it_starts_closes_nothing():
    """As its coroutine is found as garbage, nothing can be awaited: see seed 76."""

    async def story(world: World) -> None:
        world.coordination = _never_connected
        starting = world.start()
        starting.send(None)  # to where it waits for the coordination store
        starting.close()
        assert not world.files.exists(Path("/data") / CLEAN_SHUTDOWN_FILE)

    run(story)


@contextlib.asynccontextmanager
async def _never_connected(folder: Path):
    yield await asyncio.get_running_loop().create_future()


def test_a_crash_of_the_process_loses_nothing():
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        for number in range(20):
            await world.produce("clicks", b"%d" % number)
        await crash(world, broker)
        await world.start()
        assert await world.values("clicks") == [b"%d" % number for number in range(20)]

    run(story)


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_takes_nothing_that_was_flushed(seed):
    async def story(world):
        broker = await world.start()
        await world.create("clicks", flush_messages="1")
        for number in range(10):
            answer = await world.produce("clicks", b"%d" % number)
            assert answer.error_code is ErrorCode.none
        world.files.lose_power(Random(seed))
        world.network.crash("broker")
        with contextlib.suppress(Exception):
            await broker.stop()
        await world.start()
        assert await world.values("clicks") == [b"%d" % number for number in range(10)]

    run(story)


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_leaves_a_prefix_of_what_was_not_flushed(seed):
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        world.files.sync_everything()
        for number in range(10):
            await world.produce("clicks", b"%d" % number)
        world.files.lose_power(Random(seed))
        world.network.crash("broker")
        with contextlib.suppress(Exception):
            await broker.stop()
        await world.start()
        found = await world.values("clicks")
        assert found == [b"%d" % number for number in range(len(found))]

    run(story)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_is_told_and_loses_nothing_acknowledged(code):
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        await world.produce("clicks", b"safe")
        world.files.fail_next("write", code, path_matching="*.log", kept_bytes=30)
        answer = await world.produce("clicks", b"lost")
        assert answer.error_code is ErrorCode.kafka_storage_error
        assert (await world.produce("clicks", b"later")).error_code in (
            ErrorCode.kafka_storage_error,
            ErrorCode.not_leader_or_follower,
        )
        await crash(world, broker)
        world.files.clear_faults()
        await world.start()
        assert await world.values("clicks") == [b"safe"]
        assert (await world.produce("clicks", b"again")).base_offset == 1

    run(story)


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.ENOSPC, "Make room"), (errno.EIO, "Repair or replace")]
)
def test_a_broker_goes_on_until_its_last_log_directory_failed(code, advice):
    async def story(world):
        broker = await world.start()
        for topic in ("clicks", "views"):
            await world.create(topic)
        topics = {topic: find_folder(world, topic) for topic in ("clicks", "views")}
        assert set(topics.values()) == {"/data", "/more"}
        for topic in topics:
            assert broker.failure is None
            world.files.fail_next("write", code, path_matching=f"*/{topic}-0/*.log")
            await world.produce(topic, b"lost")
            await wait_until_idle()
        assert broker.failure == await broker.wait_until_failed()
        assert "no log directory is left (/data: " in broker.failure
        assert advice in broker.failure
        await broker.stop()

    def find_folder(world: World, topic: str) -> str:
        return next(
            name for name in ("/data", "/more") if world.files.exists(Path(name) / f"{topic}-0")
        )

    run(story, log_dirs="/data,/more")


def test_a_disk_that_failed_is_told_of_once(caplog):
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        world.files.fail_next("write", errno.EIO, path_matching="*.log")
        await world.produce("clicks", b"lost")
        await wait_until_idle()
        await broker.stop()

    run(story)
    told = [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "ERROR" and "the log directory /data" in record.getMessage()
    ]
    assert len(told) == 1
    assert "its partitions are not served until" in told[0]


def test_the_marker_of_a_clean_stop_has_the_epoch_of_the_broker():
    async def story(world):
        broker = await world.start()
        epoch = broker.services.image.brokers[broker.services.broker_id].epoch
        await broker.stop()
        marker = json.loads(world.files.read(Path("/data") / CLEAN_SHUTDOWN_FILE))
        assert epoch > 0
        assert marker == {"version": 0, "brokerEpoch": epoch}

    run(story)


def test_a_log_without_a_topic_is_put_aside_and_not_deleted():
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        await world.produce("clicks", b"a")
        await broker.stop()
        assert world.store is not None
        session = world.store.session()
        await session.delete_tree("/brokers/topics/clicks")
        broker = await world.start()
        kept = [name for name in world.files.list_folder(Path("/data")) if "clicks" in name]
        assert kept == ["clicks-0"]
        await world.create("clicks")
        assert await world.offsets("clicks") == (0, 0)
        kept = [name for name in world.files.list_folder(Path("/data")) if "clicks" in name]
        assert sorted(name.endswith("-stray") for name in kept) == [False, True]
        await broker.stop()

    run(story)


def test_a_folder_without_a_store_is_adopted():
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        await world.produce("clicks", b"a")
        await broker.stop()
        world.store = None
        broker = await world.start()
        assert await world.values("clicks") == [b"a"]
        assert (await world.produce("clicks", b"b")).base_offset == 1
        await broker.stop()

    run(story)


def write_kafka_folder(files, *, version: int) -> bytes:
    """What Kafka would have left beside the logs; returns its meta.properties."""
    identity = ("broker.id", "node.id")[version]
    text = f"version={version}\n{identity}=4\ncluster.id=5q7mWlOxRyS9hrrX9e3zrA\n"
    data = text.encode()
    files.replace(Path("/data/meta.properties"), data)
    files.make_folder(Path("/data/__cluster_metadata-0"))
    files.replace(Path("/data/__cluster_metadata-0/00000000000000000000.log"), b"theirs")
    return data


def without_directory_id(files) -> bytes:
    """Kafka's own lines: from 3.7 on it adds the id by itself, before it does not look at it."""
    lines = files.read(Path("/data/meta.properties")).splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"directory.id="))


@pytest.mark.parametrize("version", [0, 1])
def test_a_folder_of_kafkas_loses_nothing_before_its_settings_are_confirmed(version):
    async def story(world):
        world.config["log.retention.ms"] = "1000"
        world.config["broker.id"] = "4"
        broker = await world.start()
        await world.create("__consumer_offsets")
        await written_thrice(world, "clicks")
        await broker.stop()
        world.store = None
        identity = write_kafka_folder(world.files, version=version)

        broker = await world.start()
        assert without_directory_id(world.files) == identity
        assert "__cluster_metadata" not in broker.services.image.topics
        topics = broker.services.image.topics
        assert topics["clicks"].configs == {"cleanup.suspended": "true"}
        assert topics["__consumer_offsets"].configs["cleanup.policy"] == "compact"
        store = broker.services.log_store
        await world.clock.advance(10_000)
        await store._maintenance.apply_retention()
        assert await world.offsets("clicks") == (0, 3)

        await broker.stop()
        broker = await world.start()  # it is still so
        store = broker.services.log_store
        await store._maintenance.apply_retention()
        assert await world.offsets("clicks") == (0, 3)
        change = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
        resource = {"resource_type": 2, "resource_name": "clicks", "configs": [change]}
        await world.ask(44, 1, resources=[resource], validate_only=False)
        await wait_until_idle()
        await store._maintenance.apply_retention()
        assert await world.offsets("clicks") == (3, 3)
        assert broker.services.image.topics["clicks"].configs == {"retention.ms": "1000"}
        await broker.stop()
        assert without_directory_id(world.files) == identity
        theirs = Path("/data/__cluster_metadata-0/00000000000000000000.log")
        assert world.files.read(theirs) == b"theirs"

    run(story)


def test_a_part_of_the_offsets_topic_is_served_with_all_its_partitions():
    """Which partition a group has depends on their number."""

    async def story(world):
        broker = await world.start()
        await world.create("__consumer_offsets")
        await broker.stop()
        world.store = None
        world.files.rename(Path("/data/__consumer_offsets-0"), Path("/data/__consumer_offsets-7"))
        broker = await world.start()
        assert len(broker.services.image.topics["__consumer_offsets"].partitions) == 50
        await wait_until_idle()
        await broker.stop()

    run(story)


def test_an_empty_zookeeper_is_not_filled_from_disk_unless_somebody_asks_for_it():
    async def story(world):
        broker = await world.start()
        await world.create("clicks")
        await world.produce("clicks", b"a")
        await broker.stop()
        world.store = None
        world.config["zookeeper.connect"] = "unused:2181"
        with pytest.raises(StartupError, match="is empty, and the data folder has 1 logs"):
            await world.start()
        world.config["adopt.topics.enable"] = "true"
        broker = await world.start()
        assert await world.values("clicks") == [b"a"]
        await broker.stop()

    run(story)


# Damaged settings


async def written_thrice(world, topic: str, **configs: str):
    await world.create(topic, internal_segment_bytes="100", **configs)
    for value in (b"a", b"b", b"c"):
        await world.produce(topic, value)


def test_damaged_settings_of_a_topic_delete_nothing():
    async def story(world):
        world.config["log.retention.ms"] = "1000"
        broker = await world.start()
        await written_thrice(world, "clicks", retention_ms="-1")
        session = world.store.session()
        node = await session.get("/config/topics/clicks")
        await session.set("/config/topics/clicks", b"{ damaged")
        await broker.services.publisher.refresh_topics(["clicks"])
        assert broker.services.image.topics["clicks"].configs["retention.ms"] == "-1"
        await broker.stop()

        broker = await world.start()  # and nobody knows what they were
        assert broker.services.image.topics["clicks"].configs == {"cleanup.suspended": "true"}
        await world.clock.advance(10_000)
        await broker.services.log_store._maintenance.apply_retention()
        assert await world.offsets("clicks") == (0, 3)
        assert (await world.produce("clicks", b"d")).base_offset == 3
        await session.set("/config/topics/clicks", node.data)
        await broker.services.publisher.refresh_topics(["clicks"])
        assert broker.services.image.topics["clicks"].configs["retention.ms"] == "-1"
        await broker.stop()

    run(story)


def test_settings_of_a_topic_that_cannot_be_are_not_taken():
    async def story(world):
        world.config["log.retention.ms"] = "1000"
        broker = await world.start()
        await written_thrice(world, "clicks", retention_ms="-1")
        data = encode_config({"retention.ms": "never"})
        await world.store.session().set("/config/topics/clicks", data)
        await broker.services.publisher.refresh_topics(["clicks"])
        await wait_until_idle()
        await world.clock.advance(10_000)
        await broker.services.log_store._maintenance.apply_retention()
        assert await world.offsets("clicks") == (0, 3)
        await broker.stop()
        broker = await world.start()
        await broker.services.log_store._maintenance.apply_retention()
        assert await world.offsets("clicks") == (0, 3)
        await broker.stop()

    run(story)


@pytest.mark.parametrize("entity", ["<default>", "1"])
@pytest.mark.parametrize("data", [b"{ damaged", encode_config({"log.retention.ms": "never"})])
def test_damaged_settings_of_a_broker_delete_nothing(entity, data):
    async def story(world):
        world.config["log.retention.ms"] = "1000"
        broker = await world.start()
        await written_thrice(world, "clicks")
        change = {"name": "log.retention.ms", "config_operation": 0, "value": "-1"}
        name = "" if entity == "<default>" else entity
        resource = {"resource_type": 4, "resource_name": name, "configs": [change]}
        await world.ask(44, 1, resources=[resource], validate_only=False)
        await world.store.session().set(f"/config/brokers/{entity}", data)
        await broker.services.publisher.read_again()
        assert broker.services.options.log_retention_ms == -1
        await broker.stop()

        broker = await world.start()
        assert broker.services.options.log_cleanup_suspended
        await world.clock.advance(10_000)
        await broker.services.log_store._maintenance.apply_retention()
        assert await world.offsets("clicks") == (0, 3)
        await world.ask(44, 1, resources=[resource], validate_only=False)  # mends it
        await wait_until_idle()
        assert broker.services.options.log_retention_ms == -1
        await broker.stop()

    run(story)
