"""Administration: what is asked, of whom, in every version, and how answers are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from uuid import UUID

import pytest

from client.scripted_broker import LIST_OFFSETS, METADATA, SILENCE, Request, Script, Stage, metadata
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    CreatedTopic,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    OffsetSpec,
    ResourceType,
    SpokenVersions,
)
from moldau.client.cluster import ClientSettings
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import (
    ClusterAuthorizationError,
    ConfigurationError,
    ErrorCode,
    InvalidConfigError,
    KafkaError,
    NoAnswerError,
    OffsetOutOfRangeError,
    ThrottlingQuotaExceededError,
    TopicExistsError,
    UnknownTopicError,
)
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import VersionRange

T = TypeVar("T")

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ALTER_CONFIGS = 32, 35, 37, 44
DESCRIBE_CLUSTER = 60
LIST_CONFIG_RESOURCES = 74

NOT_CONTROLLER, NOT_LEADER, QUOTA_EXCEEDED = 41, 6, 89
CLICKS = ConfigResource.topic("clicks")


def administer(stage: Stage, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    async def story() -> T:
        async with AsyncAdmin(
            "b1:9092", network=stage.network.host("client"), clock=stage.clock
        ) as admin:
            return await work(admin)

    return stage.play(story)


def one_version(stage: Stage, api_key: int, version: int) -> None:
    stage.brokers[0].versions[api_key] = (version, version)


def scripted(api_key: int, script: Script, brokers: int = 1) -> Stage:
    stage = Stage(broker_count=brokers)
    for broker in stage.brokers:
        broker.scripts[METADATA] = metadata({"clicks": [1, 1]}, brokers=brokers)
        broker.scripts[api_key] = script
    return stage


def created(name: str = "clicks", code: int = 0, message: str | None = None) -> Script:
    row = {
        "name": name,
        "topic_id": UUID(int=1),
        "error_code": code,
        "error_message": message,
        "topic_config_error_code": 0,
        "num_partitions": 3,
        "replication_factor": 1,
        "configs": (),
    }
    return lambda request: {"throttle_time": 0, "topics": [row]}


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version(version: int) -> None:
    stage = scripted(CREATE_TOPICS, created())
    one_version(stage, CREATE_TOPICS, version)
    topic = NewTopic(name="clicks", partitions=3, configs={"retention.ms": "5"})
    answer = administer(stage, lambda admin: admin.create_topics([topic], validate_only=True))
    made = answer["clicks"]
    assert isinstance(made, CreatedTopic)
    assert made.topic_id == (UUID(int=1) if version >= 7 else None)
    assert made.partitions == (3 if version >= 5 else -1)
    (request,) = stage.brokers[0].asked(CREATE_TOPICS)
    (asked,) = request.topics
    assert (asked.name, asked.num_partitions, asked.replication_factor) == ("clicks", 3, -1)
    assert [(one.name, one.value) for one in asked.configs] == [("retention.ms", "5")]
    assert request.validate_only


def refusing(rows_name: str, times: int, throttle_ms: int, **more: object) -> Script:
    """Takes the first topic that it is asked for, and the others after so many refusals."""
    asked: list[object] = []

    def answer(request: Request) -> Mapping[str, object]:
        asked.append(request)
        rows = []
        for number, topic in enumerate(request.topics):
            is_refused = (number or len(asked) > 1) and len(asked) <= times
            code = QUOTA_EXCEEDED if is_refused else 0
            rows.append({"name": topic.name, "error_code": code, "error_message": None, **more})
        return {"throttle_time": throttle_ms, rows_name: rows}

    return answer


MADE = {
    "topic_id": UUID(int=1),
    "topic_config_error_code": 0,
    "num_partitions": 3,
    "replication_factor": 1,
    "configs": (),
}


def test_what_a_quota_refused_is_asked_for_again_after_the_time_that_is_named() -> None:
    """KIP-599, as Java's client does it."""
    names = ["a", "b", "c"]
    stage = scripted(CREATE_TOPICS, refusing("topics", 2, 3_000, **MADE))
    began = stage.clock.monotonic()
    topics = [NewTopic(name=name) for name in names]
    made = administer(stage, lambda admin: admin.create_topics(topics))
    assert all(isinstance(made[name], CreatedTopic) for name in names)
    asked = [[topic.name for topic in one.topics] for one in stage.brokers[0].asked(CREATE_TOPICS)]
    assert asked == [["a", "b", "c"], ["b", "c"], ["b", "c"]]
    assert stage.clock.monotonic() - began >= 6
    stage = scripted(CREATE_PARTITIONS, refusing("results", 1, 1_000))
    grown = administer(stage, lambda admin: admin.create_partitions({"a": 2, "b": 3}))
    assert grown == {"a": None, "b": None}
    assert [
        [(one.name, one.count) for one in each.topics]
        for each in (stage.brokers[0].asked(CREATE_PARTITIONS))
    ] == [[("a", 2), ("b", 3)], [("b", 3)]]
    stage = scripted(DELETE_TOPICS, refusing("responses", 1, 1_000, topic_id=None))
    gone = administer(stage, lambda admin: admin.delete_topics(["a", "b"]))
    assert gone == {"a": None, "b": None}
    assert len(stage.brokers[0].asked(DELETE_TOPICS)) == 2


