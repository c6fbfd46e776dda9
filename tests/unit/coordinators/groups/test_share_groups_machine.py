"""Share groups (KIP-932) with members that come, go and crash, and share coordinators that answer
late or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from consumer_group_world import IDS, image_of
from hypothesis import given, settings
from hypothesis import strategies as st
from share_group_world import CLICKS, GROUP, ORDERS, ShareWorld

from moldau.cluster.rules.metadata_image import DeletedTopic
from moldau.coordinators.groups.rules.classic_group import ClassicGroup
from moldau.coordinators.groups.rules.events import (
    LEAVING_EPOCH,
    AlterShareOffsets,
    CodeAnswer,
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DeleteGroup,
    DeleteOffsets,
    DeleteStates,
    DeleteTopics,
    GroupType,
    Heartbeat,
    Join,
    JoinAnswer,
    NewState,
    PartitionsAnswer,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
    StateTopicsAnswer,
)
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.coordinators.groups.rules.share_group import ShareGroup, ShareGroupState
from moldau.errors import ErrorCode
from moldau.model import TopicId

ALL = {CLICKS: frozenset({0, 1, 2, 3})}

# One step at a time


def test_a_member_gets_partitions_when_their_states_are_there() -> None:
    world = ShareWorld()
    first = world.join("a")
    assert (first.epoch, first.assigned, first.heartbeat_interval_ms) == (1, {}, 5_000)
    assert world.group.state_topics.initializing[CLICKS].partitions == ALL[CLICKS]
    world.answer_orders()
    assert world.group.state_topics.initialized[CLICKS].partitions == ALL[CLICKS]
    assert (answer := world.beat("a", 1)).assigned == ALL
    assert world.beat("a", answer.epoch).assigned is None
    assert world.group.state is ShareGroupState.STABLE
    assert set(world.starts.values()) == {-1}


def test_partitions_are_assigned_once_in_the_interval_of_the_group() -> None:
    world = ShareWorld(share_assignment_interval_ms=1_000)
    world.image = image_of({"clicks": 4, "orders": 1})
    world.join("a", "clicks", "orders")
    world.answer_orders()
    assert world.beat("a", 1).assigned is None, "the assignment of the first epoch had none of them"
    epoch = world.group.epoch
    assert (world.beat("a", 1).epoch, world.group.epoch) == (1, epoch)
    world.wait(500)
    world.restart()
    world.wait(500)
    everything = {**ALL, ORDERS: frozenset({0})}
    assert (world.beat("a", 1).epoch, world.assigned("a")) == (epoch, everything)
    second = world.join("b")
    assert (second.epoch, second.assigned) == (epoch, {})
    assert world.beat("a", epoch, topics=frozenset({"clicks"})).assigned == ALL
    world.wait(1_000)
    shares = [world.beat(one, epoch).assigned for one in "ab"]
    assert [share and len(share[CLICKS]) for share in shares] == [2, 2]


def test_the_interval_of_a_share_group_is_its_own_where_it_has_one() -> None:
    world = ShareWorld(share_assignment_interval_ms=1_000)
    world.image = world.image.with_group_configs({GROUP: {"share.assignment.interval.ms": "0"}})
    assert world.join_at_once("a").assigned == ALL


def test_members_share_what_there_is_and_take_over_from_who_leaves() -> None:
    world = ShareWorld()
    world.join_at_once("a")
    second = world.join("b")
    assert second.assigned == {CLICKS: frozenset({2, 3})} or len(second.assigned[CLICKS]) == 2
    assert len(world.beat("a", 2).assigned[CLICKS]) == 2
    left = world.beat("b", LEAVING_EPOCH)
    assert (left.error, left.epoch) == (ErrorCode.none, LEAVING_EPOCH)
    epoch = world.group.assignment_of("a").epoch
    assert world.beat("a", epoch).assigned == ALL


@pytest.mark.parametrize("topics", [None, frozenset({"clicks"})])
def test_a_member_that_has_not_heard_what_is_its_own_is_told_again(
    topics: frozenset[str] | None,
) -> None:
    world = ShareWorld()
    joined = world.join_at_once("a")
    world.join("b")
    lost = world.beat("a", joined.epoch)
    assert lost.assigned != joined.assigned
    again = world.beat("a", joined.epoch, topics=topics)
    assert (again.epoch, again.assigned) == (lost.epoch, lost.assigned)
    assert world.beat("a", again.epoch).assigned is None
    full = world.beat("a", again.epoch, topics=frozenset({"clicks"}))
    assert full.assigned == again.assigned


def test_who_is_silent_is_removed() -> None:
    world = ShareWorld()
    joined = world.join_at_once("a")
    world.wait(44_999)
    world.beat("a", joined.epoch)
    world.wait(45_000)
    assert world.group.state is ShareGroupState.EMPTY
    assert world.beat("a", joined.epoch).error is ErrorCode.unknown_member_id


def test_what_could_not_be_initialized_is_asked_for_again() -> None:
    world = ShareWorld()
    joined = world.join("a")
    assert world.beat("a", joined.epoch).assigned is None
    assert len(world.orders) == 1
    world.answer_orders(succeed=False)
    world.beat("a", joined.epoch)
    assert len(world.orders) == 1
    world.restart()  # and by the next coordinator
    world.beat("a", joined.epoch)
    assert len(world.orders) == 1
    world.answer_orders()
    assert world.beat("a", joined.epoch).assigned == ALL


def test_partitions_that_come_later_are_read_from_their_beginning() -> None:
    world = ShareWorld()
    joined = world.join_at_once("a")
    world.image = image_of({"clicks": 6})
    again = world.beat("a", joined.epoch)
    assert again.assigned is None
    world.answer_orders()
    assert world.starts[CLICKS, 5] == 0
    assert world.beat("a", again.epoch).assigned == {CLICKS: frozenset(range(6))}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_first_initialization_that_fails_in_part_is_finished_where_it_was_to_begin(
    restarts: bool,
) -> None:
    """SHG-5"""
    world = ShareWorld()
    joined = world.join("a")
    world.answer_orders(but_not={1, 3})
    if restarts:
        world.restart()
    world.beat("a", joined.epoch)
    world.answer_orders()
    assert world.starts == {(CLICKS, one): -1 for one in range(4)}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_partition_that_came_later_begins_at_the_beginning_however_often_it_is_asked_for(
    restarts: bool,
) -> None:
    """SHG-5"""
    world = ShareWorld()
    epoch = world.join("a").epoch
    world.answer_orders(but_not={3})
    world.image = image_of({"clicks": 5})
    for _ in range(3):
        epoch = world.beat("a", epoch).epoch
        world.answer_orders(but_not={3, 4})
        if restarts:
            world.restart()
    world.beat("a", epoch)
    world.answer_orders()
    assert world.starts == {(CLICKS, one): -1 for one in range(4)} | {(CLICKS, 4): 0}


def test_a_member_may_want_something_else() -> None:
    world = ShareWorld()
    world.image = image_of({"clicks": 2, "orders": 1})
    joined = world.join_at_once("a")
    wanted = world.beat("a", joined.epoch, topics=frozenset({"orders"}))
    assert wanted.assigned == {}
    world.answer_orders()
    assert world.beat("a", wanted.epoch).assigned == {ORDERS: frozenset({0})}


def test_epochs_fence() -> None:
    world = ShareWorld()
    joined = world.join_at_once("a")
    assert joined.epoch == 2
    assert world.beat("a", 1).error is ErrorCode.none  # the answer with the new one was lost
    assert world.beat("a", 3).error is ErrorCode.fenced_member_epoch
    world.join("b")
    assert world.beat("a", 2).error is ErrorCode.none
    assert world.beat("a", 1).error is ErrorCode.fenced_member_epoch
    assert world.join("a").error is ErrorCode.none


@pytest.mark.parametrize(
    "values",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"rack_id": ""},
        {"epoch": -2},
        {"topics": None},
        {"topics": frozenset()},
    ],
)
def test_requests_that_make_no_sense_are_refused(values: dict[str, object]) -> None:
    world = ShareWorld()
    usual: dict[str, object] = {
        "group_id": GROUP,
        "member_id": "a",
        "epoch": 0,
        "topics": frozenset({"clicks"}),
    }
    answer = world.do(ShareHeartbeat(**(usual | values)))  # type: ignore[arg-type]
    assert isinstance(answer, ConsumerHeartbeatAnswer)
    assert answer.error is ErrorCode.invalid_request
    assert world.log == []


def test_a_group_has_only_so_many_members() -> None:
    world = ShareWorld(share_max_size=1)
    world.join_at_once("a")
    assert world.join("b").error is ErrorCode.group_max_size_reached
    assert world.join("a").error is ErrorCode.none


def test_nobody_is_a_member_of_a_group_that_is_not_there() -> None:
    world = ShareWorld()
    assert world.beat("a", 3).error is ErrorCode.group_id_not_found
    assert world.beat("a", LEAVING_EPOCH).error is ErrorCode.group_id_not_found


# Kinds of groups


def test_a_share_group_is_no_group_of_another_kind() -> None:
    world = ShareWorld()
    world.join_at_once("a")
    beat = world.do(ConsumerHeartbeat(group_id=GROUP, member_id="c", epoch=0))
    assert isinstance(beat, ConsumerHeartbeatAnswer)
    assert beat.error is ErrorCode.group_id_not_found
    join = world.do(
        Join(
            group_id=GROUP,
            member_id="",
            instance_id=None,
            new_member_id="c",
            client_id="",
            client_host="",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(),
            needs_member_id=False,
            can_skip_assignment=False,
        )
    )
    assert isinstance(join, JoinAnswer)
    assert join.error is ErrorCode.inconsistent_group_protocol
    commit = world.do(
        CommitOffsets(
            group_id=GROUP,
            generation=-1,
            member_id="",
            instance_id=None,
            offsets=(("clicks", 0, CommittedOffset(1, -1, "", 0)),),
            knows_epochs=True,
        )
    )
    assert commit == PartitionsAnswer(error=ErrorCode.group_id_not_found)
    forget = world.do(DeleteOffsets(group_id=GROUP, partitions=(("clicks", 0),)))
    assert forget == PartitionsAnswer(error=ErrorCode.group_id_not_found)
    beat = world.do(Heartbeat(group_id=GROUP, generation=1, member_id="c"))
    assert beat == CodeAnswer(error=ErrorCode.unknown_member_id)
    (listed,) = world.groups.listed()
    assert (listed.type, listed.protocol_type) == (GroupType.SHARE, "share")
    assert isinstance(world.groups.find(GROUP), ShareGroup)


def test_a_group_of_another_kind_is_no_share_group() -> None:
    world = ShareWorld()
    world.do(
        CommitOffsets(
            group_id=GROUP,
            generation=-1,
            member_id="",
            instance_id=None,
            offsets=(("clicks", 0, CommittedOffset(1, -1, "", 0)),),
            knows_epochs=True,
        )
    )
    assert world.join("a").error is ErrorCode.group_id_not_found
    assert isinstance(world.groups.find(GROUP), ClassicGroup)
    assert world.do(DeleteStates(group_id=GROUP)) == StateTopicsAnswer(
        error=ErrorCode.group_id_not_found
    )
    assert not isinstance(world.groups.find(GROUP), ShareGroup)


# What administrators do


def delete_states(world: ShareWorld, topics: frozenset[object] | None = None) -> ErrorCode:
    """As the shell does it."""
    answer = world.do(DeleteStates(group_id=GROUP, topic_ids=topics))  # type: ignore[arg-type]
    assert isinstance(answer, StateTopicsAnswer)
    if answer.error is ErrorCode.none:
        for topic_id, partitions in answer.partitions.items():
            for partition in partitions:
                world.kept.pop((topic_id, partition), None)
        asked = frozenset(answer.partitions)
        world.do(StatesDeleted(group_id=GROUP, asked=asked, done=asked))
    return answer.error


def test_a_group_ends_after_its_states() -> None:
    world = ShareWorld()
    joined = world.join_at_once("a")
    delete = DeleteGroup(group_id=GROUP)
    assert world.do(delete) == CodeAnswer(error=ErrorCode.non_empty_group)
    assert delete_states(world) is ErrorCode.non_empty_group
    world.beat("a", LEAVING_EPOCH)
    assert joined.error is ErrorCode.none
    assert world.do(delete) == CodeAnswer(error=ErrorCode.non_empty_group), "SHG-3"
    assert delete_states(world) is ErrorCode.none
    assert world.kept == {}
    assert world.do(delete) == CodeAnswer()
    assert world.groups.find(GROUP) is None
    world.restart()
    assert world.groups.find(GROUP) is None


def test_a_topic_that_was_forgotten_begins_anew_under_another_epoch() -> None:
    world = ShareWorld()
    world.join_at_once("a")
    world.beat("a", LEAVING_EPOCH)
    before = dict(world.kept)
    assert delete_states(world, frozenset({CLICKS})) is ErrorCode.none
    assert world.group.state_topics.everything == {}
    world.join_at_once("a")
    assert world.assigned("a") == ALL
    assert all(world.kept[key] > before[key] for key in before)


def test_a_deletion_that_was_under_way_is_finished_by_the_next_coordinator() -> None:
    world = ShareWorld()
    world.join_at_once("a")
    world.beat("a", LEAVING_EPOCH)
    world.do(DeleteStates(group_id=GROUP))
    world.restart()
    assert set(world.group.state_topics.deleting) == {CLICKS}
    answer = world.do(DeleteStates(group_id=GROUP))
    assert isinstance(answer, StateTopicsAnswer)
    assert answer.partitions == ALL


def test_offsets_are_altered_while_nobody_is_there() -> None:
    world = ShareWorld()
    world.join_at_once("a")
    alter = AlterShareOffsets(
        group_id=GROUP, states=(NewState(CLICKS, 1, 77),), names={CLICKS: "clicks"}
    )
    assert world.do(alter) == StateTopicsAnswer(error=ErrorCode.non_empty_group)
    world.beat("a", LEAVING_EPOCH)
    epoch = world.group.epoch
    answer = world.do(alter)
    assert answer == StateTopicsAnswer(epoch=epoch + 1)
    asked = frozenset({(CLICKS, 1)})
    world.do(StatesInitialized(group_id=GROUP, asked=asked, done=asked))
    assert world.group.state_topics.has_initialized(CLICKS, 1)
    world.join("a")
    assert world.orders == []


def test_a_group_may_begin_with_where_it_is_to_begin() -> None:
    world = ShareWorld()
    nothing = AlterShareOffsets(group_id=GROUP, states=(), names={})
    assert world.do(nothing) == StateTopicsAnswer(error=ErrorCode.group_id_not_found)
    assert not isinstance(world.groups.find(GROUP), ShareGroup)
    alter = AlterShareOffsets(
        group_id=GROUP, states=(NewState(CLICKS, 1, 77),), names={CLICKS: "clicks"}
    )
    answer = world.do(alter)
    assert isinstance(answer, StateTopicsAnswer)
    assert (answer.error, answer.epoch) == (ErrorCode.none, world.group.epoch)
    asked = frozenset({(CLICKS, 1)})
    world.kept[CLICKS, 1] = answer.epoch
    world.do(StatesInitialized(group_id=GROUP, asked=asked, done=asked))
    world.restart()
    assert world.group.state_topics.has_initialized(CLICKS, 1)
    world.join("a")


@pytest.mark.parametrize("restarts", [False, True])
def test_offsets_that_could_not_be_altered_are_as_before(restarts: bool) -> None:
    """SHG-5: the group does not begin anew."""
    world = ShareWorld()
    world.join_at_once("a")
    world.beat("a", LEAVING_EPOCH)
    world.do(
        AlterShareOffsets(
            group_id=GROUP, states=(NewState(CLICKS, 1, 77),), names={CLICKS: "clicks"}
        )
    )
    if restarts:
        world.restart()
    else:
        asked = frozenset({(CLICKS, 1)})
        world.do(StatesInitialized(group_id=GROUP, asked=asked, done=frozenset()))
    assert world.group.state_topics.has_initialized(CLICKS, 1)
    assert world.join("a").assigned == ALL
    assert world.orders == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_state_that_is_to_begin_at_an_offset_begins_there_later(restarts: bool) -> None:
    """SHG-5: the group has none of the topic yet, and share coordinators could not be asked."""
    world = ShareWorld()
    world.image = image_of({"clicks": 4, "orders": 2})
    world.join_at_once("a")
    world.beat("a", LEAVING_EPOCH)
    alter = AlterShareOffsets(
        group_id=GROUP, states=(NewState(ORDERS, 1, 77),), names={ORDERS: "orders"}
    )
    world.do(alter)
    asked = frozenset({(ORDERS, 1)})
    world.do(StatesInitialized(group_id=GROUP, asked=asked, done=frozenset()))
    if restarts:
        world.restart()
    world.join_at_once("a", "orders")
    assert world.starts[ORDERS, 1] == 77
    assert world.starts[ORDERS, 0] == -1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_that_is_made_again_goes_on_with_the_epochs_of_the_former_one(
    restarts: bool,
) -> None:
    """SHG-6: what a leader still writes for the former one does not pass for its own."""
    world = ShareWorld()
    world.join_at_once("a")
    world.beat("a", LEAVING_EPOCH)
    former = dict(world.kept)
    delete_states(world)
    assert world.do(DeleteGroup(group_id=GROUP)) == CodeAnswer()
    if restarts:
        world.restart()
    assert world.join_at_once("a").assigned == ALL
    assert all(world.kept[key] > former[key] for key in ((CLICKS, one) for one in range(4)))
    assert set(world.starts.values()) == {-1}


def test_a_deleted_topic_is_forgotten() -> None:
    world = ShareWorld()
    joined = world.join_at_once("a")
    gone = {TopicId(CLICKS): DeletedTopic("clicks", 0)}
    world.image = replace(image_of({"others": 1}), deleted=gone)
    world.do(DeleteTopics(group_id=GROUP, topics=frozenset({"clicks"})))
    assert world.group.state_topics.everything == {}
    assert world.beat("a", joined.epoch).assigned == {}


def test_a_topic_that_is_missing_when_another_one_is_deleted_is_not_forgotten() -> None:
    """Its nodes may come back (DEL-1), and the group continues where it was."""
    world = ShareWorld()
    world.join_at_once("a")
    known = world.group.state_topics
    world.image = image_of({"others": 1})
    world.do(DeleteTopics(group_id=GROUP, topics=frozenset({"orders"})))
    assert world.group.state_topics == known


# Whatever happens


MEMBERS = st.sampled_from("abc")


def _epoch_of(world: ShareWorld, member_id: str) -> int:
    group = world.groups.find(GROUP)
    return group.assignment_of(member_id).epoch if isinstance(group, ShareGroup) else 1


def _happen(world: ShareWorld, data: st.DataObject) -> None:
    match data.draw(st.integers(0, 7)):
        case 0:
            topics = data.draw(st.sampled_from([("clicks",), ("clicks", "orders")]))
            world.join(data.draw(MEMBERS), *topics)
        case 1 | 2:
            member_id = data.draw(MEMBERS)
            world.beat(member_id, _epoch_of(world, member_id) or 1)
        case 3:
            world.beat(data.draw(MEMBERS), LEAVING_EPOCH)
        case 4:
            world.answer_orders(
                succeed=data.draw(st.booleans()), but_not=data.draw(st.sets(st.integers(0, 4)))
            )
        case 5:
            world.restart()
        case 6:
            world.wait(data.draw(st.sampled_from([1_000, 30_000, 50_000])))
        case _:
            _disturb(world, data)


def _disturb(world: ShareWorld, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        world.writes_fail = data.draw(st.booleans())
        return
    counts = {"clicks": data.draw(st.integers(1, 5))}
    if data.draw(st.booleans()):
        counts["orders"] = 2
    gone = frozenset({"clicks", "orders"} - counts.keys())
    world.image = image_of(counts)
    world.image = replace(world.image, deleted={TopicId(IDS[n]): DeletedTopic(n, 0) for n in gone})
    world.do(DeleteTopics(group_id=GROUP, topics=gone))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_order_of_things_leads_to_a_group_in_which_everything_is_taken_from(
    data: st.DataObject,
) -> None:
    interval_ms = data.draw(st.sampled_from([0, 1_000]))
    world = ShareWorld(share_assignment_interval_ms=interval_ms)
    for _ in range(data.draw(st.integers(1, 20))):
        _happen(world, data)
    world.writes_fail = False
    world.restart()
    world.image = image_of({"clicks": 3, "orders": 2})
    world.join("a", "clicks", "orders")
    for _ in range(4):
        world.answer_orders()
        world.wait(1_000)
        for member_id in list(world.group.subscriptions):
            epoch = world.group.assignment_of(member_id).epoch
            assert world.beat(member_id, epoch or 0).error in (
                ErrorCode.none,
                ErrorCode.invalid_request,
            )
    taken = {
        (topic_id, partition)
        for member_id in world.group.subscriptions
        for topic_id, partitions in world.assigned(member_id).items()
        for partition in partitions
    }
    wanted = {(CLICKS, one) for one in range(3)} | {(ORDERS, one) for one in range(2)}
    assert wanted <= taken
