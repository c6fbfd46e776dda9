"""The nodes' JSON against what Kafka brokers wrote, and against everything else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster import znodes
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID, BrokerState, Endpoint, PartitionState
from moldau.cluster.znodes import ConfigEntity, ProducerIdBlock, TopicAssignment
from moldau.errors import MalformedNodeError
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicId

ONE = BrokerId(1)
broker_ids = st.integers(0, 2**31 - 1).map(BrokerId)
replica_lists = st.lists(broker_ids, min_size=1, max_size=4).map(tuple)
texts = st.text(st.characters(codec="utf-8"), max_size=10)
configs = st.dictionaries(texts, texts, max_size=4)


def fields(data: bytes) -> object:
    return json.loads(data)


# As Kafka writes it


def test_the_cluster_id() -> None:
    data = b'{"version":"1","id":"HApw8pLOT3-qhrqtyo5oFQ"}'
    assert znodes.decode_cluster_id(data) == "HApw8pLOT3-qhrqtyo5oFQ"
    assert znodes.encode_cluster_id("HApw8pLOT3-qhrqtyo5oFQ") == data


def test_the_controller() -> None:
    data = b'{"version":1,"brokerid":3,"timestamp":"1550858501807"}'
    assert znodes.decode_controller(data) == 3
    assert znodes.encode_controller(BrokerId(3), 1550858501807) == data


def test_the_controller_epoch() -> None:
    assert znodes.decode_controller_epoch(b"2") == 2
    assert znodes.encode_controller_epoch(2) == b"2"


def test_a_broker_of_version_4() -> None:
    data = (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://172.16.0.6:9092"],"jmx_port":-1,"host":"172.16.0.6",'
        b'"timestamp":"1550858517088","port":9092,"version":4}'
    )
    endpoint = Endpoint(listener_name="PLAINTEXT", host="172.16.0.6", port=9092)
    assert znodes.decode_broker(ONE, data, epoch=7) == BrokerState(
        id=ONE, endpoints=(endpoint,), epoch=7
    )


def test_a_broker_of_version_1() -> None:
    data = b'{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    endpoint = Endpoint(listener_name="PLAINTEXT", host="localhost", port=9092)
    assert znodes.decode_broker(ONE, data, epoch=7).endpoints == (endpoint,)


def test_a_broker_of_version_2_names_protocols_as_listeners() -> None:
    data = (
        b'{"version":2,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
        b'"endpoints":["PLAINTEXT://host1:9092","SSL://host1:9093"]}'
    )
    broker = znodes.decode_broker(ONE, data, epoch=7)
    assert [e.security_protocol for e in broker.endpoints] == ["PLAINTEXT", "SSL"]


def test_a_broker_is_written_in_version_5() -> None:
    broker = BrokerState(
        id=ONE,
        endpoints=(
            Endpoint(listener_name="INSIDE", host="::1", port=9093, security_protocol="SSL"),
            Endpoint(listener_name="OUTSIDE", host="example.org", port=9092),
        ),
        rack="dc1",
    )
    assert fields(znodes.encode_broker(broker, 1550858517088)) == {
        "version": 5,
        "host": "example.org",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1550858517088",
        "endpoints": ["INSIDE://[::1]:9093", "OUTSIDE://example.org:9092"],
        "listener_security_protocol_map": {"INSIDE": "SSL", "OUTSIDE": "PLAINTEXT"},
        "rack": "dc1",
        "features": {},
    }
    data = znodes.encode_broker(broker, 1550858517088)
    assert znodes.decode_broker(ONE, data, epoch=-1) == broker


def test_a_broker_without_a_plaintext_listener_has_no_host_at_the_top() -> None:
    endpoint = Endpoint(listener_name="SSL", host="host", port=1, security_protocol="SSL")
    written = fields(znodes.encode_broker(BrokerState(id=ONE, endpoints=(endpoint,)), 0))
    assert isinstance(written, dict)
    assert (written["host"], written["port"]) == (None, -1)
    assert "rack" not in written


def test_a_topic_of_version_1() -> None:
    data = b'{"version":1,"partitions":{"2":[2,3],"1":[1,2],"0":[3,1]}}'
    assert znodes.decode_topic("first", data) == TopicAssignment(
        topic_id=NO_TOPIC_ID, replicas=((3, 1), (1, 2), (2, 3))
    )


def test_a_topic_of_version_2() -> None:
    data = (
        b'{"version":2,"partitions":{"0":[1,2,3]},"adding_replicas":{"0":[3]},'
        b'"removing_replicas":{"0":[1]}}'
    )
    assert znodes.decode_topic("first", data) == TopicAssignment(
        topic_id=NO_TOPIC_ID, replicas=((1, 2, 3),), adding={0: (3,)}, removing={0: (1,)}
    )


def test_a_topic_is_written_in_version_3() -> None:
    assignment = TopicAssignment(
        topic_id=TopicId(UUID(int=1)), replicas=((BrokerId(1), BrokerId(2)), (BrokerId(2),))
    )
    assert fields(znodes.encode_topic(assignment)) == {
        "version": 3,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "partitions": {"0": [1, 2], "1": [2]},
        "adding_replicas": {},
        "removing_replicas": {},
    }


def test_a_partition_state() -> None:
    data = b'{"controller_epoch":2,"leader":2,"version":1,"leader_epoch":2,"isr":[2,1]}'
    assignment = TopicAssignment(topic_id=NO_TOPIC_ID, replicas=((BrokerId(1), BrokerId(2)),))
    state = znodes.decode_partition_state("first", 0, data, 3, assignment)
    assert state == PartitionState(
        leader=BrokerId(2),
        leader_epoch=LeaderEpoch(2),
        isr=(BrokerId(2), BrokerId(1)),
        replicas=(BrokerId(1), BrokerId(2)),
        controller_epoch=2,
        version=3,
    )
    assert znodes.encode_partition_state(state) == data


def test_a_partition_state_with_eligible_leaders() -> None:
    """Fields of our own behind those that Kafka's tools read."""
    data = (
        b'{"controller_epoch":2,"leader":-1,"version":1,"leader_epoch":2,"isr":[],'
        b'"eligible_leader_replicas":[1],"last_known_elr":[2],"last_known_leader":2}'
    )
    assignment = TopicAssignment(topic_id=NO_TOPIC_ID, replicas=((BrokerId(1), BrokerId(2)),))
    state = znodes.decode_partition_state("first", 0, data, 3, assignment)
    assert (state.elr, state.last_known_elr, state.last_known_leader) == ((1,), (2,), 2)
    assert znodes.encode_partition_state(state) == data