def test_a_wait_that_is_longer_than_the_operation_may_take_is_not_begun() -> None:
    stage = scripted(CREATE_TOPICS, refusing("topics", 9, 3_600_000, **MADE))
    began = stage.clock.monotonic()
    topics = [NewTopic(name="a"), NewTopic(name="b")]
    made = administer(stage, lambda admin: admin.create_topics(topics))
    assert isinstance(made["a"], CreatedTopic)
    assert isinstance(made["b"], ThrottlingQuotaExceededError)
    assert stage.clock.monotonic() - began < 60


def test_an_assignment_takes_the_place_of_the_numbers() -> None:
    stage = scripted(CREATE_TOPICS, created())
    topic = NewTopic(name="clicks", partitions=9, assignments={1: [2, 3], 0: [1, 2]})
    administer(stage, lambda admin: admin.create_topics([topic]))
    (asked,) = stage.brokers[0].asked(CREATE_TOPICS)[0].topics
    assert (asked.num_partitions, asked.replication_factor) == (-1, -1)
    rows = [(row.partition_index, row.broker_ids) for row in asked.assignments]
    assert rows == [(0, (1, 2)), (1, (2, 3))]


def test_a_topic_that_cannot_be_made_is_an_error_as_a_value() -> None:
    stage = scripted(CREATE_TOPICS, created(code=36, message="it is there"))
    answer = administer(stage, lambda admin: admin.create_topics([NewTopic(name="clicks")]))
    error = answer["clicks"]
    assert isinstance(error, TopicExistsError)
    assert str(error) == "topic 'clicks': it is there"


def test_a_controller_that_moved_is_found() -> None:
    stage = scripted(CREATE_TOPICS, created(), brokers=2)

    def moved(request: Request) -> Mapping[str, object]:
        for broker in stage.brokers:
            broker.scripts[METADATA] = metadata({}, brokers=2, controller=2)
        answer = created(code=NOT_CONTROLLER)(request)
        assert isinstance(answer, Mapping)
        return answer

    stage.brokers[0].scripts[CREATE_TOPICS] = moved
    answer = administer(stage, lambda admin: admin.create_topics([NewTopic(name="clicks")]))
    assert isinstance(answer["clicks"], CreatedTopic)
    assert len(stage.brokers[1].asked(CREATE_TOPICS)) == 1


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_in_every_version(version: int) -> None:
    rows = [
        {"name": "clicks", "topic_id": None, "error_code": 0, "error_message": None},
        {"name": "nope", "topic_id": None, "error_code": 3, "error_message": None},
    ]
    stage = scripted(DELETE_TOPICS, lambda request: {"throttle_time": 0, "responses": rows})
    one_version(stage, DELETE_TOPICS, version)
    answer = administer(stage, lambda admin: admin.delete_topics(["clicks", "nope"]))
    assert answer["clicks"] is None
    assert isinstance(answer["nope"], UnknownTopicError)
    (request,) = stage.brokers[0].asked(DELETE_TOPICS)
    asked = [row.name for row in request.topics] if version >= 6 else list(request.topic_names)
    assert asked == ["clicks", "nope"]


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version(version: int) -> None:
    rows = [{"name": "clicks", "error_code": 0, "error_message": None}]
    stage = scripted(CREATE_PARTITIONS, lambda request: {"throttle_time": 0, "results": rows})
    one_version(stage, CREATE_PARTITIONS, version)
    assert administer(stage, lambda admin: admin.create_partitions({"clicks": 7})) == {
        "clicks": None
    }
    (asked,) = stage.brokers[0].asked(CREATE_PARTITIONS)[0].topics
    assert (asked.name, asked.count, asked.assignments) == ("clicks", 7, None)


