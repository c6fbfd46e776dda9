"""What a broker allows: connections, idle time, large requests, and the age and size of a log."""

from __future__ import annotations

import contextlib
import struct

import pytest
from confluent_kafka import TopicPartition

from support import confluent_client
from support.broker_process import running_broker
from support.requests import minimal_request
from support.rows import Row, numbered_rows
from support.topics import Topics
from support.waiting import eventually
from support.wire_client import ClosedByBroker, WireClient, request_frame

ASK = minimal_request(18, 0)


def is_served(client: WireClient) -> bool:
    try:
        client.ask(ASK)
    except (ClosedByBroker, ConnectionError):
        return False
    return True


@pytest.mark.parametrize("option", ["max.connections", "listener.name.plaintext.max.connections"])
def test_connections_beyond_the_limit_wait_until_others_go(option: str) -> None:
    with running_broker({option: "10"}) as broker, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient(broker.port)) for _ in range(10)]
        assert all(is_served(client) for client in clients)
        with WireClient(broker.port) as eleventh:
            eleventh.send(request_frame(ASK))
            assert all(is_served(client) for client in clients)
            eleventh.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                eleventh.socket.recv(1)
            eleventh.socket.settimeout(60)
            clients[0].close()
            assert eleventh.socket.recv(1)


def test_connections_of_an_address_beyond_the_limit_are_refused_until_others_go() -> None:
    settings = {"max.connections.per.ip": "10"}
    with running_broker(settings) as broker, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient(broker.port)) for _ in range(10)]
        assert all(is_served(client) for client in clients)
        with WireClient(broker.port) as eleventh:
            assert not is_served(eleventh)
        assert all(is_served(client) for client in clients)

        clients[0].close()

        def comes_in() -> bool:
            with WireClient(broker.port) as client:
                return is_served(client)

        eventually(comes_in, "a place is free again")


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    with (
        running_broker({"connections.max.idle.ms": "2000"}) as broker,
        WireClient(broker.port) as idle,
        WireClient(broker.port) as busy,
        WireClient(broker.port) as slow,
    ):
        assert is_served(idle)
        idle.socket.setblocking(False)
        slow.send(struct.pack(">i", 1_000))  # and then a byte now and then, for ever
        slow.socket.setblocking(False)

        def is_closed(client: WireClient) -> bool:
            assert is_served(busy)
            try:
                if client is slow:
                    client.socket.send(b"x")
                return client.socket.recv(1) == b""
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        eventually(lambda: is_closed(idle), "the idle connection is closed")
        eventually(lambda: is_closed(slow), "so is the one that never finishes its request")


def test_a_request_larger_than_allowed_ends_its_connection() -> None:
    with running_broker({"socket.request.max.bytes": "10000"}) as broker:
        with WireClient(broker.port) as client:
            client.send(struct.pack(">i", 10_001))
            assert client.is_closed_by_broker()
        with WireClient(broker.port) as client:
            assert is_served(client)


SEGMENTS = {"internal.segment.bytes": "10000", "file.delete.delay.ms": "0"}


@pytest.mark.parametrize(
    "config",
    [{"retention.bytes": "30000"}, {"retention.ms": "1000"}],
    ids=["by size", "by time"],
)
def test_old_segments_are_deleted(config: dict[str, str]) -> None:
    """Records of 2023 in segments of ten: what is beyond the limit goes, the rest stays."""
    settings = {"log.retention.check.interval.ms": "100"}
    with running_broker(settings) as broker:
        topic = Topics(broker.bootstrap).create(config=SEGMENTS | config)
        rows = [Row(None, b"%03d" % number * 300, (), 1_700_000_000_000) for number in range(100)]
        confluent_client.produce(broker.bootstrap, topic, rows, batch_num_messages=1)
        partition = TopicPartition(topic, 0)
        with confluent_client.consumer(broker.bootstrap, auto_offset_reset="earliest") as client:

            def start_offset() -> int:
                start, end = client.get_watermark_offsets(partition, 30)
                assert end == 100
                return start

            least = 60 if "retention.bytes" in config else 90
            eventually(lambda: start_offset() >= least, lambda: f"starts at {start_offset()}")
            start = start_offset()
            client.assign([TopicPartition(topic, 0, 0)])
            got = confluent_client.poll(client, 100 - start) if start < 100 else []
        assert [one.offset for one in got] == list(range(start, 100))
        folder = broker.data_folder / f"{topic}-0"
        eventually(
            lambda: len(list(folder.glob("*.log"))) <= 5 and not list(folder.glob("*.deleted")),
            lambda: f"files of deleted segments go: {sorted(p.name for p in folder.iterdir())}",
        )
        next_offset = 100
        assert confluent_client.produce(broker.bootstrap, topic, numbered_rows(1)) == [next_offset]


def test_files_of_a_deleted_topic_go() -> None:
    with running_broker({"log.segment.delete.delay.ms": "0"}) as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(3)
        confluent_client.produce(broker.bootstrap, topic, numbered_rows(10))
        topics.delete(topic)
        eventually(
            lambda: not list(broker.data_folder.glob(f"{topic}*")),
            lambda: f"{sorted(p.name for p in broker.data_folder.iterdir())}",
        )