def test_a_config() -> None:
    data = b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert znodes.decode_config("/config/topics/t", data) == {"retention.ms": "1000"}
    assert znodes.encode_config({"retention.ms": "1000"}) == data
    assert znodes.decode_config("/config/topics/t", b"") == {}
    assert znodes.encode_config({}) == b'{"version":1,"config":{}}'


def test_a_config_change() -> None:
    data = b'{"version":2,"entity_path":"topics/clicks"}'
    assert znodes.decode_config_change("/c", data) == ConfigEntity("topics", "clicks")
    assert znodes.encode_config_change(ConfigEntity("topics", "clicks")) == data
    older = b'{"version":1,"entity_type":"topics","entity_name":"clicks"}'
    assert znodes.decode_config_change("/c", older) == ConfigEntity("topics", "clicks")
    whole_cluster = b'{"version":2,"entity_path":"brokers/<default>"}'
    assert znodes.decode_config_change("/c", whole_cluster) == ConfigEntity("brokers", "<default>")


def test_an_isr_change() -> None:
    data = b'{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":2}]}'
    assert znodes.decode_isr_change("/i", data) == {("a", 0), ("b", 2)}
    assert znodes.encode_isr_change([("a", 0), ("b", 2)]) == data


def test_a_block_of_producer_ids() -> None:
    data = b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    block = ProducerIdBlock(broker_id=ONE, first=0, last=999)
    assert znodes.decode_producer_id_block(data) == block
    assert znodes.encode_producer_id_block(block) == data


def test_paths_are_the_classic_ones() -> None:
    assert znodes.broker_path(ONE) == "/brokers/ids/1"
    assert znodes.topic_path("t") == "/brokers/topics/t"
    assert znodes.partition_state_path("t", 2) == "/brokers/topics/t/partitions/2/state"
    assert znodes.topic_config_path("t") == "/config/topics/t"
    assert znodes.broker_config_path(ONE) == "/config/brokers/1"
    assert znodes.broker_config_path(None) == "/config/brokers/<default>"
    assert znodes.delete_topic_path("t") == "/admin/delete_topics/t"


# There and back


@given(st.uuids(), st.lists(replica_lists, min_size=1, max_size=5), st.data())
def test_any_assignment_survives_being_written(
    topic_id: UUID, replicas: list[tuple[BrokerId, ...]], data: st.DataObject
) -> None:
    numbers = st.integers(0, len(replicas) - 1)
    assignment = TopicAssignment(
        topic_id=TopicId(topic_id),
        replicas=tuple(replicas),
        adding=data.draw(st.dictionaries(numbers, replica_lists)),
        removing=data.draw(st.dictionaries(numbers, replica_lists)),
    )
    assert znodes.decode_topic("t", znodes.encode_topic(assignment)) == assignment