def test_topics_are_described_one_by_one() -> None:
    stage = scripted(METADATA, metadata({"clicks": [1, 1]}))
    answer = administer(stage, lambda admin: admin.describe_topics(["clicks", "nope"]))
    topic = answer["clicks"]
    assert isinstance(topic, TopicMetadata)
    assert len(topic.partitions) == 2
    assert isinstance(answer["nope"], UnknownTopicError)


def described(resource: ConfigResource, code: int = 0) -> Script:
    entry = {
        "name": "retention.ms",
        "value": "5",
        "read_only": False,
        "config_source": 1,
        "is_sensitive": False,
        "synonyms": [{"name": "log.retention.ms", "value": "9", "source": 99}],
        "config_type": 5,
        "documentation": "How long.",
    }
    result = {
        "error_code": code,
        "error_message": None,
        "resource_type": resource.type.value,
        "resource_name": resource.name,
        "configs": [entry],
    }
    return lambda request: {"throttle_time": 0, "results": [result]}


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described_in_every_version(version: int) -> None:
    stage = scripted(DESCRIBE_CONFIGS, described(CLICKS))
    one_version(stage, DESCRIBE_CONFIGS, version)
    answer = administer(
        stage, lambda admin: admin.describe_configs([CLICKS], with_documentation=True)
    )
    entries = answer[CLICKS]
    assert isinstance(entries, tuple)
    (entry,) = entries
    assert (entry.name, entry.value, entry.source) == (
        "retention.ms",
        "5",
        ConfigSource.DYNAMIC_TOPIC,
    )
    assert entry.documentation == ("How long." if version >= 3 else None)
    assert entry.synonyms[0].source is ConfigSource.UNKNOWN


def test_a_brokers_own_settings_are_asked_of_that_broker() -> None:
    broker_two = ConfigResource.broker(2)
    stage = scripted(DESCRIBE_CONFIGS, described(broker_two), brokers=2)
    administer(stage, lambda admin: admin.describe_configs([broker_two]))
    assert not stage.brokers[0].asked(DESCRIBE_CONFIGS)
    assert len(stage.brokers[1].asked(DESCRIBE_CONFIGS)) == 1


def test_the_default_of_all_brokers_may_be_asked_of_any() -> None:
    default = ConfigResource(ResourceType.BROKER, "")
    stage = scripted(DESCRIBE_CONFIGS, described(default), brokers=2)
    answer = administer(stage, lambda admin: admin.describe_configs([default]))
    assert default in answer


def test_a_broker_that_is_no_number_is_refused_before_asking() -> None:
    stage = scripted(DESCRIBE_CONFIGS, described(CLICKS))
    wrong = ConfigResource(ResourceType.BROKER, "one")
    with pytest.raises(ConfigurationError, match="'one'"):
        administer(stage, lambda admin: admin.describe_configs([wrong]))


