from __future__ import annotations

import pytest

from moldau.config.broker_options import BrokerOptions, CurrentBrokerOptions
from moldau.config.describe import describe_broker, find_unknown
from moldau.config.option import MAX_INT, OptionSource
from moldau.config.properties import load_properties
from moldau.config.topic_options import TopicOptions
from moldau.errors import ConfigurationError, InvalidConfigError
from moldau.net.port import ConnectionLimits

ZOOKEEPER_ERA = """
broker.id=0
#listeners=PLAINTEXT://:9092
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kafka
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

QUORUM_ERA = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs=/tmp/kraft-combined-logs
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


def test_a_classic_server_properties_works_without_a_warning() -> None:
    static = load_properties(ZOOKEEPER_ERA, "server.properties")
    options = BrokerOptions.resolve(static)
    assert find_unknown(static) == []
    assert options.broker_id == 0
    assert options.log_dirs == ("/var/lib/kafka",)
    assert options.zookeeper_connect == "localhost:2181"
    assert options.num_recovery_threads_per_data_dir == 1


def test_kafka_4s_server_properties_works_without_its_controller_listener() -> None:
    static = load_properties(QUORUM_ERA, "server.properties")
    options = BrokerOptions.resolve(static)
    assert find_unknown(static) == []
    assert options.broker_id == options.node_id == 1
    assert [str(one) for one in options.open_listeners] == ["PLAINTEXT://:9092"]
    advertised = options.advertise("box", {"PLAINTEXT": 9092})
    assert [str(one) for one in advertised] == ["PLAINTEXT://localhost:9092"]


def test_a_controller_listener_needs_no_entry_in_the_protocol_map() -> None:
    options = BrokerOptions.resolve(
        {"listeners": "PLAINTEXT://:1,QUORUM://:2", "controller.listener.names": "QUORUM"}
    )
    assert [one.name for one in options.open_listeners] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto.create.topics.enable", True),
        ("connections.max.idle.ms", 600_000),
        ("default.replication.factor", 1),
        ("fetch.max.bytes", 57_671_680),
        ("listeners", ("PLAINTEXT://127.0.0.1:9092",)),
        ("log.flush.offset.checkpoint.interval.ms", 60_000),
        ("log.retention.check.interval.ms", 300_000),
        ("max.incremental.fetch.session.cache.slots", 1000),
        ("message.max.bytes", 1_048_588),
        ("num.partitions", 1),
        ("num.recovery.threads.per.data.dir", 2),
        ("producer.id.expiration.ms", 86_400_000),
        ("socket.request.max.bytes", 104_857_600),
        ("transaction.max.timeout.ms", 900_000),
        ("transactional.id.expiration.ms", 604_800_000),
        ("zookeeper.session.timeout.ms", 9_000),
    ],
)
def test_defaults(name: str, value: object) -> None:
    assert BrokerOptions.resolve({}).value_of(name) == value


@pytest.mark.parametrize(
    "name",
    [
        "group.initial.rebalance.delay.ms",
        "listeners",
        "log.dir",
        "offsets.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    ],
)
def test_where_a_default_differs_from_kafkas_the_documentation_says_so(name: str) -> None:
    documentation = BrokerOptions.declarations()[name].documentation
    assert "Kafka's default is" in documentation
    assert "Moldau's is" in documentation


@pytest.mark.parametrize("name", BrokerOptions.declarations())
def test_every_declaration_is_complete(name: str) -> None:
    declared = BrokerOptions.declarations()[name]
    assert declared.attribute == name.replace(".", "_")
    assert declared.documentation.endswith(".")
    if declared.default_text is not None:
        assert declared.parse(declared.default_text) == declared.default
    for fallback in declared.falls_back_to:
        assert fallback.name in BrokerOptions.declarations()


def test_every_topic_option_names_a_broker_option_that_can_change() -> None:
    for declared in TopicOptions.declarations().values():
        if declared.broker_default is not None:
            default = "none" if declared.default is None else declared.default_text or ""
            BrokerOptions.check(declared.broker_default, default)


def test_log_dirs_falls_back_to_log_dir() -> None:
    assert BrokerOptions.resolve({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerOptions.resolve({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


def test_a_listener_on_all_interfaces_advertises_the_hosts_name_and_the_real_port() -> None:
    options = BrokerOptions.resolve({"listeners": "PLAINTEXT://0.0.0.0:0"})
    assert [str(one) for one in options.advertise("box", {"PLAINTEXT": 4711})] == [
        "PLAINTEXT://box:4711"
    ]


def test_a_listener_on_one_address_advertises_that_address() -> None:
    options = BrokerOptions.resolve({"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert [str(one) for one in options.advertise("box", {})] == ["PLAINTEXT://127.0.0.1:9092"]


def test_connection_limits_are_served_and_single_hosts_may_differ() -> None:
    limits: ConnectionLimits = BrokerOptions.resolve(
        {
            "max.connections": "10",
            "max.connections.per.ip": "3",
            "max.connections.per.ip.overrides": "10.0.0.7:100, [::1]:5",
        }
    )
    assert (limits.max_connections, limits.max_connections_per_ip) == (10, 3)
    assert limits.max_connections_for("10.0.0.7") == 100
    assert limits.max_connections_for("::1") == 5
    assert limits.max_connections_for("10.0.0.8") == 3
    assert limits.socket_request_max_bytes == 100 << 20
    assert limits.connections_max_idle_ms == 600_000


TWO_LISTENERS = {
    "listeners": "INNER://127.0.0.1:1,OUTER://127.0.0.1:2",
    "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
    "inter.broker.listener.name": "INNER",
}


def test_a_listener_has_limits_of_its_own_beside_those_of_the_broker() -> None:
    limits: ConnectionLimits = BrokerOptions.resolve(
        {
            **TWO_LISTENERS,
            "max.connections": "10",
            "max.connection.creation.rate": "5",
            "listener.name.outer.max.connections": "7",
            "listener.name.outer.max.connection.creation.rate": "3",
        }
    )
    assert limits.max_connection_creation_rate == 5
    assert limits.max_connections_on("OUTER") == 7
    assert limits.max_connection_creation_rate_on("OUTER") == 3
    assert limits.max_connections_on("INNER") == MAX_INT, "that of the broker is not its own"
    assert limits.max_connection_creation_rate_on("INNER") == MAX_INT


def test_the_listener_of_the_brokers_is_protected_where_clients_have_another() -> None:
    limits: ConnectionLimits = BrokerOptions.resolve(TWO_LISTENERS)
    assert limits.is_protected("INNER")
    assert not limits.is_protected("OUTER")
    alone: ConnectionLimits = BrokerOptions.resolve({})
    assert not alone.is_protected("PLAINTEXT")


def test_a_wrong_limit_of_a_listener_is_refused_at_the_start_and_while_the_broker_runs() -> None:
    name = "listener.name.outer.max.connections"
    with pytest.raises(ConfigurationError, match=r"max\.connections=many"):
        BrokerOptions.resolve({**TWO_LISTENERS, name: "many"})
    with pytest.raises(InvalidConfigError):
        BrokerOptions.check(name, "-1")
    BrokerOptions.check(name, "5", cluster_wide=True)


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:", ":5", "a:-1", "a:b"])
def test_a_wrong_override_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not of the form host:count"):
        BrokerOptions.resolve({"max.connections.per.ip.overrides": text})


def test_the_limits_in_force_follow_the_options_in_force() -> None:
    static = {"connections.max.idle.ms": "4", "socket.request.max.bytes": "3"}
    current = CurrentBrokerOptions(static)
    limits: ConnectionLimits = current
    current.apply({"max.connections": "1"}, {"max.connections.per.ip": "2"})
    assert limits.max_connections == 1
    assert limits.max_connections_per_ip == limits.max_connections_for("10.0.0.7") == 2
    assert limits.socket_request_max_bytes == 3
    assert limits.connections_max_idle_ms == 4


def test_dynamic_settings_that_cannot_be_leave_those_in_force_that_are() -> None:
    current = CurrentBrokerOptions({})
    current.apply({"max.connections": "1"}, {})
    current.apply({"max.connections": "many"}, {})
    assert current.options.max_connections == 1


def test_a_broker_that_begins_with_settings_that_cannot_be_deletes_nothing_by_a_guess() -> None:
    current = CurrentBrokerOptions({"max.connections": "7"})
    current.apply({"max.connections": "many"}, {})
    assert current.options.max_connections == 7
    assert TopicOptions.resolve({}, current.options).cleanup_suspended


def test_a_running_broker_takes_dynamic_options_only() -> None:
    BrokerOptions.check("max.connections", "5")
    BrokerOptions.check("max.connections", "5", cluster_wide=True)
    with pytest.raises(InvalidConfigError, match=r"num.partitions cannot change while"):
        BrokerOptions.check("num.partitions", "5")


def test_an_option_of_one_broker_cannot_be_set_for_all() -> None:
    name = "leader.replication.throttled.rate"
    BrokerOptions.check(name, "1000")
    with pytest.raises(InvalidConfigError, match=f"{name} can only be set for one broker"):
        BrokerOptions.check(name, "1000", cluster_wide=True)


def test_a_wrong_dynamic_value_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"max.connections=-1 is less than 0"):
        BrokerOptions.check("max.connections", "-1")


def test_a_dynamic_name_that_nobody_declares_is_taken_as_kafka_takes_it() -> None:
    BrokerOptions.check("max.conections", "1")
    options = BrokerOptions.resolve({}, {"max.conections": "1"}, {"some.plugin.password": "x"})
    strange = describe_broker(options)[-2:]
    assert [(one.name, one.value, one.source) for one in strange] == [
        ("some.plugin.password", None, OptionSource.DYNAMIC_DEFAULT_BROKER),
        ("max.conections", None, OptionSource.DYNAMIC_BROKER),
    ]
