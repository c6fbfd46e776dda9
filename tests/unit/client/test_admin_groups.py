"""Administration of groups: whom it asks, in every version, and how it follows coordinators."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

import pytest

from client.scripted_broker import METADATA, PORT, Request, Script, Stage, metadata
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import GroupDescription, GroupOffset, GroupState
from moldau.client.blocking import Admin
from moldau.client.rules.cluster_metadata import Address, Broker
from moldau.errors import (
    CoordinatorNotAvailableError,
    GroupNotEmptyError,
    GroupNotFoundError,
    GroupSubscribedToTopicError,
    UnknownTopicError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition
from moldau.wire.consumer_protocol import Assignment, encode_assignment

T = TypeVar("T")

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
VERSIONS = {
    OFFSET_COMMIT: (2, 10),
    OFFSET_FETCH: (1, 10),
    FIND_COORDINATOR: (0, 6),
    DESCRIBE_GROUPS: (0, 6),
    LIST_GROUPS: (0, 5),
    DELETE_GROUPS: (0, 2),
    OFFSET_DELETE: (0, 0),
}

LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
UNKNOWN_MEMBER_ID, NON_EMPTY, NOT_FOUND, SUBSCRIBED = 25, 68, 69, 86

FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def coordinated_by(choose: Callable[[str], int]) -> Script:
    """A script of FindCoordinator: a broker's number for each group, or an error's, negative."""

    def row(key: str) -> dict[str, object]:
        number = choose(key)
        found = {"node_id": number, "host": f"b{number}", "port": PORT, "error_code": 0}
        refused = {"node_id": -1, "host": "", "port": -1, "error_code": -number}
        return {"key": key, "error_message": None, **(found if number > 0 else refused)}

    def answer(request: Request) -> Mapping[str, object]:
        if hasattr(request, "coordinator_keys"):
            rows = [row(key) for key in request.coordinator_keys]
            return {"throttle_time": 0, "coordinators": rows}
        return {"throttle_time": 0, **row(request.key)}

    return answer


def stage_of(api_key: int, script: Script, brokers: int = 1) -> Stage:
    stage = Stage(broker_count=brokers)
    for broker in stage.brokers:
        broker.versions.update(VERSIONS)
        broker.scripts[METADATA] = metadata({"clicks": [1, 1]}, brokers=brokers)
        broker.scripts[FIND_COORDINATOR] = coordinated_by(lambda key: brokers)  # the last one
        broker.scripts[api_key] = script
    return stage


def one_version(stage: Stage, api_key: int, version: int) -> None:
    for broker in stage.brokers:
        broker.versions[api_key] = (version, version)


def administer(stage: Stage, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    async def story() -> T:
        network = stage.network.host("client")
        async with AsyncAdmin("b1:9092", network=network, clock=stage.clock) as admin:
            return await work(admin)

    return stage.play(story)


def in_turn(*scripts: Script) -> Script:
    """The first script for the first request, and so on; the last one for all that follow."""
    left: Iterator[Script] = iter(scripts)
    last = scripts[-1]
    return lambda request: next(left, last)(request)


# Coordinators


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_in_every_version(version: int) -> None:
    stage = stage_of(FIND_COORDINATOR, coordinated_by(lambda key: 2), brokers=2)
    one_version(stage, FIND_COORDINATOR, version)
    found = administer(stage, lambda admin: admin.find_coordinator("readers"))
    assert found == Broker(id=2, address=Address("b2", PORT))
    (request,) = stage.brokers[0].asked(FIND_COORDINATOR)
    asked = request.coordinator_keys if version >= 4 else (request.key,)
    assert asked == ("readers",)
    assert getattr(request, "key_type", 0) == 0


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    script = in_turn(coordinated_by(lambda key: -NOT_AVAILABLE), coordinated_by(lambda key: 1))
    stage = stage_of(FIND_COORDINATOR, script)
    assert administer(stage, lambda admin: admin.find_coordinator("readers")).id == 1
    assert len(stage.brokers[0].asked(FIND_COORDINATOR)) == 2


def test_patience_with_a_missing_coordinator_ends() -> None:
    stage = stage_of(FIND_COORDINATOR, coordinated_by(lambda key: -NOT_AVAILABLE))
    with pytest.raises(CoordinatorNotAvailableError, match="'readers'"):
        administer(stage, lambda admin: admin.find_coordinator("readers"))


# Listing


def listed(*names: str, code: int = 0) -> Script:
    rows = [
        {
            "group_id": name,
            "protocol_type": "consumer",
            "group_state": "Stable",
            "group_type": "classic",
        }
        for name in names
    ]
    return lambda request: {"throttle_time": 0, "error_code": code, "groups": rows}


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(version: int) -> None:
    stage = stage_of(LIST_GROUPS, listed("readers"))
    one_version(stage, LIST_GROUPS, version)
    (found,) = administer(stage, lambda admin: admin.list_groups()).values()
    assert (found.group_id, found.protocol_type) == ("readers", "consumer")
    assert found.state is (GroupState.STABLE if version >= 4 else GroupState.UNKNOWN)
    assert found.type == ("classic" if version >= 5 else None)


def test_every_broker_is_asked_for_its_groups() -> None:
    stage = stage_of(LIST_GROUPS, listed("here"), brokers=2)
    stage.brokers[1].scripts[LIST_GROUPS] = in_turn(listed(code=LOADING), listed("there"))
    assert administer(stage, lambda admin: admin.list_groups()).keys() == {"here", "there"}


def test_filters_are_the_brokers_matter() -> None:
    stage = stage_of(LIST_GROUPS, listed())
    administer(stage, lambda admin: admin.list_groups(states=["Empty"], types=["classic"]))
    (request,) = stage.brokers[0].asked(LIST_GROUPS)
    assert (request.states_filter, request.types_filter) == (("Empty",), ("classic",))


@pytest.mark.parametrize(
    ("version", "filters"), [(3, {"states": ["Empty"]}), (4, {"types": ["x"]})]
)
def test_a_broker_too_old_for_a_filter_is_an_error(
    version: int, filters: dict[str, list[str]]
) -> None:
    stage = stage_of(LIST_GROUPS, listed())
    one_version(stage, LIST_GROUPS, version)
    with pytest.raises(UnsupportedByBrokerError, match="ListGroups"):
        administer(stage, lambda admin: admin.list_groups(**filters))


# Describing


def described(
    state: str = "Stable", code: int = 0, protocol_type: str = "consumer", assignment: bytes = b""
) -> Script:
    def answer(request: Request) -> Mapping[str, object]:
        member = {
            "member_id": "one-123",
            "group_instance_id": "one",
            "client_id": "one",
            "client_host": "/10.0.0.1",
            "member_metadata": b"",
            "member_assignment": assignment,
        }
        rows = [
            {
                "error_code": code,
                "error_message": None,
                "group_id": name,
                "group_state": state,
                "protocol_type": protocol_type,
                "protocol_data": "range",
                "members": [] if code or state == "Dead" else [member],
            }
            for name in request.groups
        ]
        return {"throttle_time": 0, "groups": rows}

    return answer


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(version: int) -> None:
    assignment = encode_assignment(Assignment((FIRST, SECOND)))
    stage = stage_of(DESCRIBE_GROUPS, described(assignment=assignment))
    one_version(stage, DESCRIBE_GROUPS, version)
    group = administer(stage, lambda admin: admin.describe_groups(["readers"]))["readers"]
    assert isinstance(group, GroupDescription)
    assert (group.state, group.protocol) == (GroupState.STABLE, "range")
    assert group.coordinator.id == 1
    (member,) = group.members
    assert (member.member_id, member.client_id, member.host) == ("one-123", "one", "10.0.0.1")
    assert member.instance_id == ("one" if version >= 4 else None)
    assert member.assignment == (FIRST, SECOND)


@pytest.mark.parametrize(
    ("protocol_type", "assignment"),
    [("connect", encode_assignment(Assignment((FIRST,)))), ("consumer", b"\x00\x01\xff")],
)
def test_what_is_no_assignment_of_consumers_is_left_alone(
    protocol_type: str, assignment: bytes
) -> None:
    script = described(protocol_type=protocol_type, assignment=assignment)
    stage = stage_of(DESCRIBE_GROUPS, script)
    group = administer(stage, lambda admin: admin.describe_groups(["readers"]))["readers"]
    assert isinstance(group, GroupDescription)
    assert group.members[0].assignment == ()


@pytest.mark.parametrize("script", [described("Dead"), described("Dead", code=NOT_FOUND)])
def test_a_group_that_is_not_there_is_an_error_however_the_broker_says_it(script: Script) -> None:
    stage = stage_of(DESCRIBE_GROUPS, script)
    found = administer(stage, lambda admin: admin.describe_groups(["nobody"]))["nobody"]
    assert isinstance(found, GroupNotFoundError)
    assert str(found) == "there is no group 'nobody'"


def test_each_coordinator_is_asked_about_its_own_groups() -> None:
    stage = stage_of(DESCRIBE_GROUPS, described(), brokers=2)
    for broker in stage.brokers:
        broker.scripts[FIND_COORDINATOR] = coordinated_by(lambda key: int(key[-1]))
    names = ["a1", "b2", "c1", "d2"]
    answers = administer(stage, lambda admin: admin.describe_groups(names))
    assert {name: one.coordinator.id for name, one in answers.items()} == {  # type: ignore[union-attr]
        "a1": 1,
        "b2": 2,
        "c1": 1,
        "d2": 2,
    }
    for broker, asked in zip(stage.brokers, (("a1", "c1"), ("b2", "d2")), strict=True):
        (request,) = broker.asked(DESCRIBE_GROUPS)
        assert request.groups == asked


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_coordinator_that_moved_or_loads_is_asked_again(code: int) -> None:
    stage = stage_of(DESCRIBE_GROUPS, described(), brokers=2)
    stage.brokers[0].scripts[DESCRIBE_GROUPS] = described(state="", code=code)
    stage.brokers[0].scripts[FIND_COORDINATOR] = in_turn(
        coordinated_by(lambda key: 1), coordinated_by(lambda key: 2)
    )
    group = administer(stage, lambda admin: admin.describe_groups(["readers"]))["readers"]
    assert isinstance(group, GroupDescription)
    assert group.coordinator.id == 2


def test_only_groups_without_an_answer_are_asked_about_again() -> None:
    refused = in_turn(
        lambda request: {
            "throttle_time": 0,
            "results": [
                {"group_id": "a", "error_code": NON_EMPTY},
                {"group_id": "b", "error_code": NOT_COORDINATOR},
            ],
        },
        lambda request: {"throttle_time": 0, "results": [{"group_id": "b", "error_code": 0}]},
    )
    stage = stage_of(DELETE_GROUPS, refused)
    answers = administer(stage, lambda admin: admin.delete_groups(["a", "b"]))
    assert isinstance(answers["a"], GroupNotEmptyError)
    assert answers["b"] is None
    asked = [request.groups_names for request in stage.brokers[0].asked(DELETE_GROUPS)]
    assert asked == [("a", "b"), ("b",)]


# Deleting


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(version: int) -> None:
    codes = {"gone": 0, "busy": NON_EMPTY, "nobody": NOT_FOUND}
    rows = [{"group_id": name, "error_code": code} for name, code in codes.items()]
    stage = stage_of(DELETE_GROUPS, lambda request: {"throttle_time": 0, "results": rows})
    one_version(stage, DELETE_GROUPS, version)
    answers = administer(stage, lambda admin: admin.delete_groups(list(codes)))
    assert answers["gone"] is None
    assert isinstance(answers["busy"], GroupNotEmptyError)
    assert isinstance(answers["nobody"], GroupNotFoundError)


# Offsets


def fetched(offsets: Mapping[int, int], code: int = 0) -> Script:
    def answer(request: Request) -> Mapping[str, object]:
        partitions = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": 4,
                "metadata": "note",
                "error_code": 0,
            }
            for index, offset in offsets.items()
        ]
        found = {"error_code": code, "topics": [{"name": "clicks", "partitions": partitions}]}
        if hasattr(request, "groups"):
            return {"throttle_time": 0, "groups": [{"group_id": "readers", **found}]}
        return {"throttle_time": 0, **found}

    return answer


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_of_a_group_are_listed_in_every_version(version: int) -> None:
    stage = stage_of(OFFSET_FETCH, fetched({0: 17, 1: -1}))
    one_version(stage, OFFSET_FETCH, version)
    epoch = 4 if version >= 5 else -1
    assert administer(stage, lambda admin: admin.list_group_offsets("readers")) == {
        FIRST: GroupOffset(offset=17, leader_epoch=epoch, metadata="note")
    }
    (request,) = stage.brokers[0].asked(OFFSET_FETCH)
    asked = request.groups[0] if version >= 8 else request
    assert (asked.group_id, asked.topics) == ("readers", None)


def test_only_the_partitions_named_are_asked_for() -> None:
    stage = stage_of(OFFSET_FETCH, fetched({}))
    administer(stage, lambda admin: admin.list_group_offsets("readers", [FIRST, SECOND]))
    (topic,) = stage.brokers[0].asked(OFFSET_FETCH)[0].groups[0].topics
    assert (topic.name, topic.partition_indexes) == ("clicks", (0, 1))


def test_a_fetch_of_offsets_follows_its_coordinator() -> None:
    script = in_turn(fetched({}, code=LOADING), fetched({}, NOT_COORDINATOR), fetched({0: 1}))
    stage = stage_of(OFFSET_FETCH, script)
    assert administer(stage, lambda admin: admin.list_group_offsets("readers")).keys() == {FIRST}
    assert len(stage.brokers[0].asked(FIND_COORDINATOR)) == 3


def committed(codes: Mapping[int, int]) -> Script:
    rows = [{"partition_index": index, "error_code": code} for index, code in codes.items()]
    topics = [{"name": "clicks", "partitions": rows}]
    return lambda request: {"throttle_time": 0, "error_code": 0, "topics": topics}


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_of_a_group_are_set_in_every_version(version: int) -> None:
    stage = stage_of(OFFSET_COMMIT, committed({0: 0, 1: 3}))
    one_version(stage, OFFSET_COMMIT, version)
    offsets = {FIRST: 7, SECOND: GroupOffset(offset=8, leader_epoch=2, metadata="by hand")}
    answers = administer(stage, lambda admin: admin.alter_group_offsets("readers", offsets))
    assert answers[FIRST] is None
    assert isinstance(answers[SECOND], UnknownTopicError)
    (request,) = stage.brokers[0].asked(OFFSET_COMMIT)
    assert (request.group_id, request.member_id) == ("readers", "")
    assert request.generation_id_or_member_epoch == -1
    rows = [(row.committed_offset, row.committed_metadata) for row in request.topics[0].partitions]
    assert rows == [(7, ""), (8, "by hand")]
    if version >= 6:
        epochs = [row.committed_leader_epoch for row in request.topics[0].partitions]
        assert epochs == [-1, 2]


def test_setting_offsets_follows_the_coordinator() -> None:
    script = in_turn(committed({0: NOT_COORDINATOR}), committed({0: LOADING}), committed({0: 0}))
    stage = stage_of(OFFSET_COMMIT, script)
    set_first = administer(stage, lambda admin: admin.alter_group_offsets("readers", {FIRST: 1}))
    assert set_first == {FIRST: None}
    assert len(stage.brokers[0].asked(OFFSET_COMMIT)) == 3


def test_offsets_of_a_group_with_members_cannot_be_set() -> None:
    stage = stage_of(OFFSET_COMMIT, committed({0: UNKNOWN_MEMBER_ID}))
    answers = administer(stage, lambda admin: admin.alter_group_offsets("readers", {FIRST: 1}))
    assert isinstance(answers[FIRST], GroupNotEmptyError)
    assert str(answers[FIRST]) == "group 'readers' has members"


def test_offsets_of_a_group_are_forgotten() -> None:
    stage = stage_of(OFFSET_DELETE, committed({0: 0, 1: SUBSCRIBED}))
    answers = administer(
        stage, lambda admin: admin.delete_group_offsets("readers", [FIRST, SECOND])
    )
    assert answers[FIRST] is None
    assert isinstance(answers[SECOND], GroupSubscribedToTopicError)


def test_offsets_of_no_group_cannot_be_forgotten() -> None:
    script: Script = lambda request: {"throttle_time": 0, "error_code": NOT_FOUND, "topics": []}  # noqa: E731
    stage = stage_of(OFFSET_DELETE, script)
    with pytest.raises(GroupNotFoundError, match="'nobody'"):
        administer(stage, lambda admin: admin.delete_group_offsets("nobody", [FIRST]))


def test_the_blocking_face_has_every_method() -> None:
    for name, method in vars(AsyncAdmin).items():
        if inspect.iscoroutinefunction(method) and not name.startswith("_"):
            assert inspect.signature(getattr(Admin, name)) == inspect.signature(method), name