@pytest.mark.parametrize("version", range(2))
def test_settings_are_changed_in_every_version(version: int) -> None:
    result = {
        "error_code": 40,
        "error_message": "no such number",
        "resource_type": 2,
        "resource_name": "clicks",
    }
    stage = scripted(ALTER_CONFIGS, lambda request: {"throttle_time": 0, "responses": [result]})
    one_version(stage, ALTER_CONFIGS, version)
    changes = [
        ConfigChange(name="retention.ms", value="x"),
        ConfigChange(name="cleanup.policy", operation=ConfigOperation.DELETE),
    ]
    answer = administer(stage, lambda admin: admin.alter_configs({CLICKS: changes}))
    assert isinstance(answer[CLICKS], InvalidConfigError)
    (resource,) = stage.brokers[0].asked(ALTER_CONFIGS)[0].resources
    rows = [(row.name, row.config_operation, row.value) for row in resource.configs]
    assert rows == [("retention.ms", 0, "x"), ("cleanup.policy", 1, None)]


def resources_listed(code: int = 0) -> Stage:
    rows = [{"resource_name": "readers", "resource_type": kind} for kind in (32, 77)]
    answer = {"throttle_time": 0, "error_code": code, "config_resources": rows}
    stage = scripted(LIST_CONFIG_RESOURCES, lambda request: answer)
    one_version(stage, LIST_CONFIG_RESOURCES, 1)
    return stage


def test_what_has_settings_is_listed_by_type() -> None:
    stage = resources_listed()
    wanted = [ResourceType.GROUP]
    answer = administer(stage, lambda admin: admin.list_config_resources(wanted))
    assert answer == (
        ConfigResource.group("readers"),
        ConfigResource(ResourceType.UNKNOWN, "readers"),  # a newer broker's
    )
    assert stage.brokers[0].asked(LIST_CONFIG_RESOURCES)[0].resource_types == (32,)


def test_a_list_of_what_has_settings_that_is_refused_is_an_error() -> None:
    with pytest.raises(KafkaError):
        administer(resources_listed(35), lambda admin: admin.list_config_resources())


def listed(codes: Mapping[int, int] | None = None) -> Script:
    def answer(request: Request) -> Mapping[str, object]:
        return {
            "throttle_time": 0,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": row.partition_index,
                            "error_code": (codes or {}).get(row.partition_index, 0),
                            "timestamp": 1000,
                            "offset": 40 + row.partition_index,
                            "leader_epoch": 4,
                        }
                        for row in topic.partitions
                    ],
                }
                for topic in request.topics
            ],
        }

    return answer


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_listed_in_every_version(version: int) -> None:
    stage = scripted(LIST_OFFSETS, listed())
    one_version(stage, LIST_OFFSETS, version)
    wanted = {TopicPartition("clicks", 0): OffsetSpec.LATEST, TopicPartition("clicks", 1): 12345}
    answer = administer(stage, lambda admin: admin.list_offsets(wanted))
    epoch = 4 if version >= 4 else -1
    assert answer == {
        TopicPartition("clicks", 0): ListedOffset(offset=40, timestamp_ms=1000, leader_epoch=epoch),
        TopicPartition("clicks", 1): ListedOffset(offset=41, timestamp_ms=1000, leader_epoch=epoch),
    }
    (topic,) = stage.brokers[0].asked(LIST_OFFSETS)[0].topics
    assert [row.timestamp for row in topic.partitions] == [-1, 12345]


def test_each_leader_is_asked_about_its_own_partitions() -> None:
    stage = scripted(LIST_OFFSETS, listed(), brokers=2)
    for broker in stage.brokers:
        broker.scripts[METADATA] = metadata({"clicks": [1, 2]}, brokers=2)
    wanted = {TopicPartition("clicks", 0): -1, TopicPartition("clicks", 1): -1}
    assert len(administer(stage, lambda admin: admin.list_offsets(wanted))) == 2
    for index, broker in enumerate(stage.brokers):
        (request,) = broker.asked(LIST_OFFSETS)
        assert [row.partition_index for row in request.topics[0].partitions] == [index]


def test_only_partitions_whose_leader_moved_are_asked_again() -> None:
    stage = scripted(LIST_OFFSETS, listed({1: NOT_LEADER}))

    def first(request: Request) -> Mapping[str, object]:
        stage.brokers[0].scripts[LIST_OFFSETS] = listed()
        answer = listed({1: NOT_LEADER})(request)
        assert isinstance(answer, Mapping)
        return answer

    stage.brokers[0].scripts[LIST_OFFSETS] = first
    wanted = {TopicPartition("clicks", 0): -1, TopicPartition("clicks", 1): -1}
    answer = administer(stage, lambda admin: admin.list_offsets(wanted))
    assert all(isinstance(one, ListedOffset) for one in answer.values())
    again = stage.brokers[0].asked(LIST_OFFSETS)[1]
    assert [row.partition_index for row in again.topics[0].partitions] == [1]


