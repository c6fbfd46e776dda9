"""Streams groups in the machine of a shard: members come, rebalance, and go (KIP-1071)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams_group_world import GROUP, TOPICS, TOPOLOGY, StreamsWorld, Worker, image_of, settle

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules import assignors
from moldau.coordinators.groups.rules.assignors import TASKS_AT_ONCE
from moldau.coordinators.groups.rules.classic_group import ClassicGroup
from moldau.coordinators.groups.rules.commits import find_offsets
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    CodeAnswer,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupProtocol,
    GroupType,
    Heartbeat,
    Join,
    JoinAnswer,
    PartitionsAnswer,
    ShareHeartbeat,
    StreamsHeartbeatAnswer,
    TimerFired,
)
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.coordinators.groups.rules.streams_group import StreamsGroup, StreamsGroupState
from moldau.coordinators.groups.rules.streams_records import (
    StreamsAssignment,
    StreamsAssignmentRecord,
    StreamsEndpoint,
    StreamsMember,
    StreamsMemberRecord,
    StreamsMemberState,
)
from moldau.coordinators.groups.rules.streams_topology import (
    NO_TASKS,
    StreamsStatus,
    TaskKind,
    Tasks,
)
from moldau.errors import ErrorCode, StaleMemberEpochError, UnknownMemberError

ALL = {"0": {0, 1}, "1": {0, 1}}


def committed(offset: int = 5, at_ms: int = 1_000_000) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", at_ms)


def commit(member_id: str = "", epoch: int = -1, **values: Any) -> CommitOffsets:
    said: dict[str, Any] = {
        "group_id": GROUP,
        "generation": epoch,
        "member_id": member_id,
        "instance_id": None,
        "offsets": (("words", 0, committed()),),
        "knows_epochs": True,
    }
    return CommitOffsets(**said | values)


def statuses(answer: StreamsHeartbeatAnswer) -> list[StreamsStatus]:
    return [note.status for note in answer.statuses]


# Coming


def test_the_first_member_gets_all_tasks() -> None:
    world = StreamsWorld()
    answer = world.join("a")
    assert answer.error is ErrorCode.none
    assert answer.tasks == Tasks(ALL)
    assert answer.epoch == 2
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.statuses == ()
    assert world.group.state is StreamsGroupState.STABLE
    assert world.group.listed().type is GroupType.STREAMS


def test_tasks_are_told_once() -> None:
    world = StreamsWorld()
    epoch = world.join("a").epoch
    assert world.beat("a", epoch).tasks is None


def test_members_share_the_tasks_and_nobody_runs_one_twice() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first)
    assert second.beat().tasks == NO_TASKS
    assert world.group.assignment_of("b").state is StreamsMemberState.UNRELEASED_TASKS
    first.beat()
    assert world.group.assignment_of("a").state is StreamsMemberState.UNREVOKED_TASKS
    assert world.group.state is StreamsGroupState.RECONCILING
    assert second.beat().tasks == NO_TASKS, "a has not said that it has given them up"
    settle(first, second)
    assert first.tasks.active == {"0": {0}, "1": {0}}
    assert second.tasks.active == {"0": {1}, "1": {1}}
    assert world.group.state is StreamsGroupState.STABLE


def test_the_tasks_of_one_that_leaves_go_to_the_others() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    assert second.leave() == StreamsHeartbeatAnswer(member_id="b", epoch=-1)
    settle(first)
    assert first.tasks.active == ALL


def test_the_tasks_of_one_that_is_silent_go_to_the_others() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    world.wait(40_000)
    first.beat()
    world.wait(10_000)
    settle(first)
    assert first.tasks.active == ALL
    assert world.beat("b", second.epoch).error is ErrorCode.unknown_member_id


def test_one_that_does_not_give_tasks_up_is_lost() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a", rebalance_timeout_ms=20_000), Worker(world, "b")
    settle(first)
    second.beat()
    world.beat("a", first.epoch)
    world.wait(19_000)
    world.beat("a", world.group.assignment_of("a").epoch)
    second.beat()
    assert "a" in world.group.members
    world.wait(1_000)
    assert "a" not in world.group.members
    settle(second)
    assert second.tasks.active == ALL


def test_a_new_group_waits_for_more_members() -> None:
    world = StreamsWorld(streams_initial_rebalance_delay_ms=3_000)
    answer = world.join("a")
    assert statuses(answer) == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert (answer.epoch, answer.tasks) == (1, NO_TASKS)
    world.join("b")
    assert world.group.state is StreamsGroupState.ASSIGNING
    world.wait(3_000)
    assert world.group.state is StreamsGroupState.RECONCILING
    assert world.beat("a", 1).tasks == Tasks({"0": {0}, "1": {0}})
    assert world.beat("b", 1).tasks == Tasks({"0": {1}, "1": {1}})


def test_nobody_is_waited_for_by_a_coordinator_that_takes_over() -> None:
    world = StreamsWorld(streams_initial_rebalance_delay_ms=3_000)
    world.join("a")
    world.restart()
    assert world.beat("a", 1).tasks == Tasks(ALL)


def test_one_that_left_a_new_group_before_its_first_assignment() -> None:
    world = StreamsWorld(streams_initial_rebalance_delay_ms=3_000)
    world.join("a")
    world.beat("a", -1)
    world.wait(3_000)
    assert world.group.state is StreamsGroupState.EMPTY
    assert statuses(world.join("a")) == [StreamsStatus.ASSIGNMENT_DELAYED]


def test_assignments_are_not_made_too_often() -> None:
    world = StreamsWorld(streams_assignment_interval_ms=1_000)
    first, second = Worker(world, "a"), Worker(world, "b")
    first.beat()
    assert statuses(second.beat()) == [StreamsStatus.ASSIGNMENT_DELAYED]
    world.wait(1_000)
    assert second.beat().statuses == ()
    settle(first, second)
    assert second.tasks.active == {"0": {1}, "1": {1}}


def large(partitions: int = TASKS_AT_ONCE) -> dict[str, int]:
    """Topics of so many tasks that others are served while they are assigned."""
    return dict.fromkeys(TOPICS, partitions)


def test_many_tasks_are_assigned_while_others_are_served() -> None:
    world = StreamsWorld()
    world.image = image_of(large())
    first, second = Worker(world, "a"), Worker(world, "b")
    assert statuses(first.beat()) == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert world.order is not None
    assert world.order.epoch == 2
    under_way = world.order
    assert statuses(second.beat()) == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert world.order is under_way, "one assignment at a time"
    world.finish_assigning()
    assert world.group.target_epoch == 2
    assert world.group.state is StreamsGroupState.ASSIGNING, "the second one came later"
    settle(first, second)
    counts = [sum(len(some) for some in one.tasks.active.values()) for one in (first, second)]
    assert counts == [TASKS_AT_ONCE, TASKS_AT_ONCE]


def test_one_that_has_gone_while_tasks_were_assigned_gets_none() -> None:
    world = StreamsWorld()
    world.image = image_of(large())
    first, second = Worker(world, "a"), Worker(world, "b")
    first.beat()
    world.finish_assigning()
    settle(first)
    second.beat()
    second.leave()
    world.finish_assigning()
    assert list(world.group.targets) == ["a"]
    settle(first)
    assert sum(len(some) for some in first.tasks.active.values()) == 2 * TASKS_AT_ONCE


def test_tasks_that_were_assigned_for_a_group_of_the_same_id_are_nobodys() -> None:
    """It was deleted meanwhile: the new one is in the same epoch, and waits for its members."""
    world = StreamsWorld(streams_initial_rebalance_delay_ms=3_000)
    world.image = image_of(large())
    first, second = Worker(world, "a"), Worker(world, "b")
    first.beat()
    world.do(TimerFired(timer=world.group.first_assignment_timer))
    assert world.order is not None
    first.leave()
    assert world.do(DeleteGroup(group_id=GROUP)) == CodeAnswer()
    second.beat()
    assert world.group.epoch == world.order.epoch
    world.wait(3_000)
    settle(second)
    assert sum(len(some) for some in second.tasks.active.values()) == 2 * TASKS_AT_ONCE


def test_tasks_are_assigned_again_when_whoever_asked_for_it_could_not_be_logged() -> None:
    world = StreamsWorld()
    world.image = image_of(large())
    first, second = Worker(world, "a"), Worker(world, "b")
    first.beat()
    world.finish_assigning()
    settle(first)
    world.writes_fail = True
    second.beat()
    assert world.order is None
    world.writes_fail = False
    settle(first, second)
    assert second.tasks.active


def test_a_clock_that_goes_after_another_does_not_put_assignments_off() -> None:
    """A coordinator takes over whose clock is an hour behind that of the former one."""
    world = StreamsWorld(streams_assignment_interval_ms=1_000)
    first, second = Worker(world, "a"), Worker(world, "b")
    first.beat()
    world.now_ms -= 3_600_000
    assert second.beat().statuses == ()
    settle(first, second)
    assert second.tasks.active == {"0": {1}, "1": {1}}


def test_a_group_has_room_for_so_many() -> None:
    world = StreamsWorld(streams_max_size=1)
    world.join("a")
    assert world.join("b").error is ErrorCode.group_max_size_reached
    assert world.join("a").error is ErrorCode.none


def test_one_that_joins_again_gets_what_it_has() -> None:
    world = StreamsWorld()
    world.join("a")
    assert world.join("a").tasks == Tasks(ALL)


# Epochs


def test_a_member_in_another_epoch_is_fenced() -> None:
    world = StreamsWorld()
    epoch = world.join("a").epoch
    assert world.beat("a", epoch + 1).error is ErrorCode.fenced_member_epoch
    assert world.beat("b", 1).error is ErrorCode.unknown_member_id


def test_a_member_that_lost_an_answer_is_told_again() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    second.leave()
    lost = world.beat("a", first.epoch)
    assert lost.tasks == Tasks(ALL)
    assert world.beat("a", first.epoch).error is ErrorCode.fenced_member_epoch, "says nothing"
    again = first.beat()
    assert (again.epoch, again.tasks) == (lost.epoch, lost.tasks)


def test_a_member_that_owns_what_it_was_not_given_is_fenced() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    second.leave()
    epoch = first.epoch
    first.beat()
    other: dict[str, object] = {"active": {}, "standby": {"1": frozenset({0})}, "warmup": {}}
    assert world.beat("a", epoch, **other).error is ErrorCode.fenced_member_epoch


def test_a_coordinator_that_takes_over_knows_what_the_former_one_knew() -> None:
    world = StreamsWorld(streams_num_standby_replicas=1)
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    described = world.group.describe(world.image)
    world.restart()
    assert world.group.describe(world.image) == described
    epochs = first.epoch, second.epoch
    settle(first, second)
    assert (first.epoch, second.epoch) == epochs


def test_what_cannot_be_logged_has_not_happened() -> None:
    world = StreamsWorld()
    world.writes_fail = True
    assert world.join("a").error is ErrorCode.coordinator_not_available
    assert world.groups.find(GROUP) is None
    world.writes_fail = False
    first = Worker(world, "a")
    settle(first)
    world.writes_fail = True
    assert first.leave().error is ErrorCode.coordinator_not_available
    assert "a" in world.group.members
    assert world.group.session_timer("a") in world.timers


# Topics


def test_missing_internal_topics_are_asked_for() -> None:
    world = StreamsWorld()
    world.image = image_of({"words": 2})
    answer = world.join("a")
    assert statuses(answer) == [StreamsStatus.MISSING_INTERNAL_TOPICS]
    assert [(one.name, one.partition_count) for one in answer.missing] == [
        ("by-word", 2),
        ("changelog", 2),
    ]
    assert answer.tasks == NO_TASKS
    assert world.group.state is StreamsGroupState.NOT_READY
    world.image = image_of(TOPICS)
    answer = world.beat("a", answer.epoch)
    assert (answer.tasks, answer.statuses) == (Tasks(ALL), ())
    assert world.group.state is StreamsGroupState.STABLE


def test_a_source_topic_that_is_deleted_takes_the_tasks_away() -> None:
    world = StreamsWorld()
    first = Worker(world, "a")
    settle(first)
    world.image = image_of({"by-word": 2, "changelog": 2})
    assert statuses(first.beat()) == [StreamsStatus.MISSING_SOURCE_TOPICS]
    settle(first)
    assert first.tasks == NO_TASKS
    world.image = image_of(TOPICS)
    settle(first)
    assert first.tasks.active == ALL


def test_another_topology_is_refused() -> None:
    world = StreamsWorld()
    world.join("a")
    other = TOPOLOGY._replace(epoch=2)
    assert world.join("b", topology=other).error is ErrorCode.invalid_request
    assert "b" not in world.group.members
    answer = world.join("b", topology=TOPOLOGY._replace(epoch=0))
    assert statuses(answer) == [StreamsStatus.STALE_TOPOLOGY]


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ({"instance_id": "i"}, ErrorCode.invalid_request, "Static membership"),
        ({"tells_offsets": True}, ErrorCode.invalid_request, "TaskEndOffsets are not supported"),
        (
            {"warmup": {"0": frozenset({1})}},
            ErrorCode.invalid_request,
            "WarmupTasks are not supported",
        ),
        (
            {"active": {"0": frozenset({1})}},
            ErrorCode.invalid_request,
            "must be empty when joining",
        ),
        ({"standby": None}, ErrorCode.invalid_request, "together or not at all"),
        (
            {"rebalance_timeout_ms": -1},
            ErrorCode.invalid_request,
            "RebalanceTimeoutMs must be given",
        ),
        ({"rack_id": ""}, ErrorCode.invalid_request, "RackId is null"),
        ({"topology": None}, ErrorCode.invalid_request, "Topology must be given"),
        (
            {"topology": TOPOLOGY._replace(epoch=-1)},
            ErrorCode.invalid_request,
            "epoch -1 of the topology",
        ),
        (
            {"topology": TOPOLOGY._replace(subtopologies=TOPOLOGY.subtopologies[1:])},
            ErrorCode.streams_invalid_topology,
            "",
        ),
        (
            {"topology": TOPOLOGY._replace(subtopologies=TOPOLOGY.subtopologies * 2)},
            ErrorCode.streams_invalid_topology,
            "",
        ),
        (
            {
                "topology": TOPOLOGY._replace(
                    subtopologies=(TOPOLOGY.subtopologies[0]._replace(source_regexes=("w.*",)),)
                )
            },
            ErrorCode.invalid_request,
            "Regular expressions",
        ),
    ],
)
def test_requests_that_make_no_sense(said: dict[str, object], error: ErrorCode, why: str) -> None:
    world = StreamsWorld()
    answer = world.join("a", **said)
    assert answer.error is error
    assert answer.message
    assert why in answer.message
    assert world.groups.find(GROUP) is None
    assert not world.log


def test_who_is_in_the_group_gives_no_topology_again_and_may_have_no_timeout() -> None:
    world = StreamsWorld()
    epoch = world.join("a", rebalance_timeout_ms=0, topology=TOPOLOGY._replace(epoch=0)).epoch
    answer = world.beat("a", epoch, topology=TOPOLOGY)
    assert answer.error is ErrorCode.invalid_request
    assert world.beat("a", epoch, rebalance_timeout_ms=-1).error is ErrorCode.none


def test_members_have_ids() -> None:
    assert StreamsWorld().join("").error is ErrorCode.invalid_request


@pytest.mark.parametrize("epoch", [-2, -3])
def test_epochs_that_mean_nothing(epoch: int) -> None:
    world = StreamsWorld()
    world.join("a")
    assert world.beat("a", epoch).error is ErrorCode.invalid_request


def test_a_topology_that_could_not_be_logged_is_refused() -> None:
    world = StreamsWorld(member_metadata_max_bytes=20)
    assert world.join("a").error is ErrorCode.invalid_request


def test_tasks_that_there_are_not_are_refused() -> None:
    world = StreamsWorld()
    epoch = world.join("a").epoch
    for task in ({"0": frozenset({2})}, {"7": frozenset({0})}, {"0": frozenset({-1})}):
        answer = world.beat("a", epoch, active=task, standby={}, warmup={})
        assert answer.error is ErrorCode.invalid_request


# Copies of state


def test_standbys_are_kept_in_other_processes() -> None:
    world = StreamsWorld(streams_num_standby_replicas=1)
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    assert first.tasks == Tasks({"0": {0}, "1": {0}}, {"1": {1}})
    assert second.tasks == Tasks({"0": {1}, "1": {1}}, {"1": {0}})


def test_threads_of_one_process_have_no_standbys() -> None:
    world = StreamsWorld(streams_num_standby_replicas=1)
    first = Worker(world, "a", process_id="p")
    second = Worker(world, "b", process_id="p")
    settle(first, second)
    assert not first.tasks.standby
    assert not second.tasks.standby


def test_a_change_of_the_settings_is_followed() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    world.image = world.image.with_group_configs({GROUP: {"streams.num.standby.replicas": "1"}})
    settle(first, second)
    assert first.tasks.standby == {"1": {1}}
    assert world.group.state_of_epoch.assignment_configs == (("num.standby.replicas", "1"),)
    world.restart()
    epoch = first.epoch
    settle(first, second)
    assert first.epoch == epoch


def test_a_standby_becomes_the_active_task_of_one_that_is_lost() -> None:
    world = StreamsWorld(streams_num_standby_replicas=1)
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    second.leave()
    settle(first)
    assert first.tasks == Tasks(ALL)


def test_a_task_waits_for_another_thread_of_its_process_and_for_whoever_runs_it() -> None:
    """The state of a task is one folder of the process."""
    group = StreamsGroup(GROUP)
    one, same, other = (
        StreamsMember(member_id=name, process_id=process)
        for name, process in (("a1", "p"), ("a2", "p"), ("b", "q"))
    )
    for member in (one, same, other):
        group.apply(StreamsMemberRecord(GROUP, member.member_id, member))
    copied, run = ("1", 0), ("1", 1)
    tasks = Tasks({"1": frozenset({1})}, {"1": frozenset({0})})
    held = StreamsAssignment(revoking=tasks, since={run: 2})
    group.apply(StreamsAssignmentRecord(GROUP, "a1", held))
    for kind in (TaskKind.ACTIVE, TaskKind.STANDBY):
        assert not group.is_free(kind, copied, same)
        assert not group.is_free(kind, run, same)
        assert group.is_free(kind, copied, other)
        assert group.is_free(kind, run, one), "what it gives up is its own again"
    assert not group.is_free(TaskKind.ACTIVE, run, other)
    assert group.is_free(TaskKind.STANDBY, run, other)
    group.apply(StreamsAssignmentRecord(GROUP, "a1", None))
    assert group.is_free(TaskKind.ACTIVE, run, other)


# Interactive queries


def test_members_are_told_whom_to_ask() -> None:
    world = StreamsWorld()
    here, there = StreamsEndpoint("here", 1), StreamsEndpoint("there", 2)
    first, second = Worker(world, "a", endpoint=here), Worker(world, "b", endpoint=there)
    settle(first, second)
    answer = world.beat("a", first.epoch)
    assert answer.endpoints is not None
    told = {row.endpoint: (row.active, row.standby) for row in answer.endpoints}
    assert told == {
        here: ({"words": {0}, "by-word": {0}}, {}),
        there: ({"words": {1}, "by-word": {1}}, {}),
    }
    assert world.beat("a", first.epoch, endpoint_epoch=answer.endpoint_epoch).endpoints is None
    second.leave()
    assert world.beat("a", first.epoch, endpoint_epoch=answer.endpoint_epoch).endpoints is not None


# The end of the application


def test_one_member_ends_the_application() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    world.beat("a", first.epoch, shuts_down=True)
    assert statuses(second.beat()) == [StreamsStatus.SHUTDOWN_APPLICATION]
    first.leave()
    assert statuses(second.beat()) == [StreamsStatus.SHUTDOWN_APPLICATION]
    second.leave()
    assert statuses(first.beat()) == []


# Committed offsets


def test_members_commit_in_their_epochs() -> None:
    world = StreamsWorld()
    epoch = world.join("a").epoch
    assert world.do(commit("a", epoch)) == PartitionsAnswer(errors=(ErrorCode.none,))
    stale = PartitionsAnswer(error=ErrorCode.stale_member_epoch)
    assert world.do(commit("a", epoch + 1)) == stale
    assert world.do(commit("a", epoch - 1)) == stale, "it had no task then"
    assert world.do(commit("b", epoch)) == PartitionsAnswer(error=ErrorCode.unknown_member_id)
    assert world.do(commit()) == PartitionsAnswer(error=ErrorCode.unknown_member_id)
    old = commit("a", epoch, knows_epochs=False)
    assert world.do(old) == PartitionsAnswer(error=ErrorCode.unsupported_version)
    for stranger in (commit("b", epoch, knows_epochs=False), commit(knows_epochs=False)):
        assert world.do(stranger) == PartitionsAnswer(error=ErrorCode.unknown_member_id)


def test_a_member_that_has_not_heard_of_its_epoch_commits_what_it_has_since() -> None:
    world = StreamsWorld()
    first, second = Worker(world, "a"), Worker(world, "b")
    settle(first, second)
    second.leave()
    late = first.epoch
    first.beat()
    assert world.do(commit("a", late)) == PartitionsAnswer(errors=(ErrorCode.none,))
    new = commit("a", late, offsets=(("words", 1, committed()),))
    assert world.do(new) == PartitionsAnswer(error=ErrorCode.stale_member_epoch)
    strange = commit("a", late, offsets=(("others", 0, committed()),))
    assert world.do(strange) == PartitionsAnswer(error=ErrorCode.stale_member_epoch)


def test_commits_in_transactions_are_told_what_older_clients_know() -> None:
    world = StreamsWorld()
    epoch = world.join("a").epoch

    def in_transaction(member_id: str, generation: int) -> object:
        event = CommitTransactionOffsets(
            group_id=GROUP,
            producer_id=1,
            producer_epoch=0,
            verification=0,
            generation=generation,
            member_id=member_id,
            instance_id=None,
            offsets=(("words", 0, committed()),),
        )
        return world.do(event)

    assert in_transaction("a", epoch) == PartitionsAnswer(errors=(ErrorCode.none,))
    illegal = PartitionsAnswer(error=ErrorCode.illegal_generation)
    assert in_transaction("a", epoch + 1) == illegal
    assert in_transaction("", -1) == PartitionsAnswer(errors=(ErrorCode.none,))


def test_members_look_up_offsets_in_their_epochs() -> None:
    world = StreamsWorld()
    epoch = world.join("a").epoch
    world.do(commit("a", epoch))

    def find(member: tuple[str, int] | None) -> object:
        return find_offsets(
            world.groups.find(GROUP),
            {"words": [0]},
            member,
            require_stable=False,
            image=MetadataImage(cluster_id=""),
        )

    assert find(("a", epoch)) == find(None) == {"words": {0: committed()}}
    with pytest.raises(StaleMemberEpochError):
        find(("a", epoch + 1))
    with pytest.raises(UnknownMemberError):
        find(("b", epoch))


def test_offsets_are_kept_and_not_deleted_in_topics_that_are_read() -> None:
    world = StreamsWorld(offsets_retention_ms=1)
    epoch = world.join("a").epoch
    world.do(commit("a", epoch))
    world.now_ms += 10
    world.do(ExpireOffsets(group_id=GROUP))
    delete = DeleteOffsets(group_id=GROUP, partitions=(("words", 0), ("others", 0)))
    answer = PartitionsAnswer(errors=(ErrorCode.group_subscribed_to_topic, ErrorCode.none))
    assert world.do(delete) == answer
    assert world.group.offsets
    world.beat("a", -1)
    assert world.do(delete) == PartitionsAnswer(errors=(ErrorCode.none, ErrorCode.none))
    assert not world.group.offsets


def test_an_empty_group_without_offsets_expires() -> None:
    world = StreamsWorld(offsets_retention_ms=1)
    epoch = world.join("a").epoch
    world.do(commit("a", epoch))
    world.beat("a", -1)
    world.now_ms += 10
    world.do(ExpireOffsets(group_id=GROUP))
    assert world.groups.find(GROUP) is None
    world.restart()
    assert world.groups.find(GROUP) is None


def test_an_administrator_commits_while_nobody_is_in_the_group() -> None:
    world = StreamsWorld()
    world.join("a")
    world.beat("a", -1)
    assert world.do(commit(knows_epochs=False)) == PartitionsAnswer(errors=(ErrorCode.none,))
    assert isinstance(world.groups.find(GROUP), StreamsGroup)


# Groups of other kinds


def join_classic(member_id: str = "") -> Join:
    return Join(
        group_id=GROUP,
        member_id=member_id,
        instance_id=None,
        new_member_id="new",
        client_id="",
        client_host="",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(GroupProtocol("range", b""),),
        needs_member_id=False,
        can_skip_assignment=False,
    )


def test_an_empty_classic_group_becomes_a_streams_group_with_its_offsets() -> None:
    world = StreamsWorld()
    world.do(commit())
    assert isinstance(world.groups.find(GROUP), ClassicGroup)
    assert world.join("a").error is ErrorCode.none
    assert world.group.offsets.find("words", 0) == committed()
    world.restart()
    assert world.group.offsets.find("words", 0) == committed()


def test_an_empty_streams_group_becomes_a_classic_group_with_its_offsets() -> None:
    world = StreamsWorld()
    epoch = world.join("a").epoch
    world.do(commit("a", epoch))
    refused = JoinAnswer(error=ErrorCode.inconsistent_group_protocol)
    assert world.do(join_classic()) == refused
    world.beat("a", -1)
    world.do(join_classic())
    group = world.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.offsets.find("words", 0) == committed()


def test_groups_of_other_kinds_are_no_streams_groups() -> None:
    world = StreamsWorld()
    assert world.beat("a", 3).error is ErrorCode.group_id_not_found
    world.do(join_classic())
    assert world.join("a").error is ErrorCode.group_id_not_found
    other = StreamsWorld()
    other.do(
        ConsumerHeartbeat(
            group_id=GROUP,
            member_id="c",
            epoch=JOINING_EPOCH,
            rebalance_timeout_ms=1_000,
            topics=frozenset({"words"}),
            owned={},
        )
    )
    assert other.join("a").error is ErrorCode.group_id_not_found
    third = StreamsWorld()
    topics = frozenset({"words"})
    third.do(ShareHeartbeat(group_id=GROUP, member_id="c", epoch=JOINING_EPOCH, topics=topics))
    assert third.join("a").error is ErrorCode.group_id_not_found


def test_a_streams_group_is_no_group_of_another_kind() -> None:
    world = StreamsWorld()
    world.join("a")
    topics = frozenset({"words"})
    for event in (
        ConsumerHeartbeat(
            group_id=GROUP,
            member_id="c",
            epoch=JOINING_EPOCH,
            rebalance_timeout_ms=1_000,
            topics=topics,
            owned={},
        ),
        ShareHeartbeat(group_id=GROUP, member_id="c", epoch=JOINING_EPOCH, topics=topics),
    ):
        answer = world.do(event)
        assert isinstance(answer, ConsumerHeartbeatAnswer)
        assert answer.error is ErrorCode.group_id_not_found
    beat = Heartbeat(group_id=GROUP, generation=1, member_id="a")
    assert world.do(beat) == CodeAnswer(error=ErrorCode.unknown_member_id)
    assert isinstance(world.groups.find(GROUP), StreamsGroup)


def test_a_group_is_deleted_when_nobody_is_in_it() -> None:
    world = StreamsWorld()
    world.join("a")
    delete = DeleteGroup(group_id=GROUP)
    assert world.do(delete) == CodeAnswer(error=ErrorCode.non_empty_group)
    world.beat("a", -1)
    world.do(commit())
    assert world.do(delete) == CodeAnswer()
    assert world.groups.find(GROUP) is None
    world.restart()
    assert world.groups.find(GROUP) is None
    other = TOPOLOGY._replace(epoch=9)
    assert world.join("a", topology=other).error is ErrorCode.none


# Whatever happens

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.sampled_from("abcd")),
        st.tuples(st.just("silent"), st.sampled_from("abcd")),
        st.tuples(st.just("lost answer"), st.sampled_from("abcd")),
        st.tuples(st.just("leave"), st.sampled_from("abcd")),
        st.tuples(st.just("wait"), st.sampled_from([1_000, 30_000, 50_000])),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("standbys"), st.integers(0, 2)),
        st.tuples(st.just("topics"), st.sampled_from([0, 1, 2, 3])),
        st.tuples(st.just("writes fail"), st.booleans()),
        st.tuples(st.just("assigned"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([0, 3_000]), st.sampled_from([1, TASKS_AT_ONCE]))
def test_whatever_happens_a_group_comes_to_rest(
    steps: list[tuple[str, Any]], delay_ms: int, tasks_at_once: int
) -> None:
    with patch.object(assignors, "TASKS_AT_ONCE", tasks_at_once):
        come_to_rest(steps, delay_ms)


def come_to_rest(steps: list[tuple[str, Any]], delay_ms: int) -> None:
    """The world checks the invariants after every event."""
    world = StreamsWorld(streams_initial_rebalance_delay_ms=delay_ms)
    workers = {one: Worker(world, one, process_id=f"p{one in 'ab'}") for one in "abcd"}
    configs: dict[str, str] = {}
    for what, which in steps:
        match what:
            case "beat":
                workers[which].beat()
            case "silent" if workers[which].epoch:
                world.beat(which, workers[which].epoch)
            case "lost answer" if workers[which].epoch:
                tasks = workers[which].tasks
                world.beat(
                    which,
                    workers[which].epoch,
                    active=tasks.active,
                    standby=tasks.standby,
                    warmup=tasks.warmup,
                )
            case "leave":
                workers[which].leave()
            case "wait":
                world.wait(which)
            case "restart":
                world.restart()
            case "standbys":
                configs = {"streams.num.standby.replicas": str(which)}
                world.image = world.image.with_group_configs({GROUP: configs})
            case "topics":
                counts = {} if which == 0 else dict.fromkeys(TOPICS, which)
                world.image = image_of(counts).with_group_configs({GROUP: configs})
            case "writes fail":
                world.writes_fail = which
            case "assigned":
                world.finish_assigning()
            case _:
                pass
    world.writes_fail = False
    world.image = image_of(TOPICS)
    present = [workers[one] for one in "ac"]
    for one in workers.values():
        if one not in present:
            one.leave()
    for one in (*present, *present):  # after a lost session the second heartbeat joins
        one.beat()
    world.wait(3_000)
    settle(*present)
    run = [task for one in present for task in one.tasks.each()]
    assert sorted(task for _, task in run) == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]
    assert world.group.state is StreamsGroupState.STABLE