@given(configs)
def test_any_config_survives_being_written(config: dict[str, str]) -> None:
    assert znodes.decode_config("/c", znodes.encode_config(config)) == config


@given(replica_lists, replica_lists, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_any_partition_state_survives_being_written(
    isr: tuple[BrokerId, ...],
    others: tuple[BrokerId, ...],
    leader_epoch: int,
    controller_epoch: int,
) -> None:
    is_led = leader_epoch % 2 == 0
    state = PartitionState(
        leader=isr[0] if is_led else NO_BROKER,
        elr=others,
        last_known_elr=others[1:],
        last_known_leader=NO_BROKER if is_led else others[0],
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=isr,
        replicas=isr,
        controller_epoch=controller_epoch,
        version=4,
    )
    assignment = TopicAssignment(topic_id=NO_TOPIC_ID, replicas=(isr,))
    data = znodes.encode_partition_state(state)
    assert znodes.decode_partition_state("t", 0, data, 4, assignment) == state


# Nonsense

ASSIGNMENT = TopicAssignment(topic_id=NO_TOPIC_ID, replicas=((ONE,),))
DECODERS: dict[str, Callable[[bytes], object]] = {
    "/cluster/id": znodes.decode_cluster_id,
    "/controller": znodes.decode_controller,
    "/controller_epoch": znodes.decode_controller_epoch,
    "/brokers/ids/1": lambda data: znodes.decode_broker(ONE, data, epoch=1),
    "/brokers/topics/t": lambda data: znodes.decode_topic("t", data),
    "/brokers/topics/t/partitions/0/state": lambda data: znodes.decode_partition_state(
        "t", 0, data, 0, ASSIGNMENT
    ),
    "/config/topics/t": lambda data: znodes.decode_config("/config/topics/t", data),
    "/config/changes/c": lambda data: znodes.decode_config_change("/config/changes/c", data),
    "/isr_change_notification/i": lambda data: znodes.decode_isr_change(
        "/isr_change_notification/i", data
    ),
    "/latest_producer_id_block": znodes.decode_producer_id_block,
}
NONSENSE = [b"{", b"[1]", b"nil", b"\xff\xfe", b'"text"', b"[" * 100_000]


@pytest.mark.parametrize("path", DECODERS)
@pytest.mark.parametrize("data", NONSENSE, ids=lambda data: repr(data[:9]))
def test_nonsense_is_an_error_that_names_the_path(path: str, data: bytes) -> None:
    with pytest.raises(MalformedNodeError, match=path):
        DECODERS[path](data)


@pytest.mark.parametrize(
    ("path", "data", "field"),
    [
        ("/cluster/id", b'{"id":1}', "id"),
        ("/controller", b'{"brokerid":true}', "brokerid"),
        ("/controller", b'{"brokerid":"1"}', "brokerid"),
        ("/controller", b'{"brokerid":2147483648}', "brokerid"),
        ("/brokers/ids/1", b'{"version":5}', "endpoints"),
        ("/brokers/ids/1", b'{"version":5,"endpoints":["host:9092"]}', "endpoints"),
        ("/brokers/ids/1", b'{"version":5,"endpoints":[1]}', "endpoints"),
        ("/brokers/topics/t", b'{"version":3}', "partitions"),
        ("/brokers/topics/t", b'{"partitions":{"1":[1]}}', "partitions"),
        ("/brokers/topics/t", b'{"partitions":{"0":[]}}', "partitions"),
        ("/brokers/topics/t", b'{"partitions":{"zero":[1]}}', "partitions"),
        ("/brokers/topics/t", b'{"partitions":{"0":["1"]}}', "partitions"),
        ("/brokers/topics/t", b'{"partitions":{"0":[1]},"topic_id":"short"}', "topic_id"),
        ("/brokers/topics/t/partitions/0/state", b'{"leader":1,"leader_epoch":0}', "isr"),
        ("/config/topics/t", b'{"config":{"a":1}}', "config"),
        ("/config/changes/c", b'{"version":2,"entity_path":"topics"}', "entity_path"),
        ("/isr_change_notification/i", b'{"partitions":[{"topic":1}]}', "partitions"),
        ("/latest_producer_id_block", b'{"broker":1,"block_start":"x"}', "block_start"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(path: str, data: bytes, field: str) -> None:
    with pytest.raises(MalformedNodeError, match=f"{path}: '{field}'"):
        DECODERS[path](data)


@given(
    st.sampled_from(sorted(DECODERS)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    ),
)
def test_no_json_breaks_a_decoder_in_another_way(path: str, value: object) -> None:
    with contextlib.suppress(MalformedNodeError):
        DECODERS[path](json.dumps(value).encode())