def test_offsets_of_a_partition_that_is_not_there_are_an_error() -> None:
    stage = scripted(LIST_OFFSETS, listed())
    with pytest.raises(UnknownTopicError, match="no partition 9"):
        administer(stage, lambda admin: admin.list_offsets({TopicPartition("clicks", 9): -1}))


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_in_every_version(version: int) -> None:
    rows = [
        {"partition_index": 0, "low_watermark": 17, "error_code": 0},
        {"partition_index": 1, "low_watermark": -1, "error_code": 1},
    ]
    topics = [{"name": "clicks", "partitions": rows}]
    stage = scripted(DELETE_RECORDS, lambda request: {"throttle_time": 0, "topics": topics})
    one_version(stage, DELETE_RECORDS, version)
    before = {TopicPartition("clicks", 0): 17, TopicPartition("clicks", 1): 999}
    answer = administer(stage, lambda admin: admin.delete_records(before))
    assert answer[TopicPartition("clicks", 0)] == 17
    assert isinstance(answer[TopicPartition("clicks", 1)], OffsetOutOfRangeError)


def test_deleting_up_to_offset_zero_is_no_error() -> None:
    topics = [
        {
            "name": "clicks",
            "partitions": [{"partition_index": 0, "low_watermark": 0, "error_code": 0}],
        }
    ]
    stage = scripted(DELETE_RECORDS, lambda request: {"throttle_time": 0, "topics": topics})
    partition = TopicPartition("clicks", 0)
    assert administer(stage, lambda admin: admin.delete_records({partition: 0})) == {partition: 0}


@pytest.mark.parametrize("version", range(1, 5))
def test_log_directories_are_described_in_every_version(version: int) -> None:
    replica = {
        "partition_index": 1,
        "partition_size": 123,
        "offset_lag": 0,
        "is_future_key": False,
    }
    result = {
        "error_code": 0,
        "log_dir": "/data",
        "topics": [{"name": "clicks", "partitions": [replica]}],
        "total_bytes": 1000,
        "usable_bytes": 500,
    }
    stage = scripted(
        DESCRIBE_LOG_DIRS,
        lambda request: {"throttle_time": 0, "error_code": 0, "results": [result]},
    )
    one_version(stage, DESCRIBE_LOG_DIRS, version)
    ((found,),) = administer(stage, lambda admin: admin.describe_log_dirs()).values()
    assert isinstance(found, LogDirDescription)
    assert found.path == "/data"
    assert found.total_bytes == (1000 if version >= 4 else -1)
    assert found.replicas[0].partition == TopicPartition("clicks", 1)
    assert found.replicas[0].size_bytes == 123


def test_who_may_not_see_log_directories_is_told_so_and_not_that_there_are_none() -> None:
    denied = ErrorCode.cluster_authorization_failed
    stage = scripted(
        DESCRIBE_LOG_DIRS,
        lambda request: {"throttle_time": 0, "error_code": denied, "results": []},
    )
    with pytest.raises(ClusterAuthorizationError, match="--operation describe --cluster"):
        administer(stage, lambda admin: admin.describe_log_dirs())


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("bits", "wanted"),
    [
        (1 << 7 | 1 << 8, {AclOperation.ALTER, AclOperation.DESCRIBE}),
        (0, set()),
        (-(1 << 31), set()),  # it was not asked for, says the broker
    ],
)
def test_what_may_be_done_to_the_cluster_is_told_in_bits(
    bits: int, wanted: set[AclOperation], version: int
) -> None:
    stage = scripted(
        DESCRIBE_CLUSTER,
        lambda request: {
            "throttle_time": 0,
            "error_code": 0,
            "error_message": None,
            "endpoint_type": 1,
            "cluster_id": "c",
            "controller_id": 1,
            "brokers": [],
            "cluster_authorized_operations": bits,
        },
    )
    one_version(stage, DESCRIBE_CLUSTER, version)
    assert administer(stage, lambda admin: admin.find_cluster_operations()) == wanted


def test_the_cluster_is_described_from_its_metadata() -> None:
    stage = scripted(METADATA, metadata({}, brokers=3, controller=2))
    cluster = administer(stage, lambda admin: admin.describe_cluster())
    assert cluster.cluster_id == "test-cluster"
    assert cluster.controller_id == 2
    assert [broker.id for broker in cluster.brokers] == [1, 2, 3]


@pytest.mark.parametrize("option", ["default_api_timeout_ms", "request_timeout_ms"])
def test_a_broker_that_says_nothing_is_waited_for_as_long_as_the_options_say(option: str) -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        network = stage.network.host("client")
        async with AsyncAdmin(
            "b1:9092", network=network, clock=stage.clock, **{option: 3000}
        ) as admin:
            with pytest.raises(NoAnswerError, match="within 3 seconds"):
                await admin.list_topics()
        assert stage.clock.monotonic() == 3.0

    stage.play(story)


def test_options_that_an_administrator_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="linger_ms is not an option of an administrator"):
        AsyncAdmin("b1:9092", linger_ms=5)
    with pytest.raises(ConfigurationError, match="not both"):
        AsyncAdmin("b1:9092", ClientSettings(), request_timeout_ms=5)


@pytest.mark.parametrize(
    ("fetch", "release"),
    [((0, 11), None), ((0, 12), "2.7"), ((0, 17), "3.9"), ((4, 17), "4.0"), ((4, 20), "4.1")],
)
def test_the_release_is_guessed_by_what_fetch_serves(
    fetch: tuple[int, int], release: str | None
) -> None:
    found = SpokenVersions(apis={"Fetch": VersionRange(*fetch)}, features={})
    assert found.release == release


@pytest.mark.parametrize(
    "operation",
    [
        "delete_topics",
        "describe_topics",
        "describe_eligible_leaders",
        "describe_groups",
        "delete_groups",
        "describe_transactions",
    ],
)
def test_a_text_is_not_taken_for_a_list_of_names(operation: str) -> None:
    stage = Stage()
    with pytest.raises(TypeError, match=r"give a list of names, .* not 'logs' \(str\)"):
        administer(stage, lambda admin: getattr(admin, operation)("logs"))


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (NewTopic(name="n", partitions="3"), r"num_partitions is '3', not a whole number"),  # type: ignore[arg-type]
        (NewTopic(name="n", partitions=1 << 40), "num_partitions is 1099511627776, which is not "),
        (NewTopic(name="n", configs={"a": 5}), r"configs\[0\].value is 5, not text"),  # type: ignore[dict-item]
    ],
)
def test_a_value_that_no_request_can_carry_is_named(topic: NewTopic, message: str) -> None:
    stage = scripted(CREATE_TOPICS, created())
    with pytest.raises(TypeError, match=rf"CreateTopics: topics\[0\]\.{message}"):
        administer(stage, lambda admin: admin.create_topics([topic]))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda admin: admin.create_topics(["n"]), r"NewTopic\(name='clicks'\)\]; 'n' is str"),
        (lambda admin: admin.create_topics(5), r"NewTopic\(name='clicks'\)\], not 5 \(int\)"),
        (lambda admin: admin.delete_topics([5]), r"names, like \['clicks'\]; 5 is int"),
        (lambda admin: admin.create_partitions(["n"]), r"totals: give a mapping, like "),
        (lambda admin: admin.describe_configs(["n"]), r"ConfigResource\.topic\('clicks'\)\]; 'n'"),
        (lambda admin: admin.list_offsets({"n": 1}), r"partition: give moldau\.TopicPartition"),
        (lambda admin: admin.delete_records("n"), r"give a mapping, like {moldau\.TopicPartition"),
    ],
)
def test_arguments_of_another_type_are_told_with_what_to_give(
    ask: Callable[[AsyncAdmin], Awaitable[object]], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        administer(Stage(), ask)
